"""The agent as a whole: sampling, looking out for events, publishing, and telling how it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from pages.server import Server
from producers.agent import Agent
from producers.attention import Attention
from producers.clock import Clock
from producers.endpoint import site
from producers.namespaces import container_notes
from producers.notices import Notices
from producers.priority import Priority, as_usual
from producers.publisher import Episodes, Publisher
from producers.status import Status
from producers.vitals import Vitals
from producers.watch import new_watch
from producers.wiring import new_frame
from schemas.records import Telemetry
from schemas.settings import AgentSettings

log = logging.getLogger(__name__)

FLUSH_S = 5.0


class Service:
    """All parts of an agent over this machine, wired. Make and run it in the main thread.

    client  properties of librdkafka that say where Kafka is
    beat    called after every batch: the sampling loop is at work

    Raises SettingsError for settings that do not fit the machine.
    """

    def __init__(
        self, settings: AgentSettings, client: Mapping[str, str], clock: Clock, beat: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._client = client
        self._beat = beat
        self._notices, self._vitals = Notices(), Vitals()
        self._priority = Priority()
        if settings.realtime:
            # First of all: sampling waits for locks that the threads of the publisher hold.
            self._priority.go_first()
        self._publisher = Publisher(
            client,
            settings.queue_mb,
            spool=settings.spool,
            spool_mb=settings.spool_mb,
            notices=self._notices,
            vitals=self._vitals,
        )
        with as_usual():  # looking around takes long
            self._frame = new_frame(
                settings, clock, notices=self._notices, vitals=self._vitals, lost=self._publisher.lost
            )
            self._who = self._frame.identity
            self._attention = Attention(self._who.host)
            self._watch = new_watch(self._frame.host, clock)
        self._agent = Agent(self._frame, clock, self._emit, attention=self._attention, give_way=self._priority.give_way)
        self._latest: Sequence[Telemetry] = ()
        self._notes = container_notes(settings.procfs)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Sample and publish until `stopped` says so; then deliver what is left, or leave it on disk."""
        for note in self._notes:
            log.warning(note)
        server = self._serve()
        episodes = None
        if self._settings.adaptive:
            episodes = Episodes(self._client, self._who.host, self._attention.take)
        self._watch.start()
        try:
            self._agent.run(stopped)
        finally:
            self._watch.close()
            if episodes is not None:
                episodes.close()
            if server is not None:
                server.close()
            self._frame.close()
            self._say_goodbye()

    def status(self) -> Status:
        """How it is now."""
        counts = self._publisher.counts
        return Status(
            host=self._who.host,
            version=self._who.agent,
            since_sample_s=self._agent.since_sample_s(),
            stalled=self._agent.stalled,
            samples=self._agent.samples,
            missed=self._frame.missed,
            batches=self._agent.batches,
            delivered=counts.delivered,
            failed=counts.failed,
            waiting=self._publisher.in_memory(),
            reachable=self._publisher.reachable,
            vitals=self._vitals,
            errors=self._frame.errors(),
            costs=self._frame.costs(),
            problems=tuple(self._frame.problems()),
            notes=self._remarks(),
        )

    def _remarks(self) -> tuple[str, ...]:
        log_problem = (f"kernel log: {self._watch.problem}",) if self._watch.problem else ()
        refused = (self._priority.refused,) if self._priority.refused else ()
        return (*self._notes, *log_problem, *refused, *self._frame.notes())

    def _serve(self) -> Server | None:
        settings = self._settings
        if not settings.http_port:
            return None
        try:
            server = Server(site(self.status, lambda: self._latest), settings.http_host, settings.http_port)
        except OSError as error:
            # Another agent, or whoever has the port: telemetry matters more than this page.
            log.warning(
                "nothing is served on %s:%d: %s; choose another REVEAL_AGENT_HTTP_PORT, or 0 for none",
                settings.http_host,
                settings.http_port,
                error.strerror or error,
            )
            return None
        log.info("serving /metrics, /telemetry, /healthz and /readyz on %s:%d", settings.http_host, server.port)
        return server

    def _emit(self, records: Sequence[Telemetry]) -> None:
        for record in records:
            self._publisher.publish(record)
        self._latest = records
        self._watch.look()
        for event in self._notices.drain(self._who.host, self._who.session, self._who.agent):
            self._publisher.publish(event)
        self._publisher.poll()
        self._beat()

    def _say_goodbye(self) -> None:
        left = self._publisher.close(FLUSH_S)
        counts = self._publisher.counts
        on_disk = f"{left.on_disk} messages wait in {self._settings.spool}"
        log.info(
            "stopped: %d samples, %d missed; %d messages delivered, %d failed, %d dropped, %d left in memory; %s",
            self._agent.samples,
            self._frame.missed,
            counts.delivered,
            counts.failed,
            counts.dropped,
            left.in_memory,
            on_disk if left.on_disk else "nothing is left in the spool",
        )
