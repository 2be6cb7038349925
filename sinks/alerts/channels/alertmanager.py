"""Prometheus' Alertmanager, API v2. It forgets an alert that is not said again, so all that fire are, every minute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from schemas.records import Alert
from schemas.settings import Secret
from sinks.alerts.channels.base import ChannelError, Kind, Surroundings
from sinks.alerts.channels.http import PATIENCE_S, post_json
from sinks.alerts.duration import SECOND_NS
from sinks.alerts.limits import NO_LIMIT
from sinks.alerts.notification import Notification
from sinks.alerts.text import iso

PATH: Final = "/api/v2/alerts"
LASTS: Final = 4
"""An alert lasts so many rounds unless it is said again: one that is lost, or a restart, resolves nothing."""
AGAIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class AlertmanagerOptions:
    """urls: of every instance of the cluster, without /api; token: a bearer token; name: the label alertname."""

    urls: tuple[str, ...]
    token: Secret = Secret("")
    name: str = "RevealAnomaly"
    timeout: float = PATIENCE_S
    ca_file: str = ""


class AlertmanagerChannel:
    """All alerts of a notification in one request to each instance; it is delivered when one of them took it."""

    def __init__(self, options: AlertmanagerOptions, surroundings: Surroundings) -> None:
        self._options = options
        self._now_ns = surroundings.now_ns
        self._labels: dict[str, dict[str, str]] = {}

    def send(self, notification: Notification) -> int:
        """Post them. Raises ChannelError."""
        options, now_ns = self._options, self._now_ns()
        content: list[dict[str, Any]] = []
        labels = {alert.key: labels_of(alert, options.name) for alert in notification.alerts}
        for alert in notification.alerts:
            before = self._labels.get(alert.key)
            # Labels are the identity: when a severity or a cause changes, what went by the old ones is over.
            if before is not None and before != labels[alert.key]:
                content.append(posted(alert, before, now_ns, over=True))
            content.append(posted(alert, labels[alert.key], now_ns, over=alert.state in ("resolved", "expired")))
        headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
        status, failed = 0, []
        for url in options.urls:
            try:
                address = url.rstrip("/") + PATH
                status, _ = post_json(address, content, headers, timeout_s=options.timeout, ca_file=options.ca_file)
            except ChannelError as error:
                failed.append(error)
        if not status:
            raise next((error for error in failed if error.again), failed[0])
        for alert in notification.alerts:
            if alert.state in ("resolved", "expired"):
                self._labels.pop(alert.key, None)
            else:
                self._labels[alert.key] = labels[alert.key]
        return status


def labels_of(alert: Alert, name: str) -> dict[str, str]:
    """Identity of an alert in Alertmanager, and what it groups and routes by."""
    own = {"host": alert.host, "subsystem": alert.subsystem, "cause": alert.cause or "", "group": alert.group}
    ours = {"alertname": name, "reveal_key": alert.key, "scope": alert.scope, "severity": alert.severity, **own}
    # Names of labels are letters, digits and underscores there; ours go before those of the host.
    others = {
        "".join(c if c.isalnum() and c.isascii() else "_" for c in key): text for key, text in alert.labels.items()
    }
    return {key: text for key, text in {**others, **ours}.items() if text and not key[0].isdigit()}


def posted(alert: Alert, labels: dict[str, str], now_ns: int, *, over: bool) -> dict[str, Any]:
    """An alert as the API takes it."""
    starts_ns = min(alert.since_ns, now_ns)
    ends_ns = min(alert.resolved_ns or now_ns, now_ns) if over else now_ns + int(LASTS * AGAIN_S * SECOND_NS)
    texts = {
        "summary": alert.summary,
        "description": alert.description,
        "evidence": "\n".join(alert.evidence),
        "checks": "\n".join(alert.checks),
        "remedy": alert.remedy,
        **{f"{name}_url": url for name, url in alert.links.items()},
    }
    made: dict[str, Any] = {
        "labels": labels,
        "annotations": {name: text for name, text in texts.items() if text},
        "startsAt": iso(starts_ns),
        "endsAt": iso(max(ends_ns, starts_ns)),
    }
    if url := alert.links.get("console"):
        made["generatorURL"] = url
    return made


KIND: Final = Kind(AlertmanagerOptions, AlertmanagerChannel, "batch", NO_LIMIT, AGAIN_S)
