"""All alerts that are held, and what of them is to be stored. Pure. Times are ns since 1970-01-01 UTC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from schemas.records import Alert, Delivery, Episode
from sinks.alerts.commands import ALERT, Message
from sinks.alerts.duration import SECOND_NS
from sinks.alerts.held import MOST_EPISODES, OVER, RESOLVED, Held, Told, make_key, short_id
from sinks.alerts.routing import Routing
from sinks.alerts.telling import MOST_NAMES
from sinks.alerts.text import links, summary


@dataclass(slots=True)
class Changes:
    """What a turn brought: states of alerts, tries to tell, and records of the state topic."""

    alerts: list[Alert] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    state: list[Message] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.alerts or self.deliveries or self.state)


class Ledger:
    """Alerts by their keys, found by host and by episode too. Whoever changes one says so: `note` of what nobody is
    told, `tell` and `end` of what is a new revision.

    more_links  more URLs of an alert, by name: (key, now_ns)
    """

    def __init__(self, routing: Routing, more_links: Callable[[str, int], Mapping[str, str]]) -> None:
        self.alerts: dict[str, Held] = {}
        self._routing = routing
        self._more_links = more_links
        self._by_episode: dict[str, str] = {}
        self._of_host: dict[str, list[str]] = {}
        self._dirty: set[str] = set()
        self._gone: list[Message] = []
        self._changes = Changes()

    def hold(self, alert: Held) -> Held:
        """Hold one more, and what is known of its episodes."""
        self.alerts[alert.key] = alert
        self._of_host.setdefault(alert.host, []).append(alert.key)
        for episode in alert.episodes:
            self._by_episode[episode] = alert.key
        return alert

    def bind(self, episode: str, alert: Held) -> None:
        """From now on this episode is of `alert`."""
        self._by_episode[episode] = alert.key
        self.note(alert)

    def of_episode(self, episode: Episode) -> Held | None:
        """The alert that an episode is of, or goes on with."""
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

    def note(self, alert: Held) -> None:
        """It is to be stored."""
        self._dirty.add(alert.key)

    def withdraw(self, key: str) -> None:
        """The record with this key is of no use any more."""
        self._gone.append((key.encode(), None))

    def told(self, keys: Iterable[str], deliveries: Iterable[Delivery]) -> None:
        """Receivers know more of the alerts with these keys, by these tries."""
        self._dirty.update(keys)
        self._changes.deliveries += deliveries

    def tell(self, alert: Held, state: str, now_ns: int) -> None:
        """A new revision, recorded; who is concerned hears of it in time."""
        alert.revision = max(alert.revision + 1, now_ns // 1_000_000)
        alert.news = alert.revision
        alert.receivers = self._routing.receivers_of(alert)
        self.note(alert)
        self._changes.alerts.append(self.show(alert, state, now_ns))

    def end(self, alert: Held, state: str, now_ns: int) -> None:
        """It is over."""
        alert.state, alert.acknowledged = state, ""
        alert.resolved_ns = now_ns if alert.calm_ns is None else alert.calm_ns
        if state == RESOLVED:
            alert.reason = ""
        for name, told in alert.told.items():
            receiver = self._routing.receivers.get(name)
            if receiver is None or not receiver.resolved:
                alert.told[name] = Told(told.revision, RESOLVED, told.at_ns)
        self.tell(alert, state, now_ns)
        alert.parent = None

    def show(self, alert: Held, state: str, now_ns: int) -> Alert:
        """The alert as it is told."""
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
            links={**links(self._routing.links, alert, id_), **self._more_links(alert.key, now_ns)},
            receivers=() if alert.parent else tuple(alert.receivers),
            reason=alert.reason,
        )

    def forget(self, now_ns: int) -> None:
        """Let go of what is over for long, unless somebody still has to hear of it."""
        oldest_ns = now_ns - int(self._routing.timing.forget * SECOND_NS)
        for alert in [alert for alert in self.alerts.values() if alert.state in OVER and alert.heard_ns < oldest_ns]:
            if any(alert.known_to(name) for name in self._routing.receivers):
                continue  # somebody still has to hear that it is over
            del self.alerts[alert.key]
            self._of_host[alert.host].remove(alert.key)
            for episode in alert.episodes:
                self._by_episode.pop(episode, None)
            self._dirty.discard(alert.key)
            self.withdraw(f"{ALERT}{alert.key}")
        if len(self._by_episode) > 100 + 2 * MOST_EPISODES * len(self.alerts):
            known = self.alerts.values()
            self._by_episode = {episode: alert.key for alert in known for episode in alert.episodes}

    def drain(self) -> Changes:
        """What changed since the last time."""
        changes, self._changes = self._changes, Changes()
        changes.state += [(f"{ALERT}{key}".encode(), self.alerts[key].encode()) for key in sorted(self._dirty)]
        changes.state += self._gone
        self._dirty, self._gone = set(), []
        return changes
