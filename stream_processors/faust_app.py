"""The worker: the pipeline under Faust. The only file here that knows Kafka.

Nothing is lost and nothing appears twice, whatever is killed, because of the order of things: a batch of events is
worked through; its verdicts,
episodes, rows, models and dead letters are delivered; then the progress of its hosts; only then are events
acknowledged, and of those only the ones that
no open window needs. A worker that takes over reads the state from the models topic, then the events that were not
acknowledged: what the progress covers
is passed over, and what it does not cover is worked out again, with the same results.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import faust
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from mode.supervisors import CrashingSupervisor

from schemas.codec import Rejected, decode, decode_telemetry, encode
from schemas.records import DeadLetter, StateRecord, Telemetry, Verdict
from schemas.settings import KafkaSettings, PipelineSettings, WorkerSettings
from schemas.topics import ANOMALIES, DEAD, MODELS, TELEMETRY, VERDICTS
from stream_processors.host import Result
from stream_processors.pipeline import Pipeline
from stream_processors.seconds import SECOND_NS

log = logging.getLogger("reveal.worker")

SERVICE: Final = "worker"
DEAD_VALUE_BYTES: Final = 65_536
DEAD_A_SECOND: Final = 50.0
"""So many dead letters a second are written; more are only counted and logged, so that a broken producer cannot fill
the topic.
"""
RESTORE_TIMEOUT_S: Final = 60.0
STATISTICS_EVERY_S: Final = 60.0


class Results:
    """Confirmed delivery of results, through an idempotent producer."""

    def __init__(self, kafka: KafkaSettings) -> None:
        options: dict[str, Any] = {
            **kafka.client(),
            "client.id": "reveal-worker",
            "enable.idempotence": True,
            "compression.type": "zstd",
            "partitioner": "murmur2_random",
            "linger.ms": 2,
            # For as long as the broker is away the worker waits: results are never given up.
            "message.timeout.ms": 0,
            "message.max.bytes": 4 << 20,
        }
        self._producer = Producer(options)
        self._failed: list[str] = []

    async def deliver(self, messages: Iterable[tuple[str, int, bytes, bytes]]) -> None:
        """Send (topic, partition, key, value) and wait until all of them are stored. Raises KafkaException when one
        never can be.
        """
        for topic, partition, key, value in messages:
            while True:
                try:
                    self._producer.produce(topic, value, key, partition, on_delivery=self._delivered)
                    break
                except BufferError:
                    await asyncio.to_thread(self._producer.poll, 0.1)
        waited = 0
        while await asyncio.to_thread(self._producer.flush, 5.0):
            waited += 5
            log.warning("waiting for Kafka to take results, %d s so far", waited)
        if self._failed:
            raise KafkaException(f"results were refused: {self._failed[0]} and {len(self._failed) - 1} more")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(f"{message.topic()}: {error}")


class Worker:
    """One worker of the group: a Faust application around a Pipeline."""

    def __init__(self, kafka: KafkaSettings, worker: WorkerSettings, pipeline: PipelineSettings) -> None:
        self.kafka = kafka
        self.settings = worker
        self.pipeline = Pipeline(pipeline)
        self.counts: Counter[str] = Counter()
        self.results = Results(kafka)
        self.app = _application(kafka, worker)
        self._alive: Callable[[], None] = _nothing
        self._lock = asyncio.Lock()
        self._restored: set[int] = set()
        self._partition_of: dict[str, int] = {}
        self._waiting: dict[str, deque[tuple[int, Any]]] = {}
        self._dead_allowance = DEAD_A_SECOND
        self._dead_checked = time.monotonic()
        self._told = time.monotonic()
        telemetry = self.app.topic(
            *TELEMETRY.values(), key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
        )
        self.app.agent(telemetry, name="reveal.telemetry", concurrency=1, supervisor_strategy=CrashingSupervisor)(
            self._process
        )
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
        return not crashed

    async def _reach(self, stop: asyncio.Event) -> bool:
        """Wait until Kafka answers and the topics are there; False when asked to stop meanwhile."""
        admin = AdminClient({**self.kafka.client()})
        wait_s = 0.5
        while not stop.is_set():
            try:
                there = await asyncio.to_thread(admin.list_topics, timeout=5)
                missing = sorted({*TELEMETRY.values(), MODELS, VERDICTS, ANOMALIES, DEAD} - set(there.topics))
                if not missing:
                    return True
                log.warning("waiting for topics: %s; `reveal topics` makes them", ", ".join(missing))
            except KafkaException as error:
                log.warning("waiting for Kafka at %s: %s", self.kafka.bootstrap, error.args[0])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), wait_s)
            wait_s = min(2 * wait_s, 10.0)
        return False

    async def _process(self, stream: Any) -> None:
        async for events in stream.noack_take(self.settings.batch, within=self.settings.batch_within_s):
            async with self._lock:
                await self._work(events)

    async def _work(self, events: Iterable[Any]) -> None:
        results: list[Result | DeadLetter] = []
        origin: dict[str, int] = {}
        finished: list[Any] = []
        touched: set[str] = set()
        for event in events:
            message = event.message
            if message.partition not in self._restored:
                await self._restore(message.partition)
            try:
                batch = decode_telemetry(message.value)
                fresh = self.pipeline.feed(batch, time.time())
            except Rejected as error:
                finished.append(event)
                results += self._bury(message, error.reason, error.detail)
                continue
            except Exception:
                # A fault of ours: the message is kept with the trace, and the others go on.
                log.exception("cannot process %s/%d/%d", message.topic, message.partition, message.offset)
                finished.append(event)
                results += self._bury(message, "pipeline-error", traceback.format_exc(limit=-5))
                continue
            for flaw in batch.flaws:
                results += self._bury(message, "not-finite", flaw)
            results += fresh
            origin[batch.host] = self._partition_of[batch.host] = message.partition
            self._waiting.setdefault(batch.host, deque()).append((_last_second(batch), event))
            touched.add(batch.host)
        await self._deliver(results)
        for event in finished:
            event.ack()
        self._acknowledge(touched)

    async def _tick(self) -> None:
        async with self._lock:
            results = self.pipeline.tick(time.time())
            if results:
                await self._deliver(results)
                self._acknowledge({result.host for result in results})
        self._alive()
        now = time.monotonic()
        if now - self._told >= STATISTICS_EVERY_S:
            self._told = now
            counts = self.pipeline.counts + self.counts
            log.info("%d hosts; %s", len(self.pipeline.hosts), ", ".join(f"{k} {v}" for k, v in sorted(counts.items())))

    async def _deliver(self, results: Iterable[Result | DeadLetter]) -> None:
        first: list[tuple[str, int, bytes, bytes]] = []
        progress: dict[str, tuple[str, int, bytes, bytes]] = {}
        for result in results:
            if isinstance(result, DeadLetter):
                first.append((DEAD, result.partition, result.key or b"", encode(result)))
                continue
            partition = self._partition_of[result.host]
            if isinstance(result, StateRecord):
                entry = (MODELS, partition, result.key, encode(result))
                if result.slot == "progress":
                    progress[result.host] = entry
                else:
                    first.append(entry)
            else:
                topic = VERDICTS if isinstance(result, Verdict) else ANOMALIES
                self.counts["verdicts" if isinstance(result, Verdict) else "episode states"] += 1
                first.append((topic, partition, result.host.encode(), encode(result)))
        if first:
            await self.results.deliver(first)
        if progress:
            await self.results.deliver(progress.values())

    def _acknowledge(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            waiting = self._waiting.get(host)
            if not waiting:
                continue
            covered = self.pipeline.covered_until(host)
            kept: deque[tuple[int, Any]] = deque()
            for second, event in waiting:
                if second < covered:
                    event.ack()
                else:
                    kept.append((second, event))
            self._waiting[host] = kept

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

    async def _restore(self, partition: int) -> None:
        began = time.monotonic()
        wait_s = 0.25
        while True:
            try:
                states = await asyncio.to_thread(read_states, self.kafka, partition)
                break
            except KafkaException as error:
                log.warning("waiting for %s/%d: %s", MODELS, partition, error.args[0])
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, 10.0)
        for host, records in states.items():
            self._partition_of[host] = partition
            try:
                self.pipeline.restore(host, records)
            except (KeyError, TypeError, ValueError) as error:
                self.counts["states not usable"] += 1
                log.warning(
                    "the stored state of %s cannot be used, it learns anew: %s: %s", host, type(error).__name__, error
                )
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
                self._waiting.pop(host, None)
                del self._partition_of[host]
            self._restored -= gone


def read_states(kafka: KafkaSettings, partition: int) -> Mapping[str, list[StateRecord]]:
    """Newest state records of all hosts of a partition of the models topic. Records that cannot be read are passed
    over and logged.

    Raises KafkaException when the topic cannot be read to its end within RESTORE_TIMEOUT_S.
    """
    options = {
        **kafka.client(),
        "group.id": "reveal-restore",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(options)
    newest: dict[bytes, bytes] = {}
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition(MODELS, partition), timeout=RESTORE_TIMEOUT_S)
        if start < end:
            consumer.assign([TopicPartition(MODELS, partition, start)])
        deadline = time.monotonic() + RESTORE_TIMEOUT_S
        reading = start < end
        while reading:
            if time.monotonic() > deadline:
                raise KafkaException(f"{MODELS}/{partition} was not read to its end within {RESTORE_TIMEOUT_S:.0f} s")
            for message in consumer.consume(1000, timeout=1.0):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        reading = False
                        continue
                    raise KafkaException(error)
                key, value = message.key(), message.value()
                if key is None:
                    continue
                if value is None:
                    newest.pop(key, None)
                else:
                    newest[key] = value
    finally:
        consumer.close()
    states: dict[str, list[StateRecord]] = {}
    for key, value in newest.items():
        try:
            record = decode(value)
        except Rejected as error:
            log.warning("state %r in %s cannot be read: %s", key, MODELS, error)
            continue
        if isinstance(record, StateRecord):
            states.setdefault(record.host, []).append(record)
    return states


def _application(kafka: KafkaSettings, worker: WorkerSettings) -> faust.App:
    return faust.App(
        worker.group,
        broker=[f"kafka://{address}" for address in kafka.bootstrap.split(",")],
        broker_credentials=_credentials(kafka),
        broker_session_timeout=10.0,
        broker_heartbeat_interval=1.0,
        broker_request_timeout=90.0,
        broker_commit_interval=1.0,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=worker.instance,
        datadir=str(Path(worker.directory)),
        key_serializer="raw",
        value_serializer="raw",
        store="memory://",
        stream_wait_empty=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        topic_partitions=kafka.partitions,
        processing_guarantee="at_least_once",
        web_enabled=False,
        agent_supervisor=CrashingSupervisor,
    )


def _credentials(kafka: KafkaSettings) -> Any:
    context = (
        ssl.create_default_context(cafile=kafka.ssl_ca_file or None)
        if "SSL" in kafka.security_protocol.split("_")
        else None
    )
    if kafka.security_protocol.startswith("SASL"):
        return faust.SASLCredentials(
            username=kafka.sasl_username,
            password=str(kafka.sasl_password),
            mechanism=kafka.sasl_mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context=context) if context else None


def _nothing() -> None:
    pass


def _last_second(batch: Telemetry) -> int:
    return int((batch.start_ns + (batch.count - 1) * batch.period_ms * 1_000_000) // SECOND_NS)
