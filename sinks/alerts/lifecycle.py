"""What an episode does to the alert of its host: the facts of an alert, and how it begins, goes on and ends. Pure."""

from __future__ import annotations

from schemas.records import Episode
from sinks.alerts.duration import SECOND_NS
from sinks.alerts.held import ACKNOWLEDGED, EXPIRED, FIRING, OVER, RESOLVED, SEVERITIES, Held
from sinks.alerts.routing import SeverityRule, Timing
from sinks.alerts.text import MOST_EVIDENCE, evidence_line


def take(alert: Held, episode: Episode, rule: SeverityRule, now_ns: int) -> bool:
    """Take over what `episode`, which is open, says. Whether people want to hear of it: another subsystem or cause,
    or a higher severity.
    """
    before = (alert.subsystem, alert.cause, alert.severity)
    if episode.id not in alert.open:
        alert.open.append(episode.id)
    alert.remember(episode.id, episode.revision)
    alert.heard_ns, alert.calm_ns = now_ns, None
    _describe(alert, episode)
    alert.peak = max(alert.peak, episode.peak_severity)
    severity = rule.of(alert.peak, alert.cause)
    # Once told, never down: a severity that flaps would page again and again.
    alert.severity = max(severity, alert.severity, key=SEVERITIES.index) if alert.known_to_anybody else severity
    return before != (alert.subsystem, alert.cause, alert.severity)


def close(alert: Held, episode: Episode, now_ns: int) -> None:
    """One of its episodes is closed; without another one it is calm from the last strange window on."""
    alert.remember(episode.id, episode.revision)
    if episode.id in alert.open:
        alert.open.remove(episode.id)
    alert.heard_ns = now_ns
    _describe(alert, episode)
    if not alert.open:
        ended_ns = episode.closed_ns or episode.updated_ns
        alert.calm_ns = min(now_ns, ended_ns)


def begin(alert: Held, episode: Episode, rule: SeverityRule, now_ns: int) -> None:
    """It fires, for the first time or again."""
    clear(alert)
    alert.since_ns, alert.born_ns = episode.start_ns, now_ns
    alert.state = FIRING
    take(alert, episode, rule, now_ns)


def clear(alert: Held) -> None:
    """Forget the time before: it begins anew. What receivers know stays."""
    alert.cause, alert.severity, alert.peak = None, SEVERITIES[0], 0.0
    alert.reason = alert.acknowledged = ""
    alert.resolved_ns = alert.calm_ns = alert.parent = None
    alert.open.clear()
    alert.members.clear()
    alert.hosts.clear()
    alert.most = alert.told_hosts = 0


def is_fresh(episode: Episode, timing: Timing, now_ns: int) -> bool:
    """Whether what it says is of now, not of a backlog or a replay."""
    return now_ns - episode.updated_ns <= timing.max_age * SECOND_NS


def ending(alert: Held, timing: Timing, now_ns: int) -> str:
    """State in which the alert of a host ends now: resolved, expired, or empty while it does not."""
    if alert.state in OVER:
        return ""
    if alert.calm_ns is not None:
        return RESOLVED if now_ns - alert.calm_ns >= timing.keep_firing * SECOND_NS else ""
    return EXPIRED if now_ns - alert.heard_ns >= timing.stale * SECOND_NS else ""


def shown_state(alert: Held) -> str:
    """State of an alert that is not silenced: acknowledged stays so until it is over."""
    return ACKNOWLEDGED if alert.acknowledged else FIRING


def _describe(alert: Held, episode: Episode) -> None:
    alert.subsystem, alert.cause = episode.subsystem, episode.cause or alert.cause
    alert.updated_ns = max(alert.updated_ns, episode.updated_ns)
    alert.description = episode.explanation
    alert.evidence = [evidence_line(row) for row in episode.evidence[:MOST_EVIDENCE]]
    alert.checks, alert.remedy = list(episode.checks), episode.remedy
