"""Who is told what: receivers, routes, labels of hosts, and the rules of the engine. What the routing file says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sinks.alerts.breaker import BreakerRule
from sinks.alerts.grouping import GroupRule
from sinks.alerts.held import Held
from sinks.alerts.limits import NO_LIMIT, Limit
from sinks.alerts.matching import Matcher
from sinks.alerts.silences import Maintenance


@dataclass(frozen=True, slots=True)
class Receiver:
    """A row under [receivers]. options are the channel's own; what in them is secret is not resolved yet."""

    name: str
    channel: str
    options: Mapping[str, Any] = field(default_factory=dict)
    limit: Limit = NO_LIMIT
    updates: bool = True
    resolved: bool = True


@dataclass(frozen=True, slots=True)
class Route:
    """Receivers of what matches; `goes_on` to the routes below it."""

    matcher: Matcher
    receivers: tuple[str, ...]
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds.

    wait         after an alert begins to fire before anybody is told: others that belong with it may come
    keep_firing  without an open episode before it is resolved
    update       between two updates of one alert to one receiver
    max_age      news that are older page nobody
    stale        without news of an open episode before it is given up as expired
    forget       for how long what is over is kept
    """

    wait: float = 5.0
    keep_firing: float = 120.0
    update: float = 300.0
    max_age: float = 900.0
    stale: float = 900.0
    forget: float = 86_400.0


@dataclass(frozen=True, slots=True)
class SeverityRule:
    """Least peak severity of an episode (-log10 of a probability) for warning and for critical; and the severity of
    causes, which goes before: how strange something is says little of how bad it is. What is told never falls.
    """

    warning: float = 0.0
    critical: float = 10.0
    causes: Mapping[str, str] = field(default_factory=lambda: {"checkpoint": "info", "workload_change": "info"})

    def of(self, peak: float, cause: str | None) -> str:
        """info, warning or critical."""
        if cause is not None and cause in self.causes:
            return self.causes[cause]
        if peak >= self.critical:
            return "critical"
        return "warning" if peak >= self.warning else "info"


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of hosts: those that the table has, else those that the pattern finds in the name."""

    pattern: re.Pattern[str] | None = None
    hosts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of(self, host: str) -> dict[str, str]:
        """By name."""
        match = self.pattern.match(host) if self.pattern else None
        found = {name: value for name, value in match.groupdict().items() if value} if match else {}
        return found | dict(self.hosts.get(host, {}))


@dataclass(frozen=True, slots=True)
class Routing:
    """All of the routing file. The default tells the log only; the topic reveal.alerts has everything anyway.

    fleet  number of hosts, where the file says so; 0: as many as were seen
    links  URL templates by name, with {host}, {episode}, {key}, {id}
    """

    receivers: Mapping[str, Receiver] = field(default_factory=lambda: {"log": Receiver("log", "log")})
    routes: tuple[Route, ...] = (Route(Matcher(), ("log",)),)
    timing: Timing = Timing()
    severity: SeverityRule = field(default_factory=SeverityRule)
    labels: Labels = Labels()
    grouping: GroupRule = field(default_factory=GroupRule)
    breaker: BreakerRule = field(default_factory=BreakerRule)
    maintenance: tuple[Maintenance, ...] = ()
    fleet: int = 0
    links: Mapping[str, str] = field(default_factory=dict)

    def receivers_of(self, alert: Held) -> list[str]:
        """Names of those who are told of `alert`."""
        found: list[str] = []
        for route in self.routes:
            if route.matcher.matches(alert):
                found += [name for name in route.receivers if name not in found]
                if not route.goes_on:
                    break
        return found
