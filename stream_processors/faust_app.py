"""The worker: the pipeline under Faust.

Nothing is lost and nothing appears twice, whatever is killed, because of the order of things. A batch of events is
worked through; its verdicts, episodes, rows, models and dead letters are delivered; then the progress of its hosts;
only then are events acknowledged: those that the progress covers, and in the order of their offsets, since Faust may
commit past an event that is not acknowledged when it is the only one. A worker that takes over reads the state from
the models topic, then the events that were not acknowledged: what the progress covers is passed over, and what it
does not cover is worked out again, with the same results.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from schemas.codec import Rejected, decode, decode_telemetry, encode
from schemas.records import DeadLetter, Event, StateRecord, Telemetry, Verdict, state_key
from schemas.settings import KafkaSettings, PipelineSettings, WorkerSettings
from schemas.topics import ANOMALIES, CONTROL, DEAD, EVENTS, MODELS, TELEMETRY, VERDICTS
from stream_processors.control import Command, read_command
from stream_processors.delivery import rounds
from stream_processors.fitting import Background, Fit
from stream_processors.host import Forgotten, Result
from stream_processors.intake import Plain, application, batches
from stream_processors.kafka import KafkaException, Outgoing, Results, read_states, topic_partitions
from stream_processors.pipeline import Pipeline
from stream_processors.reading import Reading
from stream_processors.seconds import SECOND_NS

log = logging.getLogger("reveal.worker")

SERVICE: Final = "worker"
INPUTS: Final = (*TELEMETRY.values(), EVENTS, CONTROL)
TOPICS: Final = frozenset({*INPUTS, MODELS, VERDICTS, ANOMALIES, DEAD})
DEAD_VALUE_BYTES: Final = 65_536
DEAD_A_SECOND: Final = 50.0
"""So many dead letters a second are written; more are only counted and logged, so that a broken producer cannot fill
the topic.
"""
STATISTICS_EVERY_S: Final = 60.0


@dataclass(slots=True)
class Pending:
    """A message that waits to be acknowledged, until its host's progress covers it; at once where there is no host."""

    event: Any
    host: str = ""
    epoch: int = 0
    second: int = 0


