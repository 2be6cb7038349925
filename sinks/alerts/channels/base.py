"""What a channel is, and what it may say of a failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sinks.alerts.limits import Limit
from sinks.alerts.notification import Notification


class ChannelError(Exception):
    """A try failed. The message holds no secret.

    again          whether it makes sense to try again
    code           HTTP or SMTP status, where there was one
    retry_after_s  what the receiver asked for
    """

    def __init__(
        self, message: str, *, again: bool, code: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.again = again
        self.code = code
        self.retry_after_s = retry_after_s


class Channel(Protocol):
    """Tells one receiver. Used from one thread."""

    def send(self, notification: Notification) -> int | None:
        """Tell it, once, within bounded time; the status the receiver gave, if any. Raises ChannelError."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What channels may need of the service.

    now_ns   clock, ns since 1970-01-01 UTC
    produce  (topic, key, value) into Kafka, returns when it is stored; raises ChannelError
    """

    now_ns: Callable[[], int]
    produce: Callable[[str, bytes, bytes], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table of channels.

    options  dataclass of what the routing file may say; build: makes the channel of them
    style    message: each notification is read by somebody, so all of them count against the limit, and what is held
             back comes as a digest; state: the receiver keeps alerts by their keys, so that an end pages nobody and
             does not count; batch: it takes any number at once and does the rest itself
    limit    the default
    again_s  a batch receiver forgets what is not said again after so many seconds; 0: it does not
    """

    options: type[Any]
    build: Callable[[Any, Surroundings], Channel]
    style: str
    limit: Limit
    again_s: float = 0.0
