"""Alerts in words: one line with host, subsystem, probable cause and since when; then evidence and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from schemas.records import Alert, Evidence
from sinks.alerts.duration import SECOND_NS, in_words
from sinks.alerts.held import Held
from sinks.alerts.notification import Notification

MOST_HOSTS: Final = 8
MOST_EVIDENCE: Final = 5
MOST_LISTED: Final = 20


def summary(alert: Held) -> str:
    """The one line."""
    cause = f"probable cause {words(alert.cause)}" if alert.cause else "cause unknown"
    since = f"since {moment(alert.since_ns)}"
    if alert.scope == "host":
        return f"{alert.host}: {alert.subsystem or 'unknown subsystem'}, {cause}, {since}"
    number = len(alert.hosts) or alert.most
    hosts = f"{number:,} host{'' if number == 1 else 's'}"
    if alert.scope == "fleet":
        return f"fleet: {hosts} at once, mostly {words(alert.kind) or 'of different kinds'}, {since}"
    return f"{alert.group}: {hosts}, {alert.subsystem or 'several subsystems'}, {cause}, {since}"


def evidence_line(row: Evidence) -> str:
    """Such as gpu.temperature on gpu3: 92 C, usually 60, since 12:00:07."""
    single = row.instance_observed is not None and row.instance_expected is not None
    observed = row.instance_observed if single else row.observed
    expected = row.instance_expected if single else row.expected
    where = f" on {row.instance}" if row.instance else ""
    what = "" if single or row.feature == "level" else f" ({row.feature})"
    unit = f" {row.unit}" if row.unit else ""
    since = f", since {clock(row.since_ns)}" if row.since_ns else ""
    return f"{row.metric}{where}{what}: {number(observed)}{unit}, usually {number(expected)}{since}"


def number(value: float | None) -> str:
    """Four digits that matter."""
    if value is None or math.isnan(value):
        return "unknown"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def words(name: str | None) -> str:
    """A name of the tables as people write it."""
    return (name or "").replace("_", " ")


def headline(alert: Alert) -> str:
    """State and the one line."""
    took = ""
    if alert.state == "resolved" and alert.resolved_ns is not None:
        took = f", over after {in_words((alert.resolved_ns - alert.since_ns) / SECOND_NS)}"
    reason = f" ({alert.reason})" if alert.reason and alert.state != "firing" else ""
    state = alert.state.upper() if alert.state != "firing" else alert.severity.upper()
    return f"{state} {alert.summary}{took}{reason}"


def title(notification: Notification) -> str:
    """The first line of a message."""
    first = headline(notification.alerts[0])
    more = len(notification.alerts) - 1
    return f"{first}, and {more} more that the rate limit held back" if more and notification.digest else first


def paragraphs(notification: Notification) -> list[str]:
    """The lines below the first."""
    first = notification.alerts[0]
    if len(notification.alerts) == 1:
        return body(first)
    lines = [f"- {headline(alert)}" for alert in notification.alerts[:MOST_LISTED]]
    more = len(notification.alerts) - MOST_LISTED
    return [*lines, *([f"- and {more} more; `reveal alerts list` shows them"] if more > 0 else [])]


def body(alert: Alert) -> list[str]:
    """Evidence, remedy, checks and links of one alert; an end needs less."""
    lines = []
    if alert.hosts and not alert.host:
        more = alert.host_count - MOST_HOSTS
        lines.append(f"Hosts: {', '.join(alert.hosts[:MOST_HOSTS])}{f' and {more} more' if more > 0 else ''}")
    if alert.state in ("firing", "updated", "silenced"):
        if alert.description:
            lines.append(alert.description)
        lines += ["Evidence:", *(f"- {line}" for line in alert.evidence)] if alert.evidence else []
        lines += [f"What to do: {alert.remedy}"] if alert.remedy else []
        lines += ["To check:", *(f"- {line}" for line in alert.checks)] if alert.checks else []
    labels = " ".join(f"{name}={value}" for name, value in sorted(alert.labels.items()))
    lines += [f"Labels: {labels}"] if labels else []
    lines += [f"{name.replace('_', ' ').capitalize()}: {url}" for name, url in alert.links.items()]
    lines.append(f"Alert {alert.id}, severity {alert.severity} (peak {alert.peak_severity:.1f})")
    return lines


def links(templates: Mapping[str, str], alert: Held, id_: str) -> dict[str, str]:
    """URLs by name; those that want a host or an episode are left out where there is none."""
    values = {
        "host": alert.host or (alert.hosts[0] if len(alert.hosts) == 1 else ""),
        "episode": next(reversed(alert.episodes), ""),
        "key": alert.key,
        "id": id_,
    }
    found = {}
    for name, template in templates.items():
        if all(values[key] for key in values if f"{{{key}}}" in template):
            url = template
            for key, value in values.items():
                url = url.replace(f"{{{key}}}", quote(value, safe=""))
            found[name] = url
    return found


def as_json(alert: Alert) -> dict[str, Any]:
    """The alert as JSON values; times also in words."""
    values: dict[str, Any] = {name: getattr(alert, name) for name in alert.__slots__}
    for name in ("since_ns", "updated_ns", "resolved_ns", "time_ns"):
        values[name.removesuffix("_ns")] = None if values[name] is None else iso(values[name])
    return values


def iso(time_ns: int) -> str:
    """RFC 3339, UTC, to the millisecond."""
    return f"{_time(time_ns):%Y-%m-%dT%H:%M:%S}.{time_ns // 1_000_000 % 1000:03d}Z"


def moment(time_ns: int) -> str:
    """Date and time of day, UTC."""
    return f"{_time(time_ns):%Y-%m-%d %H:%M:%S} UTC"


def clock(time_ns: int) -> str:
    """Time of day, UTC."""
    return f"{_time(time_ns):%H:%M:%S}"


def _time(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC)
