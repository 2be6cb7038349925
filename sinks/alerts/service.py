"""The loop: episodes and commands in, what changed stored, then what is due told."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sinks.alerts.channels.base import Channel
from sinks.alerts.commands import ACK, ALERT, EXPECTED, OWN, SILENCE, Command, decode_command
from sinks.alerts.duration import SECOND_NS
from sinks.alerts.engine import Engine
from sinks.alerts.held import Held, decode_held
from sinks.alerts.kafka import Station
from sinks.alerts.notification import DELIVERED, Notification, Outcome
from sinks.alerts.workers import Workers

LOG: Final = logging.getLogger(__name__)
POLL_S: Final = 0.1
BUSY_POLL_S: Final = 0.01
STAND_BY_S: Final = 0.5
TICK_S: Final = 1.0
CATCH_UP_S: Final = 30.0
LAST_S: Final = 5.0
COMMANDS: Final = (ACK, SILENCE, EXPECTED)


@dataclass(slots=True)
class Status:
    """What the service says of itself; written by its loop, read by the endpoint.

    tries     by receiver and status; alerts: by state; waiting: by receiver, alerts it should know of and does not
    turned_s  when the loop turned last, by a steady clock
    """

    owner: bool = False
    takeovers: int = 0
    episodes: int = 0
    unreadable: int = 0
    transitions: Counter[str] = field(default_factory=Counter)
    tries: Counter[tuple[str, str]] = field(default_factory=Counter)
    alerts: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    turned_s: float = 0.0


class Service:
    """One instance. `new_engine` makes an engine without knowledge; clock is steady, in s; now_ns is the time."""

    def __init__(
        self,
        station: Station,
        new_engine: Callable[[], Engine],
        channels: Mapping[str, Channel],
        *,
        stop: threading.Event,
        beat: Callable[[], None] = lambda: None,
        now_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.status = Status(turned_s=clock())
        self._station = station
        self._new_engine = new_engine
        self._channels = channels
        self._stop = stop
        self._beat = beat
        self._now_ns = now_ns
        self._clock = clock

    def run(self) -> None:
        """Stand by until the alerts are ours, then work until `stop` is set. Raises StationError."""
        LOG.info("standing by")
        while not self._stop.is_set():
            self._turned()
            if self._station.stand_by(STAND_BY_S):
                self._own()

    def _own(self) -> None:
        engine = self._new_engine()
        start_ns = self._now_ns() - int(engine.routing.timing.max_age * SECOND_NS)
        self._restore(engine, self._station.begin(start_ns))
        self.status.owner = True
        self.status.takeovers += 1
        LOG.info("owner of %d alerts and %d silences", len(engine.alerts), len(engine.silences))
        workers = Workers(self._channels)
        began, ticked, behind = self._clock(), float("-inf"), True
        try:
            while not self._stop.is_set() and self._station.owned:
                self._turned()
                if self._read(engine, BUSY_POLL_S if workers.busy else POLL_S):
                    ticked = float("-inf")  # what people ask for counts at once
                self._outcomes(engine, workers)
                # What is in a backlog comes first: an alert whose end was not read yet must not be told.
                if behind and not self._station.caught_up and self._clock() - began < CATCH_UP_S:
                    self._store(engine)
                    continue
                if behind:
                    LOG.info("all episodes are read: going on as they come")
                    behind = False
                if self._clock() - ticked >= TICK_S:
                    engine.tick(self._now_ns())
                    ticked = self._clock()
                    self._report(engine)
                self._store(engine)
                for notification in engine.due(self._now_ns(), workers.free()):
                    if not workers.give(notification):
                        engine.given_back(notification)
        finally:
            workers.stop(LAST_S)
            self.status.owner = False
        if self._station.owned:
            # What was delivered in the last moment need not be told again by the next owner.
            self._outcomes(engine, workers)
            self._store(engine)
        else:
            LOG.warning("the alerts were given to another instance, or Kafka was away: standing by")

    def _restore(self, engine: Engine, state: Mapping[str, bytes]) -> None:
        alerts: list[Held] = []
        commands: list[Command] = []
        own: dict[str, bytes] = {}
        for key, value in state.items():
            try:
                if key.startswith(ALERT):
                    alerts.append(decode_held(value))
                elif key.startswith(COMMANDS):
                    commands.append(decode_command(key, value))
                elif key.startswith(OWN):
                    own[key] = value
            except ValueError as error:
                LOG.warning("state %s cannot be read and is passed over: %s", key, error)
        engine.restore(alerts, commands, own, self._now_ns())

    def _read(self, engine: Engine, wait_s: float) -> bool:
        """Read what there is; whether there was a command."""
        obeyed = False
        for key, value in self._station.commands():
            if not key.startswith(COMMANDS):
                continue
            obeyed = True
            if value is None:
                engine.withdrawn(key)
                continue
            try:
                engine.command(decode_command(key, value), self._now_ns())
            except ValueError as error:
                LOG.warning("a command cannot be obeyed: %s", error)
        for episode in self._station.episodes(wait_s):
            engine.episode(episode, self._now_ns())
            self.status.episodes += 1
        return obeyed

    def _outcomes(self, engine: Engine, workers: Workers) -> None:
        for notification, outcome in workers.outcomes():
            self.status.tries[notification.receiver, outcome.status] += 1
            if outcome.status != DELIVERED:
                self._complain(notification, outcome)
            engine.outcome(notification, outcome, self._now_ns())

    def _complain(self, notification: Notification, outcome: Outcome) -> None:
        # Each try is in reveal.deliveries; the log has the first, and then fewer and fewer.
        if notification.attempt & (notification.attempt - 1) == 0:
            LOG.warning(
                "%s: %s (try %d): %s", notification.receiver, outcome.status, notification.attempt, outcome.error
            )

    def _store(self, engine: Engine) -> None:
        changes = engine.drain()
        for alert in changes.alerts:
            self.status.transitions[alert.state] += 1
        self._station.commit(changes)

    def _report(self, engine: Engine) -> None:
        now_ns = self._now_ns()
        self.status.alerts = Counter(alert.state for alert in engine.alerts.values())
        self.status.waiting = {name: engine.waiting(name, now_ns) for name in engine.routing.receivers}
        self.status.unreadable = self._station.unreadable

    def _turned(self) -> None:
        self._beat()
        self.status.turned_s = self._clock()
