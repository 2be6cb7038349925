"""E-mail over SMTP."""

from __future__ import annotations

import smtplib
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Final

from schemas.settings import Secret
from sinks.alerts.channels.base import ChannelError, Kind, Surroundings
from sinks.alerts.channels.http import PATIENCE_S
from sinks.alerts.held import short_id
from sinks.alerts.limits import Limit
from sinks.alerts.notification import Notification
from sinks.alerts.text import paragraphs, title

SECURITIES: Final = ("starttls", "tls", "none")


@dataclass(frozen=True, slots=True)
class EmailOptions:
    """host, port: the mail server; security: starttls, tls or none; to, sender: addresses."""

    host: str
    to: tuple[str, ...]
    sender: str
    port: int = 587
    security: str = "starttls"
    username: str = ""
    password: Secret = Secret("")
    ca_file: str = ""
    timeout: float = PATIENCE_S

    def __post_init__(self) -> None:
        if self.security not in SECURITIES:
            raise ValueError(f"security: must be one of {', '.join(SECURITIES)}, not {self.security!r}")
        if self.password and self.security == "none":
            raise ValueError("security: a password is not sent over a connection that anybody can read")


class EmailChannel:
    """A mail a notification; those of one alert make a thread."""

    def __init__(self, options: EmailOptions, surroundings: Surroundings) -> None:
        self._options = options
        self._now_ns = surroundings.now_ns

    def send(self, notification: Notification) -> int:
        """Hand it to the mail server. Raises ChannelError."""
        options = self._options
        try:
            with self._connect() as server:
                if options.security == "starttls":
                    server.starttls(context=self._context())
                if options.username:
                    server.login(options.username, str(options.password))
                refused = server.send_message(self.message(notification))
        except smtplib.SMTPResponseException as error:
            text = (
                error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
            )
            raise ChannelError(
                f"{options.host} answered {error.smtp_code}: {text}",
                again=error.smtp_code < 500,
                code=error.smtp_code,
            ) from None
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise ChannelError(
                f"{options.host} refused all addresses", again=any(code < 500 for code in codes), code=min(codes)
            ) from None
        except smtplib.SMTPNotSupportedError as error:
            raise ChannelError(f"{options.host}: {error}", again=False) from None
        except TimeoutError:
            raise ChannelError(f"{options.host} did not answer within {options.timeout:g} s", again=True) from None
        except (OSError, smtplib.SMTPException) as error:
            # The library says of a time-out that the connection is closed.
            if isinstance(error.__context__, TimeoutError):
                raise ChannelError(f"{options.host} did not answer within {options.timeout:g} s", again=True) from None
            raise ChannelError(f"{options.host}: {type(error).__name__}: {error}", again=True) from None
        return min((code for code, _ in refused.values()), default=250)

    def message(self, notification: Notification) -> EmailMessage:
        """The mail."""
        options, first = self._options, notification.alerts[0]
        mail = EmailMessage()
        mail["Subject"] = " ".join(title(notification).split())
        mail["From"] = options.sender
        mail["To"] = ", ".join(options.to)
        mail["Date"] = format_datetime(datetime.fromtimestamp(self._now_ns() / 1e9, UTC))
        mail["Message-ID"] = f"<{notification.id}@reveal.invalid>"
        thread = f"<{short_id(first.key)}.{first.since_ns}@reveal.invalid>"
        mail["References"] = thread
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Reveal-Key"] = first.key
        mail.set_content("\n".join([title(notification), "", *paragraphs(notification)]))
        return mail

    def _connect(self) -> smtplib.SMTP:
        options = self._options
        if options.security == "tls":
            return smtplib.SMTP_SSL(options.host, options.port, timeout=options.timeout, context=self._context())
        return smtplib.SMTP(options.host, options.port, timeout=options.timeout)

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._options.ca_file or None)


KIND: Final = Kind(EmailOptions, EmailChannel, "message", Limit(10, 12))
