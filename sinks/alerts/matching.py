"""Which alerts a route, a silence or a maintenance window is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from sinks.alerts.held import SEVERITIES, Held


@dataclass(frozen=True, slots=True)
class Matcher:
    """All conditions must hold; one without conditions matches everything.

    patterns  by host, subsystem, cause, scope or the name of a label: shell patterns, of which one must fit
    severity  the least severity
    """

    patterns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    severity: str = ""

    def matches(self, alert: Held) -> bool:
        """Whether it is about `alert`. Of a group one host must fit; a label must be one that all its hosts share."""
        if self.severity and SEVERITIES.index(alert.severity) < SEVERITIES.index(self.severity):
            return False
        return all(_fits(wanted, _values(alert, name)) for name, wanted in self.patterns.items())

    def words(self) -> str:
        """Such as host=gpu-* rack=r12."""
        told = [f"{name}={','.join(wanted)}" for name, wanted in self.patterns.items()]
        return " ".join([*told, *([f"severity>={self.severity}"] if self.severity else [])]) or "everything"


def _values(alert: Held, name: str) -> tuple[str, ...]:
    if name == "host":
        return (alert.host,) if alert.host else tuple(alert.hosts)
    if name == "subsystem":
        return (alert.subsystem,)
    if name == "cause":
        return (alert.cause or "",)
    if name == "scope":
        return (alert.scope,)
    return (alert.labels.get(name, ""),)


def _fits(wanted: Iterable[str], values: tuple[str, ...]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in wanted for value in values)
