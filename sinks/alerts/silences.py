"""Reasons not to tell anybody: silences, maintenance windows, and what a person said is expected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sinks.alerts.duration import SECOND_NS
from sinks.alerts.held import Held
from sinks.alerts.matching import Matcher

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_S = 86_400
FOURTH_DAY = 3
"""1970-01-01 was a Thursday."""


@dataclass(frozen=True, slots=True)
class Silence:
    """From `starts_ns` until `ends_ns`, about one alert by its key or about all hosts' alerts that match."""

    id: str
    matcher: Matcher
    starts_ns: int
    ends_ns: int
    key: str = ""
    by: str = ""
    comment: str = ""

    def covers(self, alert: Held, now_ns: int) -> str:
        """Why `alert` is not told at `now_ns`; empty when it is."""
        if not self.starts_ns <= now_ns < self.ends_ns:
            return ""
        # A group is not silenced by one of its hosts: the host leaves it.
        if alert.key != self.key if self.key else (alert.scope != "host" or not self.matcher.matches(alert)):
            return ""
        return f"silence {self.id}{f' by {self.by}' if self.by else ''}{f': {self.comment}' if self.comment else ''}"


@dataclass(frozen=True, slots=True)
class Expected:
    """One kind of episode on one host that a person said is no trouble, until `until_ns`."""

    id: str
    host: str
    subsystem: str
    cause: str | None
    until_ns: int
    by: str = ""
    note: str = ""

    def covers(self, alert: Held, now_ns: int) -> str:
        """Why `alert` is not told at `now_ns`; empty when it is. While its cause is still unknown it may be this."""
        same = (alert.host, alert.subsystem) == (self.host, self.subsystem) and alert.cause in (None, self.cause)
        if now_ns >= self.until_ns or not self.host or not same:
            return ""
        return f"marked as expected{f' by {self.by}' if self.by else ''}{f': {self.note}' if self.note else ''}"


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A window of the routing file: once, from `starts_ns` to `ends_ns`, or weekly on `days` (0 is Monday) from
    second `from_s` to `to_s` of the day, UTC; over midnight when `to_s` is not later than `from_s`.
    """

    name: str
    matcher: Matcher
    starts_ns: int = 0
    ends_ns: int = 0
    days: tuple[int, ...] = ()
    from_s: int = 0
    to_s: int = 0

    def covers(self, alert: Held, now_ns: int) -> str:
        """Why `alert` is not told at `now_ns`; empty when it is."""
        if alert.scope != "host" or not self.running(now_ns) or not self.matcher.matches(alert):
            return ""
        return f"maintenance {self.name}"

    def running(self, now_ns: int) -> bool:
        """Whether the window is open."""
        if self.ends_ns:
            return self.starts_ns <= now_ns < self.ends_ns
        days, second = divmod(now_ns // SECOND_NS, DAY_S)
        today = (days + FOURTH_DAY) % 7
        if self.from_s < self.to_s:
            return today in self.days and self.from_s <= second < self.to_s
        return (today in self.days and second >= self.from_s) or ((today - 1) % 7 in self.days and second < self.to_s)


Quiet = Silence | Expected | Maintenance


def reason_for(alert: Held, quiet: Iterable[Quiet], now_ns: int) -> str:
    """Why `alert` is not to be told at `now_ns`; empty when it is."""
    return next((reason for each in quiet if (reason := each.covers(alert, now_ns))), "")
