"""The engine: facts and time in, alerts and what to tell out. Pure: no clock, no I/O, the same for the same input.

Times are ns since 1970-01-01 UTC. `now_ns` is the service's clock and must not go back by more than a moment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from schemas.records import Episode
from sinks.alerts.commands import ACK, EXPECTED, OWN, SILENCE, Ack, Command
from sinks.alerts.duration import SECOND_NS, in_words
from sinks.alerts.groups import Groups
from sinks.alerts.held import ACKNOWLEDGED, EXPIRED, FIRING, OVER, SILENCED, UPDATED, Held, make_key
from sinks.alerts.ledger import Changes, Ledger
from sinks.alerts.lifecycle import begin, close, ending, is_fresh, shown_state, take
from sinks.alerts.notification import Notification, Outcome
from sinks.alerts.routing import Routing
from sinks.alerts.silences import Expected, Quiet, Silence, reason_for
from sinks.alerts.telling import Telling

KNOWN: Final = f"{OWN}hosts"
PACE: Final = f"{OWN}pace"


class Engine:
    """All alerts of the fleet.

    routing     who is told what
    jitter      numbers from 0 to 1, for pauses between tries
    more_links  more URLs of an alert, by name: (key, now_ns)
    """

    def __init__(
        self,
        routing: Routing,
        jitter: Callable[[], float],
        more_links: Callable[[str, int], Mapping[str, str]] = lambda _key, _now_ns: {},
    ) -> None:
        self.routing = routing
        self.silences: dict[str, Silence] = {}
        self.expected: dict[str, Expected] = {}
        self.hosts: set[str] = set()
        self._ledger = Ledger(routing, more_links)
        self._groups = Groups(routing, self._ledger)
        self._telling = Telling(routing, jitter, self._ledger.show)
        self._known_changed = False

    @property
    def alerts(self) -> Mapping[str, Held]:
        """All alerts by their keys."""
        return self._ledger.alerts

    # What was known before

    def restore(
        self, alerts: Iterable[Held], commands: Iterable[Command], own: Mapping[str, bytes], now_ns: int
    ) -> None:
        """Go on where another instance stopped. Its alerts are not given up for the time that nobody listened."""
        for alert in alerts:
            alert.heard_ns = max(alert.heard_ns, now_ns) if alert.state not in OVER else alert.heard_ns
            self._ledger.hold(alert)
        for command in commands:
            if isinstance(command, Silence):
                self.silences[command.id] = command
            elif isinstance(command, Expected):
                self.expected[command.id] = command
            else:
                self._acknowledge(command, now_ns)
        self.hosts |= set(_json(own.get(KNOWN), list))
        pace = _json(own.get(PACE), dict)
        self._groups.breaker.until_ns = int(pace.get("breaker", 0))
        self._telling.keep_pace(pace.get("buckets", {}))

    # Facts

    def episode(self, episode: Episode, now_ns: int) -> None:
        """A state of an episode was read."""
        if episode.host not in self.hosts:
            self.hosts.add(episode.host)
            self._known_changed = True
        alert = self._ledger.of_episode(episode)
        if alert is not None and alert.episodes.get(episode.id, -1) >= episode.revision:
            return  # read again
        if episode.state == "closed":
            if alert is not None and episode.id in alert.episodes:
                close(alert, episode, now_ns)
                self._ledger.note(alert)
            return
        fresh = is_fresh(episode, self.routing.timing, now_ns)
        if alert is None:
            key = make_key("host", episode.host, episode.subsystem or "unknown")
            alert = self._ledger.hold(Held(key, "host", episode.host, labels=self.routing.labels.of(episode.host)))
        self._ledger.bind(episode.id, alert)
        if alert.state not in OVER:
            if take(alert, episode, self.routing.severity, now_ns):
                self._ledger.tell(alert, UPDATED, now_ns)
        elif fresh:
            alert.labels = self.routing.labels.of(episode.host)
            begin(alert, episode, self.routing.severity, now_ns)
            alert.reason = self._quiet(alert, now_ns)
            alert.state = SILENCED if alert.reason else FIRING
            self._ledger.tell(alert, alert.state, now_ns)
        elif alert.state == EXPIRED and episode.id in alert.open:
            take(alert, episode, self.routing.severity, now_ns)
        else:
            begin(alert, episode, self.routing.severity, now_ns)
            age = in_words((now_ns - episode.updated_ns) / SECOND_NS)
            alert.reason = f"the news was {age} old: from a backlog or a replay"
            self._ledger.end(alert, EXPIRED, now_ns)

    def command(self, command: Command, now_ns: int) -> None:
        """A person asked for something."""
        if isinstance(command, Silence):
            self.silences[command.id] = command
        elif isinstance(command, Expected):
            self.expected[command.id] = command
        else:
            self._acknowledge(command, now_ns)

    def _acknowledge(self, command: Ack, now_ns: int) -> None:
        self._ledger.withdraw(f"{ACK}{command.key}")
        alert = self.alerts.get(command.key)
        if alert is None or alert.state in OVER:
            return
        alert.acknowledged = command.by or "somebody"
        if alert.state != SILENCED:
            alert.state = ACKNOWLEDGED
            alert.reason = f"by {alert.acknowledged}{f': {command.comment}' if command.comment else ''}"
        self._ledger.tell(alert, alert.state, now_ns)

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
                self._ledger.end(alert, ended, now_ns)
            elif alert.state not in OVER:
                self._hush(alert, now_ns)
        known = max(self.routing.fleet, len(self.routing.labels.hosts), len(self.hosts))
        self._groups.gather(hosts, known, now_ns)
        for alert in [alert for alert in self.alerts.values() if alert.scope != "host" and alert.state not in OVER]:
            self._hush(alert, now_ns)
            self._groups.follow(alert, now_ns)
        self._ledger.forget(now_ns)

    def _end_quiet(self, now_ns: int) -> None:
        for name in [name for name, each in self.silences.items() if each.ends_ns <= now_ns]:
            del self.silences[name]
            self._ledger.withdraw(f"{SILENCE}{name}")
        for name in [name for name, each in self.expected.items() if each.until_ns <= now_ns]:
            del self.expected[name]
            self._ledger.withdraw(f"{EXPECTED}{name}")

    def _quiet(self, alert: Held, now_ns: int) -> str:
        quiet: tuple[Quiet, ...] = (*self.silences.values(), *self.expected.values(), *self.routing.maintenance)
        return reason_for(alert, quiet, now_ns) if quiet else ""

    def _hush(self, alert: Held, now_ns: int) -> None:
        reason = self._quiet(alert, now_ns)
        if reason and alert.state != SILENCED:
            alert.state, alert.reason = SILENCED, reason
            self._ledger.tell(alert, SILENCED, now_ns)
        elif not reason and alert.state == SILENCED:
            alert.state, alert.reason, alert.born_ns = shown_state(alert), "", now_ns
            self._ledger.tell(alert, alert.state, now_ns)

    # Telling

    def due(self, now_ns: int, free: Mapping[str, int]) -> list[Notification]:
        """What is to be handed to receivers now, at most `free` of each: all that they do not know, within limits."""
        return self._telling.due(self.alerts.values(), now_ns, free)

    def outcome(self, notification: Notification, outcome: Outcome, now_ns: int) -> None:
        """How a try went."""
        noted, deliveries = self._telling.outcome(notification, outcome, self.alerts, now_ns)
        self._ledger.told(noted, deliveries)

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
        changes = self._ledger.drain()
        if self._known_changed:
            changes.state.append((KNOWN.encode(), json.dumps(sorted(self.hosts)).encode()))
        if self._groups.changed or self._telling.changed:
            pace = {"breaker": self._groups.breaker.until_ns, "buckets": self._telling.pace()}
            changes.state.append((PACE.encode(), json.dumps(pace).encode()))
        self._known_changed = self._groups.changed = self._telling.changed = False
        return changes


def _json(data: bytes | None, kind: type[Any]) -> Any:
    try:
        value = json.loads(data or b"null")
    except ValueError:
        value = None
    return value if isinstance(value, kind) else kind()
