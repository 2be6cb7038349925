"""An engine in simulated time, with receivers that take whatever they are told, or fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from schemas.records import Alert, Delivery, Episode, Evidence
from sinks.alerts.commands import ALERT, OWN, Command, decode_command
from sinks.alerts.engine import Engine
from sinks.alerts.held import decode_held
from sinks.alerts.notification import DELIVERED, Notification, Outcome
from sinks.alerts.routing import Routing
from sinks.alerts.routing_file import parse_routing

SECOND = 1_000_000_000
START = 1_790_000_000 * SECOND
Answer = Callable[[Notification], Outcome]


def delivered(_: Notification) -> Outcome:
    return Outcome(DELIVERED, 1.0, 200)


def episode(
    host: str,
    at: float,
    state: str = "opened",
    *,
    number: int = 0,
    revision: int = 0,
    subsystem: str = "gpu",
    cause: str | None = "thermal_throttling",
    severity: float = 5.0,
) -> Episode:
    """A state of episode `number` of `host`; its last window ends `at` seconds after START."""
    now = START + int(at * SECOND)
    return Episode(
        id=f"{host}-{number}",
        revision=revision,
        host=host,
        state=state,
        start_ns=now - 3 * SECOND,
        opened_ns=now,
        updated_ns=now,
        closed_ns=now if state == "closed" else None,
        subsystem=subsystem,
        shares={subsystem: 1.0},
        windows=2,
        votes={},
        severity=severity,
        peak_severity=severity,
        peak_ns=now,
        model_version=1,
        cause=cause,
        explanation=f"{host}: {subsystem} is strange",
        evidence=(
            Evidence("gpu.temperature", "gpu", "gpu3", "level", "C", 80.0, 60.0, 9.0, 92.0, 60.0, "up", now),
            Evidence("gpu.clock.sm", "gpu", "", "level", "MHz", 900.0, 1700.0, 8.0),
        ),
        checks=("nvidia-smi -q -d PERFORMANCE",),
        remedy="Look at the fans",
    )


class World:
    """Drives an engine second by second, and keeps what came out of it."""

    def __init__(self, routing: str | Routing | None = None, answer: Answer = delivered, free: int = 16) -> None:
        self.routing = parse_routing(routing) if isinstance(routing, str) else routing or Routing()
        self.answer = answer
        self.free = dict.fromkeys(self.routing.receivers, free)
        self.at = 0.0
        self.sent: dict[str, list[tuple[float, Notification]]] = defaultdict(list)
        self.alerts: list[Alert] = []
        self.deliveries: list[Delivery] = []
        self.state: dict[bytes, bytes] = {}
        self.engine = Engine(self.routing, lambda: 0.5)

    @property
    def now(self) -> int:
        return START + int(self.at * SECOND)

    def feed(self, *episodes: Episode) -> None:
        for each in episodes:
            self.engine.episode(each, self.now)

    def ask(self, command: Command) -> None:
        self.engine.command(command, self.now)
        self.turn()

    def turn(self) -> None:
        self.engine.tick(self.now)
        self._keep()
        for notification in self.engine.due(self.now, self.free):
            self._keep()
            self.sent[notification.receiver].append((self.at, notification))
            self.engine.outcome(notification, self.answer(notification), self.now)
        self._keep()

    def run(self, seconds: float, step: float = 1.0) -> None:
        until = self.at + seconds
        while self.at < until:
            self.at += step
            self.turn()

    def die_and_return(self) -> None:
        """A new engine from what the old one stored."""
        self.engine = Engine(self.routing, lambda: 0.5)
        alerts = [decode_held(value) for key, value in self.state.items() if key.decode().startswith(ALERT)]
        own = {key.decode(): value for key, value in self.state.items() if key.decode().startswith(OWN)}
        commands = [
            decode_command(key.decode(), value)
            for key, value in self.state.items()
            if not key.decode().startswith((ALERT, OWN))
        ]
        self.engine.restore(alerts, commands, own, self.now)

    def told(self, receiver: str = "log") -> list[tuple[str, str]]:
        """State and key of everything that a receiver was told, in order."""
        return [(alert.state, alert.key) for _, each in self.sent[receiver] for alert in each.alerts]

    def states(self, key: str) -> list[str]:
        return [alert.state for alert in self.alerts if alert.key == key]

    def _keep(self) -> None:
        changes = self.engine.drain()
        self.alerts += changes.alerts
        self.deliveries += changes.deliveries
        for key, value in changes.state:
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value


def revised(one: Episode, **changes: object) -> Episode:
    return replace(one, revision=one.revision + 1, **changes)  # type: ignore[arg-type]
