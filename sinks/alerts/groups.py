"""Alerts of groups: what begins together is told together, by label, by cause, or as one of the fleet. Pure."""

from __future__ import annotations

from collections import Counter

from sinks.alerts.breaker import Breaker
from sinks.alerts.duration import SECOND_NS
from sinks.alerts.grouping import FLEET, Group, choose, groups_of
from sinks.alerts.held import ACTIVE, FIRING, OVER, RESOLVED, SEVERITIES, UPDATED, Held
from sinks.alerts.ledger import Ledger
from sinks.alerts.lifecycle import clear
from sinks.alerts.routing import Routing


class Groups:
    """The groups among the alerts of a ledger.

    breaker  opens when much of the fleet fires at once
    changed  whether it opened, or stays open for longer, since somebody set this to False
    """

    def __init__(self, routing: Routing, ledger: Ledger) -> None:
        self.breaker = Breaker(routing.breaker)
        self.changed = False
        self._routing = routing
        self._ledger = ledger

    def gather(self, hosts: list[Held], known: int, now_ns: int) -> None:
        """Alerts that begin together join a group, or that of the fleet. `known` hosts there are."""
        timing, rule = self._routing.timing, self._routing.grouping
        active = [alert for alert in hosts if alert.state in ACTIVE]
        newest_ns = now_ns - int(self._routing.breaker.window_s * SECOND_NS)
        bursting = [alert for alert in active if alert.born_ns >= newest_ns]
        was_ns = self.breaker.until_ns
        began = len({alert.host for alert in bursting})
        trips, is_open = self._routing.breaker.trips(began, known), self.breaker.look(began, known, now_ns)
        self.changed = self.changed or was_ns != self.breaker.until_ns
        recent_ns = now_ns - int(rule.window_s * SECOND_NS)
        members: dict[str, dict[str, set[str]]] = {}
        for alert in active:
            if alert.born_ns >= recent_ns:
                for each in groups_of(alert, rule):
                    members.setdefault(each.key, {}).setdefault(alert.host, set()).add(alert.key)
        recent = Counter({key: len(those) for key, those in members.items()})
        firing = {
            key: set(held.members)
            for key, held in self._ledger.alerts.items()
            if held.scope != "host" and held.state not in OVER
        }
        for alert in active:
            if alert.parent is not None:
                if alert.parent not in firing:
                    alert.parent = None
                    self._ledger.note(alert)
                elif alert.key not in firing[alert.parent]:
                    self._ledger.alerts[alert.parent].members.append(alert.key)
            waiting = now_ns - alert.born_ns < timing.wait * SECOND_NS
            if alert.parent is not None or alert.known_to_anybody or (waiting and not trips):
                continue
            group: Group | None = (
                FLEET if trips or (is_open and FLEET.key in firing) else choose(alert, rule, recent, firing)
            )
            if group is None:
                continue
            fellows = members.get(group.key, {}).values()
            together = bursting if trips else [self._ledger.alerts[key] for keys in fellows for key in sorted(keys)]
            firing[group.key] = self._join(group, [alert, *together], now_ns)

    def follow(self, parent: Held, now_ns: int) -> None:
        """A group goes on as its members do, and ends with the last of them."""
        self._sum_up(parent, now_ns)
        if not parent.hosts:
            self._ledger.end(parent, RESOLVED, now_ns)
        elif len(parent.hosts) >= 2 * parent.told_hosts:
            # Each doubling is news; everything in between is not.
            parent.told_hosts = len(parent.hosts)
            self._ledger.tell(parent, UPDATED, now_ns)

    def _join(self, group: Group, alerts: list[Held], now_ns: int) -> set[str]:
        """Members of `group` when `alerts` have joined it."""
        parent = self._ledger.alerts.get(group.key)
        if parent is None:
            parent = self._ledger.hold(Held(group.key, group.scope, group=group.words))
        begins = parent.state in OVER
        if begins:
            clear(parent)
            parent.born_ns, parent.state, parent.group = now_ns, FIRING, group.words
        members = dict.fromkeys(parent.members)
        for alert in alerts:
            members[alert.key] = None
            # What somebody was told of already goes on by itself.
            if not alert.known_to_anybody and alert.parent != group.key:
                alert.parent = group.key
                self._ledger.tell(alert, UPDATED, now_ns)
        parent.members = list(members)
        self._ledger.note(parent)
        if begins:
            self._sum_up(parent, now_ns)
            parent.told_hosts = len(parent.hosts)
            self._ledger.tell(parent, FIRING, now_ns)
        return set(members)

    def _sum_up(self, parent: Held, now_ns: int) -> None:
        members = [alert for key in parent.members if (alert := self._ledger.alerts.get(key)) is not None]
        active = [alert for alert in members if alert.state in ACTIVE]
        hosts = sorted({alert.host for alert in active})
        if len(active) != len(parent.members):
            parent.members = [alert.key for alert in active]
        if hosts != parent.hosts:
            parent.hosts, parent.most = hosts, max(parent.most, len(hosts))
            self._ledger.note(parent)
        if not active:
            return
        subsystems, causes = {alert.subsystem for alert in active}, Counter(alert.cause for alert in active)
        parent.subsystem = subsystems.pop() if len(subsystems) == 1 else ""
        parent.cause = causes.most_common(1)[0][0] if parent.scope == "fleet" or len(causes) == 1 else parent.cause
        if not parent.subsystem and not parent.cause and parent.scope == "fleet":
            parent.subsystem = Counter(alert.subsystem for alert in active).most_common(1)[0][0]
        parent.labels = dict(set.intersection(*(set(alert.labels.items()) for alert in active)))
        parent.since_ns = min(alert.since_ns for alert in active)
        parent.updated_ns = max(alert.updated_ns for alert in active)
        parent.heard_ns = now_ns
        parent.peak = max(parent.peak, *(alert.peak for alert in active))
        worst = max((alert.severity for alert in active), key=SEVERITIES.index)
        parent.severity = max(worst, parent.severity if parent.told_hosts else SEVERITIES[0], key=SEVERITIES.index)
        strongest = max(active, key=lambda alert: (alert.peak, alert.key))
        parent.description = f"Strongest on {strongest.host}: {strongest.description}" if strongest.description else ""
        parent.evidence, parent.checks, parent.remedy = strongest.evidence, strongest.checks, strongest.remedy
        for alert in sorted(active, key=lambda alert: alert.born_ns)[-3:]:
            for episode in list(alert.episodes)[-1:]:
                parent.remember(episode, alert.episodes[episode])
