"""Whatever else there is, through the package apprise, which is not installed unless somebody wants it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Final

from schemas.settings import Secret
from sinks.alerts.channels.base import ChannelError, Kind, Surroundings
from sinks.alerts.channels.options import OptionError
from sinks.alerts.limits import Limit
from sinks.alerts.notification import Notification
from sinks.alerts.text import paragraphs, title

TYPES: Final = {"critical": "failure", "warning": "warning", "info": "info"}


@dataclass(frozen=True, slots=True)
class AppriseOptions:
    """urls: as apprise wants them, such as "tgram://token/chat"; they are secrets."""

    urls: tuple[Secret, ...]


class AppriseChannel:
    """A message a notification."""

    def __init__(self, apprise: Any) -> None:
        self._apprise = apprise

    def send(self, notification: Notification) -> None:
        """Hand it over. apprise says no more than whether it worked. Raises ChannelError."""
        first = notification.alerts[0]
        over = first.state in ("resolved", "expired")
        try:
            done = self._apprise.notify(
                title=title(notification),
                body="\n".join(paragraphs(notification)),
                notify_type="success" if over else TYPES.get(first.severity, "info"),
            )
        except Exception as error:  # whatever a plug-in trips over; its text may hold the URL
            raise ChannelError(f"apprise: {type(error).__name__}", again=True) from None
        if not done:
            raise ChannelError("apprise could not deliver; its own log says why", again=True)


def build(options: AppriseOptions, surroundings: Surroundings) -> AppriseChannel:
    """The channel. Raises OptionError when the package is missing or does not know a URL."""
    try:
        apprise = importlib.import_module("apprise").Apprise()
    except ModuleNotFoundError:
        raise OptionError("channel: apprise is not installed: pip install apprise") from None
    for number, url in enumerate(options.urls, 1):
        if not apprise.add(str(url)):
            raise OptionError(f"urls: apprise does not understand number {number}")
    return AppriseChannel(apprise)


KIND: Final = Kind(AppriseOptions, build, "message", Limit(10, 30))
