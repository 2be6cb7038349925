"""A Slack incoming webhook, or whatever speaks like one (Mattermost, Rocket.Chat)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.settings import Secret
from sinks.alerts.channels.base import Kind, Surroundings
from sinks.alerts.channels.http import PATIENCE_S, post_json
from sinks.alerts.limits import Limit
from sinks.alerts.notification import Notification
from sinks.alerts.text import paragraphs, title

MARKS: Final = {"resolved": ":white_check_mark:", "acknowledged": ":eyes:", "expired": ":grey_question:"}
SEVERITIES: Final = {"critical": ":rotating_light:", "warning": ":warning:", "info": ":information_source:"}
LONGEST: Final = 3500


@dataclass(frozen=True, slots=True)
class SlackOptions:
    """url: of the incoming webhook, which is a secret."""

    url: Secret
    timeout: float = PATIENCE_S


class SlackChannel:
    """A message a notification."""

    def __init__(self, options: SlackOptions, surroundings: Surroundings) -> None:
        self._options = options

    def send(self, notification: Notification) -> int:
        """Post it. Raises ChannelError."""
        first = notification.alerts[0]
        mark = MARKS.get(first.state) or SEVERITIES.get(first.severity, "")
        head = f"{mark} *{escaped(title(notification))}*"
        text = "\n".join([head, *(escaped(line) for line in paragraphs(notification))])
        return post_json(self._options.url, {"text": text[:LONGEST]}, timeout_s=self._options.timeout)[0]


def escaped(text: str) -> str:
    """The three characters that mean something to Slack, as it wants them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


KIND: Final = Kind(SlackOptions, SlackChannel, "message", Limit(10, 30))
