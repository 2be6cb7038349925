"""Which group alert an alert is told with: none, that of a label such as its rack, of its cause, or of the fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sinks.alerts.held import Held, make_key


@dataclass(frozen=True, slots=True)
class GroupRule:
    """How many hosts with the same trouble within `window_s` make a group: by label, narrow to wide, and by cause.
    0 is never.
    """

    window_s: float = 300.0
    labels: Mapping[str, int] = field(default_factory=dict)
    cause: int = 20


@dataclass(frozen=True, slots=True)
class Group:
    """A group that an alert may belong to."""

    key: str
    scope: str
    words: str
    least: int


FLEET = Group("fleet", "fleet", "fleet", 0)


def groups_of(alert: Held, rule: GroupRule) -> list[Group]:
    """Groups that `alert` may belong to, the widest first."""
    found = [Group(make_key("cause", alert.kind), "cause", f"{alert.kind} on many hosts", rule.cause)]
    for label, least in reversed(list(rule.labels.items())):
        if value := alert.labels.get(label, ""):
            found.append(Group(make_key("label", label, value, alert.kind), "label", f"{label} {value}", least))
    return [group for group in found if group.least > 0]


def choose(alert: Held, rule: GroupRule, recent: Counter[str], firing: Iterable[str]) -> Group | None:
    """The group that `alert` is told with: the widest that fires, or that has enough alerts by now; None for none.

    recent  by key of a group, how many hosts began to fire within the window; firing: keys of groups that do
    """
    there = set(firing)
    candidates = groups_of(alert, rule)
    for group in candidates:
        if group.key in there or recent[group.key] >= group.least:
            return group
    return None
