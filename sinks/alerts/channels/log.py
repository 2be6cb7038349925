"""The service's own log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from sinks.alerts.channels.base import Kind, Surroundings
from sinks.alerts.limits import NO_LIMIT
from sinks.alerts.notification import Notification
from sinks.alerts.text import headline

LOG: Final = logging.getLogger("sinks.alerts.log")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """None."""


class LogChannel:
    """A line an alert."""

    def send(self, notification: Notification) -> None:
        """Log it."""
        for alert in notification.alerts:
            LOG.warning("%s [%s]", headline(alert), alert.id)


def build(options: LogOptions, surroundings: Surroundings) -> LogChannel:
    """The channel."""
    return LogChannel()


KIND: Final = Kind(LogOptions, build, "message", NO_LIMIT)
