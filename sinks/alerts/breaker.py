"""The breaker: when much of the fleet fires at once, that is one thing, and one alert. Pure; time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

from sinks.alerts.duration import SECOND_NS


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """Opens when `hosts` hosts, or `share` of the known ones and at least `least`, begin to fire within `window_s`;
    closes after `calm_s` without.
    """

    hosts: int = 50
    share: float = 0.5
    least: int = 10
    window_s: float = 60.0
    calm_s: float = 600.0

    def trips(self, firing: int, known: int) -> bool:
        """Whether so many hosts of so many are too many."""
        return firing >= self.hosts or (firing >= self.least and known > 0 and firing >= self.share * known)


@dataclass(slots=True)
class Breaker:
    """Open until `until_ns`."""

    rule: BreakerRule
    until_ns: int = 0

    def look(self, firing: int, known: int, now_ns: int) -> bool:
        """Whether the breaker is open, now that `firing` of `known` hosts began to fire within the window."""
        if self.rule.trips(firing, known):
            self.until_ns = now_ns + int(self.rule.calm_s * SECOND_NS)
        return now_ns < self.until_ns
