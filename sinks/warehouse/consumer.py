"""The loop between Kafka and the store: the only file of the sink that knows the Kafka client.

Telemetry and results go in lanes of their own, each written and committed by itself, so that a verdict never waits for
a batch of telemetry to fill. While ClickHouse is away the partitions are paused and the client is still polled, so
that the group does not take this member for dead.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from schemas.codec import Rejected, encode
from schemas.records import DeadLetter
from schemas.settings import KafkaSettings, WarehouseSettings
from schemas.topics import DEAD, MODELS, TELEMETRY
from sinks.warehouse.lanes import Batch, Lane, Partition
from sinks.warehouse.messages import SUBSYSTEM_OF, TOPICS, Accepted, Message, is_kept, process_message, unusable_letter
from sinks.warehouse.rejects import Rejects
from sinks.warehouse.rows import Insert, split_unusable
from sinks.warehouse.status import Status
from sinks.warehouse.store import Store, StoreError

LOG: Final = logging.getLogger(__name__)
RESULTS_S: Final = 0.05
POLL_S: Final = 0.2
FETCH: Final = 500
COMMIT_S: Final = 0.5
SESSION_S: Final = 20.0
"""Without a sign of life for so long a sink loses its partitions; on a busy host a process may wait for seconds."""
REPORT_S: Final = 10.0
LAG_S: Final = 1.0
COMMITTED_S: Final = 5.0
LAST_COMMIT_S: Final = 3.0
ASK_S: Final = 3.0
BACKOFF_S: Final = (0.1, 2.0)
LEADING: Final = (next(iter(TELEMETRY.values())), 0)
"""Who owns this partition does what one sink of the group has to do."""


class SinkError(Exception):
    """The sink cannot go on; the message says why and what to do."""


class Stopped(Exception):
    """The sink was told to stop while it waited; what it held will be read again."""


class Unavailable(Exception):
    """Kafka did not take a dead letter; to be tried again."""


class Sink:
    """Consumes the telemetry, result and dead-letter topics into a store, until told to stop.

    beat is called at every turn of the loop, also while waiting; clock is a steady one, wall that of the day, both in
    seconds. `leads` is set while this sink is the one of the group that does what one has to do.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        settings: WarehouseSettings,
        store: Store,
        *,
        stop: threading.Event,
        beat: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.leads = threading.Event()
        self._kafka = kafka
        self._instance = settings.instance
        self._store = store
        self._wall = wall
        self._stop = stop
        self._beat = beat
        self._clock = clock
        self._telemetry = Lane(settings.batch_rows, settings.batch_s)
        self._results = Lane(settings.batch_rows, min(settings.batch_s, RESULTS_S))
        self._lanes = (self._results, self._telemetry)
        self._rejects = Rejects()
        self._written: Batch | None = None
        self._stored: dict[Partition, int] = {}
        self._committed_at = self._reported_at = clock()
        self._rows = self._messages = self._capped = 0
        self._total: Counter[str] = Counter()
        self._stored_rows: Counter[str] = Counter()
        self._insert_s = 0.0
        self._behind: dict[str, int] = {}
        self._behind_at = -math.inf
        self._turned = clock()
        self._waiting = ""
        self._next: dict[Partition, int] = {}
        self._away = self._committing = False
        self._fatal = ""
        self._warned: dict[str, float] = {}
        self._producer: Any = None
        self._consumer = Consumer(
            kafka.client()
            | {
                "group.id": settings.group,
                # A sink that comes back under its name gets its partitions at once, not after the session timeout.
                "group.instance.id": settings.instance,
                "client.id": settings.instance,
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": int(1000 * SESSION_S),
                "heartbeat.interval.ms": 2_000,
                "topic.metadata.refresh.interval.ms": 10_000,
                "queued.max.messages.kbytes": 16_384,
                # Its log repeats every failed connection; error_cb tells us, and we tell it once.
                "log_level": 2,
                "error_cb": self._consumer_error,
                "on_commit": self._commit_done,
            },
            logger=LOG,
        )

    def run(self) -> None:
        """Consume until `stop` is set, then write and commit what is held. Raises SinkError."""
        self._consumer.subscribe(list(TOPICS), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        LOG.info("consuming %s", ", ".join(TOPICS))
        try:
            while not self._stop.is_set():
                now = self._clock()
                self._poll(min(POLL_S, *(lane.wait(now) for lane in self._lanes)))
                for lane in self._lanes:
                    if lane.wait(self._clock()) == 0:
                        self._write(lane)
                self._commit_sometimes()
                self._look_behind()
                self._report()
            self._write_once()
        except Stopped:
            LOG.info("told to stop while waiting: what is held will be read again")
        finally:
            self._commit_last()
            self._consumer.close()
            self.leads.clear()
            LOG.info("stopped")

    def status(self, version: str = "", upkeep: Mapping[str, int] | None = None) -> Status:
        """What is known now; from any thread."""
        batches = [lane.batch for lane in self._lanes] + [batch for batch in (self._written,) if batch is not None]
        oldest_ms = min(batch.oldest_ms for batch in batches)
        return Status(
            instance=self._instance,
            version=version,
            messages=self._total["messages"],
            rows=dict(self._stored_rows),
            inserts=self._total["inserts"],
            insert_s=self._insert_s,
            failures=self._total["failures"],
            rejected=dict(self._rejects.counts),
            capped=self._rejects.capped,
            lost=self._total["lost"],
            lag=dict(self._behind),
            lag_s=max(0.0, self._wall() - oldest_ms / 1000) if math.isfinite(oldest_ms) else 0.0,
            waiting=self._waiting,
            leads=self.leads.is_set(),
            upkeep=dict(upkeep or {}),
            turn_s=self._clock() - self._turned,
        )

    # Reading

    def _poll(self, wait_s: float) -> None:
        self._beat()
        self._turned = self._clock()
        first = self._consumer.poll(wait_s)
        for message in (first, *self._consumer.consume(FETCH - 1, 0)) if first is not None else ():
            if message.error() is None:
                self._away = False
                self._take(message)
            else:
                self._message_error(message)
        if self._fatal:
            raise SinkError(
                f"Kafka does not let this sink go on: {self._fatal}. If another sink runs under the same name, give "
                "this one its own REVEAL_WAREHOUSE_INSTANCE"
            )

    def _take(self, raw: Any) -> None:
        kind, time_ms = raw.timestamp()
        message = Message(raw.topic(), raw.partition(), raw.offset(), time_ms if kind else 0, raw.key(), raw.value())
        lane = self._telemetry if message.topic in SUBSYSTEM_OF else self._results
        self._messages += 1
        self._total["messages"] += 1
        self._follow(message)
        now = self._clock()
        try:
            if is_kept(message):
                lane.accept(process_message(message), message.topic, now)
            else:
                lane.skip(message.topic, message.partition, message.offset)
        except Rejected as error:
            place = f"{message.topic}[{message.partition}] offset {message.offset}"
            self._warn(f"rejected {error.reason}", f"{place} cannot be read: {error}")
            letter = self._rejects.judge(message, error, now)
            lane.reject(message.topic, message.partition, message.offset, letter, now)
        if lane.wait(now) == 0 and self._written is None:
            self._write(lane)

    def _follow(self, message: Message) -> None:
        """Notice what the topic lost before it was read. A compacted topic loses things by design."""
        place = message.topic, message.partition
        due = self._next.get(place, message.offset)
        lost = self._deleted(place, due, message.offset) if message.topic != MODELS else 0
        if lost > 0:
            self._total["lost"] += lost
            LOG.error(
                "%d messages of %s[%d] were deleted before they were read: this sink was away for longer than the "
                "topic keeps them",
                lost,
                *place,
            )
        self._next[place] = message.offset + 1

    def _deleted(self, place: Partition, due: int, found: int) -> int:
        """How many messages from the one that was `due` to before that which was `found` are no longer kept. The others
        that are missing never were for us: transactions have marks of their own, and some are aborted.
        """
        if found <= due:
            return 0
        try:
            kept_from, _ = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=ASK_S, cached=False)
        except KafkaException:
            return found - due  # nobody can tell; better told in vain than not at all
        return max(0, min(kept_from, found) - due)

    # Writing

    def _write(self, lane: Lane, *, once: bool = False) -> None:
        """Write the batch of `lane`, however long it takes, or with one try. Raises StoreError or Unavailable after
        that one try, Stopped when told to stop; the batch is back in its lane then.
        """
        began = self._clock()
        batch = self._written = lane.take()
        try:
            good, bad = split_unusable(batch.accepted)
            for insert in good:
                self._persist(partial(self._insert, insert), once)
            letters = [*batch.letters, *self._letters_of(bad)]
            if letters:
                self._persist(partial(self._send, letters), once)
            self._stored |= batch.offsets
            lane.written(began, self._clock())
        except (StoreError, Unavailable, Stopped):
            lane.restore(batch)
            raise
        finally:
            self._written = None

    def _insert(self, insert: Insert) -> None:
        began = self._clock()
        self._store.insert(insert.table, insert.rows)
        self._insert_s += self._clock() - began
        self._total["inserts"] += 1
        self._rows += insert.rows.num_rows
        self._stored_rows[insert.table] += insert.rows.num_rows

    def _letters_of(self, bad: Iterable[tuple[Accepted, str]]) -> Iterator[DeadLetter]:
        for item, detail in bad:
            self._rejects.counts["wrong-record"] += 1
            self._warn("unusable", f"offset {item.offset} of partition {item.partition} has no row: {detail}")
            letter = unusable_letter(item, detail)
            if letter is not None:
                yield letter

    def _persist(self, work: Callable[[], None], once: bool) -> None:
        backoff, longest = BACKOFF_S
        waited = False
        while True:
            try:
                work()
            except (StoreError, Unavailable) as error:
                self._total["failures"] += 1
                if once:
                    raise
                self._waiting = str(error)
                if self._stop.is_set():
                    raise Stopped from error
                self._warn("waiting", f"waiting, and trying again: {error}")
                self._wait(backoff)
                backoff, waited = min(longest, 2 * backoff), True
            else:
                break
        self._waiting = ""
        if waited:
            LOG.info("stored: going on")
            self._warned.pop("waiting", None)
            self._consumer.resume(self._consumer.assignment())

    def _wait(self, seconds: float) -> None:
        """Let time pass without reading on, yet within the group."""
        until = self._clock() + seconds
        while not self._stop.is_set() and (left := until - self._clock()) > 0:
            # Each time: a rebalance may bring new ones.
            self._consumer.pause(self._consumer.assignment())
            self._poll(min(POLL_S, left))
            self._look_behind()

    def _send(self, letters: Iterable[DeadLetter]) -> None:
        """Send letters and await their delivery. Raises Unavailable."""
        if self._producer is None:
            self._producer = Producer(
                self._kafka.client()
                | {
                    "enable.idempotence": True,
                    "compression.type": "zstd",
                    "partitioner": "murmur2_random",
                    "delivery.timeout.ms": 10_000,
                    "log_level": 2,
                    "error_cb": self._kafka_error,
                },
                logger=LOG,
            )
        failures: list[str] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error.str())

        try:
            for letter in letters:
                self._producer.produce(DEAD, encode(letter), letter.key, on_delivery=delivered)
                self._producer.poll(0)
        except (BufferError, KafkaException) as error:
            failures.append(str(error))
        # Within delivery.timeout.ms each is delivered or given up.
        while self._producer.flush(POLL_S):
            if self._stop.is_set():
                raise Unavailable("stopped before Kafka confirmed the dead letters")
        if failures:
            raise Unavailable(f"Kafka did not take {len(failures)} dead letters: {failures[0]}")

    # Committing and the group

    def _commit_sometimes(self) -> None:
        if self._stored and self._clock() - self._committed_at >= COMMIT_S:
            self._commit()

    def _commit(self, *, synchronous: bool = False) -> None:
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in self._stored.items()]
        self._committed_at = self._clock()
        self._stored = {}
        try:
            if synchronous:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._committing = True
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._commit_done(error.args[0], offsets)

    def _commit_held(self) -> None:
        """Commit and wait for it, unless Kafka is known to be away: it would take the session timeout to fail."""
        if self._stored and not self._away:
            self._commit(synchronous=True)

    def _commit_last(self) -> None:
        """Commit before the end, and wait for it a little: Kafka may be away without our knowing it yet."""
        if not self._stored or self._away:
            return
        try:
            self._consumer.pause(self._consumer.assignment())
            self._commit()
            until = self._clock() + LAST_COMMIT_S
            # What is still read here is not committed: it is read again.
            while self._committing and not self._away and self._clock() < until:
                self._consumer.poll(POLL_S)
        except KafkaException as error:
            LOG.warning("offsets not committed, some rows will be written again: %s", error.args[0].str())

    def _commit_done(self, error: KafkaError | None, _: object) -> None:
        self._committing = False
        if error is not None:
            self._warn("commit", f"offsets not committed, some rows may be written again: {error.str()}")

    def _assigned(self, _: object, partitions: list[TopicPartition]) -> None:
        LOG.info("assigned %s", _names(partitions))
        if any((each.topic, each.partition) == LEADING for each in partitions):
            self.leads.set()
        try:
            committed = self._consumer.committed(partitions, timeout=COMMITTED_S)
        except KafkaException as error:
            LOG.warning("cannot tell whether messages were lost meanwhile: %s", error.args[0].str())
            return
        self._next |= {(each.topic, each.partition): each.offset for each in committed if each.offset >= 0}

    def _revoked(self, _: object, partitions: list[TopicPartition]) -> None:
        """Write and commit what is held, so that the next owner need not do it again; if it fails, it will."""
        LOG.info("revoked %s", _names(partitions))
        if self._written is None:
            self._write_once()
            self._commit_held()
        self._forget(partitions)

    def _lost(self, _: object, partitions: list[TopicPartition]) -> None:
        LOG.warning("lost %s: this sink was taken for dead", _names(partitions))
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        gone = {(partition.topic, partition.partition) for partition in partitions}
        for batch in (*(lane.batch for lane in self._lanes), self._written):
            if batch is not None:
                batch.forget(gone)
        for partition in gone:
            self._stored.pop(partition, None)
            self._next.pop(partition, None)
        if LEADING in gone:
            self.leads.clear()

    def _write_once(self) -> None:
        for lane in self._lanes:
            try:
                self._write(lane, once=True)
            except (StoreError, Unavailable) as error:
                LOG.warning("not stored, will be read again: %s", error)

    # Saying

    def _heed(self, error: KafkaError) -> None:
        """Note an error after which nothing is ever read; it comes as a message, to the callback, or as both."""
        # Of a message it has the code, and does not say so.
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = self._fatal or error.str()

    def _consumer_error(self, error: KafkaError) -> None:
        self._heed(error)
        self._kafka_error(error)

    def _kafka_error(self, error: KafkaError) -> None:
        self._away = self._away or error.code() == KafkaError._ALL_BROKERS_DOWN
        self._warn(f"kafka {error.code()}", f"Kafka: {error.str()}")

    def _message_error(self, message: Any) -> None:
        error = message.error()
        self._heed(error)
        hint = ""
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            hint = "; `reveal topics` makes the topics"
        self._warn(f"kafka {error.code()} {message.topic()}", f"Kafka: {error.str()}{hint}")

    def _warn(self, about: str, text: str) -> None:
        """Say `text`, but not more often than each REPORT_S about the same thing."""
        now = self._clock()
        if now - self._warned.get(about, -REPORT_S) >= REPORT_S:
            self._warned[about] = now
            LOG.warning("%s", text)

    def _report(self) -> None:
        seconds = self._clock() - self._reported_at
        if seconds < REPORT_S:
            return
        LOG.info(
            "%d rows (%.0f/s) of %d messages stored, lag %s%s",
            self._rows,
            self._rows / seconds,
            self._messages,
            f"{sum(self._behind.values())} messages" if self._behind else "unknown, as no partition is assigned",
            f", rejected so far: {dict(self._rejects.counts)}" if self._rejects.counts else "",
        )
        if self._rejects.capped > self._capped:
            LOG.warning(
                "%d unreadable messages were not copied to %s: more than %.0f a second; they are still in their topics",
                self._rejects.capped - self._capped,
                DEAD,
                self._rejects.per_second,
            )
        self._capped = self._rejects.capped
        self._reported_at = self._clock()
        self._rows = self._messages = 0

    def _look_behind(self) -> None:
        """Count what is not read yet, now and then."""
        now = self._clock()
        if now - self._behind_at < LAG_S:
            return
        self._behind_at = now
        behind: dict[str, int] = {}
        for place in self._consumer.position(self._consumer.assignment()):
            _, high = self._consumer.get_watermark_offsets(place, cached=True)
            behind[place.topic] = behind.get(place.topic, 0) + max(0, high - max(0, place.offset))
        self._behind = behind


def _names(partitions: Iterable[TopicPartition]) -> str:
    topics: dict[str, list[str]] = {}
    for item in partitions:
        topics.setdefault(item.topic, []).append(str(item.partition))
    return ", ".join(f"{topic}[{','.join(numbers)}]" for topic, numbers in topics.items()) or "nothing"
