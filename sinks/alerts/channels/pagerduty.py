"""PagerDuty's Events API v2: trigger, acknowledge and resolve by deduplication key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from schemas.records import Alert
from schemas.settings import Secret
from sinks.alerts.channels.base import Kind, Surroundings
from sinks.alerts.channels.http import PATIENCE_S, post_json
from sinks.alerts.limits import Limit
from sinks.alerts.notification import Notification
from sinks.alerts.text import iso, title

ACTIONS: Final = {"resolved": "resolve", "expired": "resolve", "acknowledged": "acknowledge"}
LONGEST_SUMMARY: Final = 1024
MOST: Final = 50


@dataclass(frozen=True, slots=True)
class PagerDutyOptions:
    """routing_key: of the service's integration."""

    routing_key: Secret
    url: str = "https://events.pagerduty.com/v2/enqueue"
    timeout: float = PATIENCE_S


class PagerDutyChannel:
    """An event an alert; a digest is the event of its first alert, with the others in its details."""

    def __init__(self, options: PagerDutyOptions, surroundings: Surroundings) -> None:
        self._options = options

    def send(self, notification: Notification) -> int:
        """Enqueue the event. Raises ChannelError."""
        event = self.event(notification)
        return post_json(self._options.url, event, timeout_s=self._options.timeout)[0]

    def event(self, notification: Notification) -> dict[str, Any]:
        """What is sent."""
        alert = notification.alerts[0]
        action = ACTIONS.get(alert.state, "trigger")
        event: dict[str, Any] = {
            "routing_key": str(self._options.routing_key),
            "event_action": action,
            "dedup_key": alert.key,
        }
        if action == "trigger":
            event |= {
                "client": "Reveal",
                "payload": {
                    "summary": title(notification)[:LONGEST_SUMMARY],
                    "source": alert.host or alert.group,
                    "severity": alert.severity,
                    "timestamp": iso(alert.since_ns),
                    "component": alert.subsystem or "host",
                    "group": alert.labels.get("rack", alert.group),
                    "class": alert.cause or "unknown",
                    "custom_details": _details(alert, notification),
                },
                "links": [{"href": url, "text": name} for name, url in alert.links.items()],
            }
        return event


def _details(alert: Alert, notification: Notification) -> dict[str, Any]:
    details: dict[str, Any] = {
        "description": alert.description,
        "evidence": list(alert.evidence),
        "checks": list(alert.checks),
        "remedy": alert.remedy,
        "hosts": list(alert.hosts[:MOST]),
        "host_count": alert.host_count,
        "labels": dict(alert.labels),
    }
    if len(notification.alerts) > 1:
        details["others"] = [each.summary for each in notification.alerts[1:MOST]]
    return details


KIND: Final = Kind(PagerDutyOptions, PagerDutyChannel, "state", Limit(10, 30))
