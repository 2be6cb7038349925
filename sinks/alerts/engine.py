"""The engine: facts and time in, alerts and what to tell out. Pure: no clock, no I/O, the same for the same input.

Times are ns since 1970-01-01 UTC. `now_ns` is the service's clock and must not go back by more than a moment.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.records import Alert, Delivery, Episode
from sinks.alerts.breaker import Breaker
from sinks.alerts.commands import ACK, ALERT, EXPECTED, OWN, SILENCE, Ack, Command, Message
from sinks.alerts.duration import SECOND_NS, in_words
from sinks.alerts.grouping import FLEET, Group, choose, groups_of
from sinks.alerts.held import (
    ACKNOWLEDGED,
    ACTIVE,
    EXPIRED,
    FIRING,
    MOST_EPISODES,
    OVER,
    RESOLVED,
    SEVERITIES,
    SILENCED,
    UPDATED,
    Held,
    Told,
    make_key,
    short_id,
)
from sinks.alerts.lifecycle import begin, clear, close, ending, is_fresh, shown_state, take
from sinks.alerts.notification import Notification, Outcome
from sinks.alerts.routing import Routing
from sinks.alerts.silences import Expected, Quiet, Silence, reason_for
from sinks.alerts.telling import MOST_NAMES, Telling
from sinks.alerts.text import links, summary

KNOWN: Final = f"{OWN}hosts"
PACE: Final = f"{OWN}pace"


@dataclass(slots=True)
class Changes:
    """What a turn brought: states of alerts, tries to tell, and records of the state topic."""

    alerts: list[Alert] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    state: list[Message] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.alerts or self.deliveries or self.state)


class Engine:
    """All alerts of the fleet.

    routing  who is told what
    jitter   numbers from 0 to 1, for pauses between tries
    links    more URLs of an alert, by name: (key, now_ns)
    """

    def __init__(
        self,
        routing: Routing,
        jitter: Callable[[], float],
        more_links: Callable[[str, int], Mapping[str, str]] = lambda _key, _now_ns: {},
    ) -> None:
        self.routing = routing
        self.alerts: dict[str, Held] = {}
        self.silences: dict[str, Silence] = {}
        self.expected: dict[str, Expected] = {}
        self.hosts: set[str] = set()
        self._more_links = more_links
        self._by_episode: dict[str, str] = {}
        self._of_host: dict[str, list[str]] = {}
        self._breaker = Breaker(routing.breaker)
        self._telling = Telling(routing, jitter, self._shown)
        self._dirty: set[str] = set()
        self._gone: list[Message] = []
        self._changes = Changes()
        self._known_changed = self._pace_changed = False

    # What was known before

    def restore(
        self, alerts: Iterable[Held], commands: Iterable[Command], own: Mapping[str, bytes], now_ns: int
    ) -> None:
        """Go on where another instance stopped. Its alerts are not given up for the time that nobody listened."""
        for alert in alerts:
            alert.heard_ns = max(alert.heard_ns, now_ns) if alert.state not in OVER else alert.heard_ns
            self._hold(alert)
            for episode in alert.episodes:
                self._by_episode[episode] = alert.key
        for command in commands:
            if isinstance(command, Silence):
                self.silences[command.id] = command
            elif isinstance(command, Expected):
                self.expected[command.id] = command
            else:
                self._acknowledge(command, now_ns)
        self.hosts |= set(_json(own.get(KNOWN), list))
        pace = _json(own.get(PACE), dict)
        self._breaker.until_ns = int(pace.get("breaker", 0))
        self._telling.keep_pace(pace.get("buckets", {}))

    # Facts

    def episode(self, episode: Episode, now_ns: int) -> None:
        """A state of an episode was read."""
        if episode.host not in self.hosts:
            self.hosts.add(episode.host)
            self._known_changed = True
        alert = self._alert_of(episode)
        if alert is not None and alert.episodes.get(episode.id, -1) >= episode.revision:
            return  # read again
        if episode.state == "closed":
            if alert is not None and episode.id in alert.episodes:
                close(alert, episode, now_ns)
                self._dirty.add(alert.key)
            return
        fresh = is_fresh(episode, self.routing.timing, now_ns)
        if alert is None:
            key = make_key("host", episode.host, episode.subsystem or "unknown")
            alert = self._hold(Held(key, "host", episode.host, labels=self.routing.labels.of(episode.host)))
        self._by_episode[episode.id] = alert.key
        self._dirty.add(alert.key)
        if alert.state not in OVER:
            if take(alert, episode, self.routing.severity, now_ns):
                self._tell(alert, UPDATED, now_ns)
        elif fresh:
            alert.labels = self.routing.labels.of(episode.host)
            begin(alert, episode, self.routing.severity, now_ns)
            alert.reason = self._quiet(alert, now_ns)
            alert.state = SILENCED if alert.reason else FIRING
            self._tell(alert, alert.state, now_ns)
        elif alert.state == EXPIRED and episode.id in alert.open:
            take(alert, episode, self.routing.severity, now_ns)
        else:
            begin(alert, episode, self.routing.severity, now_ns)
            age = in_words((now_ns - episode.updated_ns) / SECOND_NS)
            alert.reason = f"the news was {age} old: from a backlog or a replay"
            self._end(alert, EXPIRED, now_ns)

    def command(self, command: Command, now_ns: int) -> None:
        """A person asked for something."""
        if isinstance(command, Silence):
            self.silences[command.id] = command
        elif isinstance(command, Expected):
            self.expected[command.id] = command
        else:
            self._acknowledge(command, now_ns)

    def _acknowledge(self, command: Ack, now_ns: int) -> None:
        self._gone.append((f"{ACK}{command.key}".encode(), None))
        alert = self.alerts.get(command.key)
        if alert is None or alert.state in OVER:
            return
        alert.acknowledged = command.by or "somebody"
        if alert.state != SILENCED:
            alert.state = ACKNOWLEDGED
            alert.reason = f"by {alert.acknowledged}{f': {command.comment}' if command.comment else ''}"
        self._tell(alert, alert.state, now_ns)

    def withdrawn(self, key: str) -> None:
        """A silence or an expectation was taken back: its record with this key is gone."""
        if key.startswith(SILENCE):
            self.silences.pop(key.removeprefix(SILENCE), None)
        elif key.startswith(EXPECTED):
            self.expected.pop(key.removeprefix(EXPECTED), None)

    # Time

    def tick(self, now_ns: int) -> None:
        """Time has passed: alerts end, are silenced, join groups, are forgotten. Call it about every second."""
        self._end_quiet(now_ns)
        hosts = [alert for alert in self.alerts.values() if alert.scope == "host"]
        for alert in hosts:
            if ended := ending(alert, self.routing.timing, now_ns):
                if ended == EXPIRED:
                    alert.reason = "nothing was heard of it any more"
                self._end(alert, ended, now_ns)
            elif alert.state not in OVER:
                self._hush(alert, now_ns)
        self._group(hosts, now_ns)
        for alert in [alert for alert in self.alerts.values() if alert.scope != "host"]:
            self._follow_members(alert, now_ns)
        self._forget(now_ns)

    def _end_quiet(self, now_ns: int) -> None:
        for name in [name for name, each in self.silences.items() if each.ends_ns <= now_ns]:
            del self.silences[name]
            self._gone.append((f"{SILENCE}{name}".encode(), None))
        for name in [name for name, each in self.expected.items() if each.until_ns <= now_ns]:
            del self.expected[name]
            self._gone.append((f"{EXPECTED}{name}".encode(), None))

    def _quiet(self, alert: Held, now_ns: int) -> str:
        quiet: tuple[Quiet, ...] = (*self.silences.values(), *self.expected.values(), *self.routing.maintenance)
        return reason_for(alert, quiet, now_ns) if quiet else ""

    def _hush(self, alert: Held, now_ns: int) -> None:
        reason = self._quiet(alert, now_ns)
        if reason and alert.state != SILENCED:
            alert.state, alert.reason = SILENCED, reason
            self._tell(alert, SILENCED, now_ns)
        elif not reason and alert.state == SILENCED:
            alert.state, alert.reason, alert.born_ns = shown_state(alert), "", now_ns
            self._tell(alert, alert.state, now_ns)

    def _group(self, hosts: list[Held], now_ns: int) -> None:
        timing, rule = self.routing.timing, self.routing.grouping
        active = [alert for alert in hosts if alert.state in ACTIVE]
        newest_ns = now_ns - int(self.routing.breaker.window_s * SECOND_NS)
        bursting = [alert for alert in active if alert.born_ns >= newest_ns]
        known = max(self.routing.fleet, len(self.routing.labels.hosts), len(self.hosts))
        was_ns = self._breaker.until_ns
        began = len({alert.host for alert in bursting})
        trips, is_open = self.routing.breaker.trips(began, known), self._breaker.look(began, known, now_ns)
        self._pace_changed = self._pace_changed or was_ns != self._breaker.until_ns
        recent_ns = now_ns - int(rule.window_s * SECOND_NS)
        members: dict[str, dict[str, set[str]]] = {}
        for alert in active:
            if alert.born_ns >= recent_ns:
                for each in groups_of(alert, rule):
                    members.setdefault(each.key, {}).setdefault(alert.host, set()).add(alert.key)
        recent = Counter({key: len(those) for key, those in members.items()})
        firing = {
            key: set(held.members)
            for key, held in self.alerts.items()
            if held.scope != "host" and held.state not in OVER
        }
        for alert in active:
            if alert.parent is not None:
                if alert.parent not in firing:
                    alert.parent = None
                    self._dirty.add(alert.key)
                elif alert.key not in firing[alert.parent]:
                    self.alerts[alert.parent].members.append(alert.key)
            waiting = now_ns - alert.born_ns < timing.wait * SECOND_NS
            if alert.parent is not None or alert.known_to_anybody or (waiting and not trips):
                continue
            group: Group | None = (
                FLEET if trips or (is_open and FLEET.key in firing) else choose(alert, rule, recent, firing)
            )
            if group is None:
                continue
            fellows = members.get(group.key, {}).values()
            together = bursting if trips else [self.alerts[key] for keys in fellows for key in sorted(keys)]
            firing[group.key] = self._join(group, [alert, *together], now_ns)

    def _join(self, group: Group, alerts: list[Held], now_ns: int) -> set[str]:
        """Members of `group` when `alerts` have joined it."""
        parent = self.alerts.get(group.key)
        if parent is None:
            parent = self._hold(Held(group.key, group.scope, group=group.words))
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
                self._tell(alert, UPDATED, now_ns)
        parent.members = list(members)
        self._dirty.add(parent.key)
        if begins:
            self._sum_up(parent, now_ns)
            parent.told_hosts = len(parent.hosts)
            self._tell(parent, FIRING, now_ns)
        return set(members)

    def _follow_members(self, parent: Held, now_ns: int) -> None:
        if parent.state in OVER:
            return
        self._hush(parent, now_ns)
        self._sum_up(parent, now_ns)
        if not parent.hosts:
            self._end(parent, RESOLVED, now_ns)
        elif len(parent.hosts) >= 2 * parent.told_hosts:
            # Each doubling is news; everything in between is not.
            parent.told_hosts = len(parent.hosts)
            self._tell(parent, UPDATED, now_ns)

    def _sum_up(self, parent: Held, now_ns: int) -> None:
        members = [alert for key in parent.members if (alert := self.alerts.get(key)) is not None]
        active = [alert for alert in members if alert.state in ACTIVE]
        hosts = sorted({alert.host for alert in active})
        if len(active) != len(parent.members):
            parent.members = [alert.key for alert in active]
        if hosts != parent.hosts:
            parent.hosts, parent.most = hosts, max(parent.most, len(hosts))
            self._dirty.add(parent.key)
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

    def _forget(self, now_ns: int) -> None:
        oldest_ns = now_ns - int(self.routing.timing.forget * SECOND_NS)
        for alert in [alert for alert in self.alerts.values() if alert.state in OVER and alert.heard_ns < oldest_ns]:
            if any(alert.known_to(name) for name in self.routing.receivers):
                continue  # somebody still has to hear that it is over
            del self.alerts[alert.key]
            self._of_host[alert.host].remove(alert.key)
            for episode in alert.episodes:
                self._by_episode.pop(episode, None)
            self._dirty.discard(alert.key)
            self._gone.append((f"{ALERT}{alert.key}".encode(), None))
        if len(self._by_episode) > 100 + 2 * MOST_EPISODES * len(self.alerts):
            known = self.alerts.values()
            self._by_episode = {episode: alert.key for alert in known for episode in alert.episodes}

    # Telling

    def due(self, now_ns: int, free: Mapping[str, int]) -> list[Notification]:
        """What is to be handed to receivers now, at most `free` of each: all that they do not know, within limits."""
        return self._telling.due(self.alerts.values(), now_ns, free)

    def outcome(self, notification: Notification, outcome: Outcome, now_ns: int) -> None:
        """How a try went."""
        noted, deliveries = self._telling.outcome(notification, outcome, self.alerts, now_ns)
        self._dirty.update(noted)
        self._changes.deliveries += deliveries

    def given_back(self, notification: Notification) -> None:
        """It was not even tried."""
        self._telling.given_back(notification)

    def waiting(self, receiver: str, now_ns: int) -> int:
        """Alerts that the receiver should know of, and does not."""
        chosen = self.routing.receivers[receiver]
        return sum(bool(self._telling.wanted(alert, chosen, now_ns)) for alert in self.alerts.values())

    # Results

    def drain(self) -> Changes:
        """What changed since the last time; to be stored before anything of it is told."""
        changes, self._changes = self._changes, Changes()
        changes.state += [(f"{ALERT}{key}".encode(), self.alerts[key].encode()) for key in sorted(self._dirty)]
        changes.state += self._gone
        if self._known_changed:
            changes.state.append((KNOWN.encode(), json.dumps(sorted(self.hosts)).encode()))
        if self._pace_changed or self._telling.changed:
            pace = {"breaker": self._breaker.until_ns, "buckets": self._telling.pace()}
            changes.state.append((PACE.encode(), json.dumps(pace).encode()))
        self._dirty, self._gone = set(), []
        self._known_changed = self._pace_changed = self._telling.changed = False
        return changes

    def _alert_of(self, episode: Episode) -> Held | None:
        if (key := self._by_episode.get(episode.id)) is not None:
            return self.alerts.get(key)
        mine = [self.alerts[key] for key in self._of_host.get(episode.host, ())]
        same = make_key("host", episode.host, episode.subsystem or "unknown")
        # One that still fires goes on with the next episode of its kind; else the key decides.
        going = [
            alert
            for alert in mine
            if alert.state not in OVER
            and (alert.subsystem == episode.subsystem or (alert.cause is not None and alert.cause == episode.cause))
        ]
        return next(iter(going), self.alerts.get(same))

    def _hold(self, alert: Held) -> Held:
        self.alerts[alert.key] = alert
        self._of_host.setdefault(alert.host, []).append(alert.key)
        return alert

    def _end(self, alert: Held, state: str, now_ns: int) -> None:
        alert.state, alert.acknowledged = state, ""
        alert.resolved_ns = now_ns if alert.calm_ns is None else alert.calm_ns
        if state == RESOLVED:
            alert.reason = ""
        for name, told in alert.told.items():
            receiver = self.routing.receivers.get(name)
            if receiver is None or not receiver.resolved:
                alert.told[name] = Told(told.revision, RESOLVED, told.at_ns)
        self._tell(alert, state, now_ns)
        alert.parent = None

    def _tell(self, alert: Held, state: str, now_ns: int) -> None:
        """A new revision, recorded; who is concerned hears of it in time."""
        alert.revision = max(alert.revision + 1, now_ns // 1_000_000)
        alert.news = alert.revision
        alert.receivers = self.routing.receivers_of(alert)
        self._dirty.add(alert.key)
        self._changes.alerts.append(self._shown(alert, state, now_ns))

    def _shown(self, alert: Held, state: str, now_ns: int) -> Alert:
        id_ = short_id(alert.key)
        return Alert(
            key=alert.key,
            id=id_,
            revision=alert.revision,
            state=state,
            scope=alert.scope,
            severity=alert.severity,
            peak_severity=alert.peak,
            since_ns=alert.since_ns,
            updated_ns=alert.updated_ns,
            time_ns=now_ns,
            summary=summary(alert),
            group=alert.group,
            parent=alert.parent,
            host=alert.host,
            hosts=(alert.host,) if alert.host else tuple(alert.hosts[:MOST_NAMES]),
            host_count=1 if alert.host else len(alert.hosts),
            labels=dict(alert.labels),
            subsystem=alert.subsystem,
            cause=alert.cause,
            resolved_ns=alert.resolved_ns,
            episodes=tuple(alert.episodes),
            description=alert.description,
            evidence=tuple(alert.evidence),
            checks=tuple(alert.checks),
            remedy=alert.remedy,
            links={**links(self.routing.links, alert, id_), **self._more_links(alert.key, now_ns)},
            receivers=() if alert.parent else tuple(alert.receivers),
            reason=alert.reason,
        )


def _json(data: bytes | None, kind: type[Any]) -> Any:
    try:
        value = json.loads(data or b"null")
    except ValueError:
        value = None
    return value if isinstance(value, kind) else kind()