class Worker:
    """One worker of the group: a Faust application around a Pipeline."""

    def __init__(self, kafka: KafkaSettings, worker: WorkerSettings, pipeline: PipelineSettings) -> None:
        self.kafka = kafka
        self.settings = worker
        self._fits = ThreadPoolExecutor(1, "fit")
        self.pipeline = Pipeline(pipeline, fitter=Background(self._fits))
        self.counts: Counter[str] = Counter()
        self.results = Results(kafka, self._waiting)
        self.app = application(kafka, worker)
        self._alive: Callable[[], None] = _nothing
        self._lock = asyncio.Lock()
        self._restored: set[int] = set()
        self._partition_of: dict[str, int] = {}
        self._readings: dict[int, Reading] = {}
        self._pending: defaultdict[Any, deque[Pending]] = defaultdict(deque)
        self._dead_allowance = DEAD_A_SECOND
        self._dead_checked = time.monotonic()
        self._told = time.monotonic()
        inputs = self.app.topic(*INPUTS, schema=Plain())
        self.app.agent(inputs, name="reveal.telemetry", concurrency=1)(self._process)
        self.app.timer(1.0, name="reveal.tick")(self._tick)
        self.app.on_partitions_revoked.connect(self._revoked)

    async def run(self, stop: asyncio.Event, alive: Callable[[], None]) -> bool:
        """Work until `stop` is set or the application ends; `alive` is called while all is well. Says whether it
        ended as asked.
        """
        self._alive = alive
        if not await self._reach(stop):
            return True
        try:
            await self.app.start()
        except Exception as error:
            # Faust cannot start a second time; whoever runs us starts us again.
            log.error("could not join the group: %s: %s", type(error).__name__, error)
            return False
        stopping = asyncio.ensure_future(stop.wait())
        ended = asyncio.ensure_future(self.app.wait_until_stopped())
        await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        crashed = not stop.is_set()
        if crashed:
            log.error("the application stopped by itself: %r", self.app.crash_reason)
        for task in (stopping, ended):
            task.cancel()
        await self.app.stop()
        self._fits.shutdown(wait=False, cancel_futures=True)
        return not crashed

    async def _reach(self, stop: asyncio.Event) -> bool:
        """Wait until Kafka answers and the topics are there; False when asked to stop meanwhile."""
        wait_s = 0.5
        while not stop.is_set():
            try:
                counts = await asyncio.to_thread(topic_partitions, self.kafka)
                counts = {name: count for name, count in counts.items() if name in TOPICS}
                missing = sorted(TOPICS - set(counts))
                if missing:
                    log.warning("waiting for topics: %s; `reveal topics` makes them", ", ".join(missing))
                elif len(set(counts.values())) > 1:
                    log.error(
                        "the topics must have one number of partitions, so that a host is in one place: %s", counts
                    )
                else:
                    return True
            except KafkaException as error:
                log.warning("waiting for Kafka at %s: %s", self.kafka.bootstrap, error.args[0])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait_s)
            wait_s = min(2 * wait_s, 10.0)
        return False

    async def _process(self, stream: Any) -> None:
        async for events in batches(stream, self.settings.batch, self.settings.batch_within_s):
            async with self._lock:
                await self._work(events)

    async def _work(self, events: Iterable[Any]) -> None:
        # Events that were fetched before a rebalance come again to whoever has their partition now.
        if not self.app.flow_control.is_active():
            return
        mine, generation = self.app.consumer.assignment(), self.app.consumer_generation_id
        events = [e for e in events if e.message.tp in mine and e.message.generation_id == generation]
        missing = {event.message.partition for event in events} - self._restored
        await asyncio.gather(*(self._restore(partition) for partition in missing))
        results: list[Result | DeadLetter] = []
        commands: list[tuple[Any, Command]] = []
        read_to = self._read_to(events)
        for event in events:
            message, sent = event.message, _sent(event.message)
            self._readings[message.partition].read(message.topic, message.offset, sent)
            pending = Pending(event)
            self._pending[message.tp].append(pending)
            try:
                record = _record(message)
                if message.key != record.host.encode():
                    raise Rejected("wrong-key", f"the key is {message.key!r}, the host {record.host!r}")
                self._partition_of[record.host] = message.partition
                if isinstance(record, Command):
                    commands.append((message, record))
                    continue
                if isinstance(record, Event):
                    # What is kept of it is delivered with these results, so it needs not wait for progress.
                    results += self.pipeline.feed_event(record, sent)
                    continue
                second = _last_second(record)
                if (fit := self.pipeline.waits_for(record.host, second)) is not None:
                    await self._fitted(fit)
                results += self.pipeline.feed(record, time.time(), sent, read_to[message.partition])
            except Rejected as error:
                results += self._bury(message, error.reason, error.detail)
                continue
            except Exception:
                # A fault of ours: the message is kept with the trace, and the others go on.
                log.exception("cannot process %s/%d/%d", message.topic, message.partition, message.offset)
                results += self._bury(message, "pipeline-error", traceback.format_exc(limit=-5))
                continue
            pending.host, pending.second = record.host, second
            pending.epoch = self.pipeline.epoch(record.host)
            if record.flaws:
                results += self._bury(message, "not-finite", "; ".join(record.flaws))
        await self._deliver(results)
        # Last, so that no verdict is told before the progress that has what was asked.
        await self._deliver([result for message, command in commands for result in self._obey(message, command)])
        self._acknowledge()

    def _read_to(self, events: Iterable[Any]) -> Mapping[int, float]:
        """By partition the time before which everything that was sent is read, but for `events`, which are at hand."""
        at_hand: dict[int, dict[str, float]] = {}
        for event in events:
            message = event.message
            at_hand.setdefault(message.partition, {}).setdefault(message.topic, _sent(message))
        return {partition: self._upto(partition, firsts) for partition, firsts in at_hand.items()}

    def _upto(self, partition: int, at_hand: Mapping[str, float]) -> float:
        consumer: Any = self.app.consumer
        return self._readings[partition].upto(at_hand, consumer.ends(TELEMETRY.values(), partition), time.time())

    async def _fitted(self, fit: Fit) -> None:
        """Wait for `fit`, which is bounded. What it raises is told when the model is taken up."""
        if not fit.done():
            self.counts["waits for a fit"] += 1
            with contextlib.suppress(Exception):
                await asyncio.to_thread(fit.result)

    def _obey(self, message: Any, command: Command) -> list[Result | DeadLetter]:
        try:
            told = self.pipeline.obey(command.host, command.pinned, command.model)
        except Rejected as error:
            return [*self._bury(message, error.reason, error.detail)]
        log.info("%s", command.words)
        return [*told]

    async def _tick(self) -> None:
        async with self._lock:
            try:
                results = self.pipeline.tick(time.time(), lambda host: self._upto(self._partition_of[host], {}))
            except Exception:
                log.exception("cannot look after silent hosts")
                results = []
            if results:
                await self._deliver(results)
                self._acknowledge()
        self._alive()
        now = time.monotonic()
        if now - self._told >= STATISTICS_EVERY_S:
            self._told = now
            counts = self.pipeline.counts + self.counts
            log.info("%d hosts; %s", len(self.pipeline.hosts), ", ".join(f"{k} {v}" for k, v in sorted(counts.items())))

    async def _deliver(self, results: Iterable[Result | DeadLetter]) -> None:
        for each in rounds(results):
            for messages in (each.first, each.progress.values()):
                outgoing = [entry for result in messages for entry in self._outgoing(result)]
                if outgoing:
                    await self.results.deliver(outgoing)

    def _outgoing(self, result: Result | DeadLetter) -> list[Outgoing]:
        if isinstance(result, DeadLetter):
            return [(DEAD, result.partition, result.key or b"", encode(result))]
        if isinstance(result, Forgotten):
            partition = self._partition_of.pop(result.host)
            return [(MODELS, partition, state_key(result.host, slot), None) for slot in result.slots]
        partition = self._partition_of[result.host]
        if isinstance(result, StateRecord):
            return [(MODELS, partition, result.key, encode(result))]
        self.counts["verdicts" if isinstance(result, Verdict) else "episode states"] += 1
        topic = VERDICTS if isinstance(result, Verdict) else ANOMALIES
        return [(topic, partition, result.host.encode(), encode(result))]

    def _acknowledge(self) -> None:
        for waiting in self._pending.values():
            while waiting and (
                not waiting[0].host or self.pipeline.covers(waiting[0].host, waiting[0].epoch, waiting[0].second)
            ):
                waiting.popleft().event.ack()

    def _bury(self, message: Any, reason: str, detail: str) -> list[DeadLetter]:
        self.counts[f"dead {reason}"] += 1
        now = time.monotonic()
        allowance = self._dead_allowance + (now - self._dead_checked) * DEAD_A_SECOND
        self._dead_allowance, self._dead_checked = min(allowance, DEAD_A_SECOND), now
        if self._dead_allowance < 1:
            self.counts["dead letters not written"] += 1
            return []
        self._dead_allowance -= 1
        log.warning(
            "dead letter from %s/%d/%d: %s: %s", message.topic, message.partition, message.offset, reason, detail
        )
        value = message.value[:DEAD_VALUE_BYTES] if message.value is not None else None
        letter = DeadLetter(
            message.topic, message.partition, message.offset, SERVICE, reason, detail, message.key or None, value
        )
        return [letter]

    def _waiting(self) -> None:
        # The worker is not hung, Kafka is away: to start it again would not help.
        self._alive()

    async def _restore(self, partition: int) -> None:
        consumer: Any = self.app.consumer
        began = time.monotonic()
        wait_s = 0.25
        while True:
            try:
                states = await asyncio.to_thread(read_states, self.kafka, partition)
                begins = await consumer.begins(TELEMETRY.values(), partition)
                break
            except (KafkaException, ConnectionError) as error:
                log.warning("waiting for partition %d: %s", partition, error.args[0])
            self._waiting()
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, 10.0)
        for host, records in states.items():
            self._partition_of[host] = partition
            try:
                lost = self.pipeline.restore(host, records)
            except Exception as error:  # stored bytes must not keep the worker from starting
                lost = f"{type(error).__name__}: {error}"
            if lost:
                self.counts["states not usable"] += 1
                log.warning("the stored state of %s cannot be used, it learns anew: %s", host, lost)
        self._readings[partition] = Reading(begins)
        self._restored.add(partition)
        log.info("partition %d: %d hosts restored in %.2f s", partition, len(states), time.monotonic() - began)

    async def _revoked(self, _app: Any, /, *args: Any, signal: Any, **_: Any) -> None:
        # What is kept of these hosts belongs to whoever gets the partitions next, us included: it starts from the
        # topic.
        async with self._lock:
            gone = {tp.partition for tp in args[0]}
            hosts = [host for host, partition in self._partition_of.items() if partition in gone]
            self.pipeline.forget(hosts)
            for host in hosts:
                del self._partition_of[host]
            for tp in [tp for tp in self._pending if tp.partition in gone]:
                del self._pending[tp]
            for partition in gone:
                self._readings.pop(partition, None)
            self._restored -= gone


def _nothing() -> None:
    pass


def _record(message: Any) -> Telemetry | Event | Command:
    """What the message holds. Raises Rejected for what its topic does not carry."""
    if message.topic not in (EVENTS, CONTROL):
        return decode_telemetry(message.value)
    record = decode(message.value)
    if message.topic == CONTROL:
        return read_command(record)
    if not isinstance(record, Event):
        raise Rejected("wrong-record", f"expected an event, got {type(record).__name__}")
    return record


def _sent(message: Any) -> float:
    """When a message was sent, s: when Kafka took it, by the clock of the broker, and at the latest now."""
    now = time.time()
    return min(message.timestamp or now, now)


def _last_second(batch: Telemetry) -> int:
    return int((batch.start_ns + (batch.count - 1) * batch.period_ms * 1_000_000) // SECOND_NS)
