"""Who may ask: passwords, and which machines and web pages when there are none."""

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import hdrs

from deploy.clickhouse.engine import DEFAULT, READER
from deploy.clickhouse.errors import ACCESS_DENIED, AUTHENTICATION_FAILED, REQUIRED_PASSWORD, QueryError


@dataclass(frozen=True)
class Access:
    """Passwords. Without `password` both users come in without one; with it, `reader` needs one of its own."""

    password: str | None = None
    reader_password: str | None = None

    def check(self, user: str, password: str) -> None:
        """Raises QueryError."""
        if self.password is None and user in (DEFAULT, READER):
            return
        wanted = {DEFAULT: self.password, READER: self.reader_password}.get(user)
        if wanted is None or not hmac.compare_digest(wanted.encode(), password.encode(errors="surrogateescape")):
            if not password and user == DEFAULT:
                raise QueryError.of(REQUIRED_PASSWORD, f"{user}: Authentication failed: a password is required")
            raise QueryError.of(
                AUTHENTICATION_FAILED, f"{user}: Authentication failed: password is incorrect, or there is no such user"
            )


def refuse_foreign_pages(headers: Mapping[str, str]) -> None:
    """Without a password, a web page open in a browser of this machine could reach us: it names itself in Origin,
    and a rebound name shows in Host."""
    host = urlsplit("//" + headers.get(hdrs.HOST, "localhost")).hostname or ""
    origin = headers.get(hdrs.ORIGIN)
    if not is_loopback(host) or (origin and not is_loopback(urlsplit(origin).hostname or "")):
        raise QueryError.of(ACCESS_DENIED, "without a password only programs of this machine may ask, by localhost")


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only mean this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
