"""Kafka for the alerts: ownership, state, episodes and results. The only file of this service that knows its client."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.codec import Rejected, decode, encode
from schemas.records import Episode, Feedback
from schemas.settings import AlertsSettings, KafkaSettings
from schemas.topics import ALERT_STATE, ALERTS, ANOMALIES, DELIVERIES, FEEDBACK
from sinks.alerts.channels.base import ChannelError
from sinks.alerts.commands import OWN, Message
from sinks.alerts.ledger import Changes

LOG: Final = logging.getLogger(__name__)
PROGRESS: Final = f"{OWN}progress"
RESTORE_S: Final = 60.0
COMMIT_S: Final = 60.0
FETCH: Final = 500
PARTITIONS_EVERY_S: Final = 30.0
MAX_BYTES: Final = 4 << 20


class StationError(Exception):
    """Kafka does not let this instance go on; the message says why and what to do."""


class Station:
    """One instance's place at the topics of the alerts."""

    def __init__(
        self,
        kafka: KafkaSettings,
        settings: AlertsSettings,
        *,
        beat: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kafka = kafka
        self._settings = settings
        self._beat = beat
        self._clock = clock
        self._owned = False
        # Counts how often the alerts were given to this instance: they may go and come back within one poll.
        self._term = self._mine = 0
        self._warned: dict[str, float] = {}
        self._offsets: dict[int, int] = {}
        self._moved = False
        self._behind: set[int] = set()
        self._looked_at = float("-inf")
        self._producer: Any = None
        self._side: Any = None
        self._episodes: Any = None
        self.unreadable = 0
        self._member = Consumer(
            {
                **self._client(),
                "group.id": settings.group,
                # Another instance that joins takes nothing from the one that works.
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 1_000,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 10_000,
            },
            logger=LOG,
        )
        self._member.subscribe([ALERT_STATE], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    # Ownership

    @property
    def owned(self) -> bool:
        """Whether this instance still owns the alerts as it has since it began; found out while polling."""
        return self._owned and self._term == self._mine

    def stand_by(self, wait_s: float) -> bool:
        """Wait for ownership; whether it has come."""
        self._take(self._member.poll(wait_s))
        return self._owned

    def begin(self, start_ns: int) -> dict[str, bytes]:
        """Take over: end what another owner left half done, and read the state. Episodes are read from where the
        state says, the first time ever from `start_ns`. Raises StationError.
        """
        self._mine = self._term
        self._producer = Producer(
            {
                **self._client(),
                # The same for all instances: the broker refuses whoever had it before.
                "transactional.id": f"{self._settings.group}-owner",
                "transaction.timeout.ms": 20_000,
                "compression.type": "zstd",
                "partitioner": "murmur2_random",
                "message.max.bytes": MAX_BYTES,
                "linger.ms": 2,
            },
            logger=LOG,
        )
        try:
            self._producer.init_transactions(RESTORE_S)
            state = self._restore()
            self._open_episodes(_progress(state.get(PROGRESS)), start_ns)
        except KafkaException as error:
            raise StationError(f"Kafka does not let the alerts be taken over: {_words(error)}") from None
        return state

    def _restore(self) -> dict[str, bytes]:
        self._member.resume([TopicPartition(ALERT_STATE, 0)])
        state: dict[str, bytes] = {}
        until = self._clock() + RESTORE_S
        while self._clock() < until:
            self._beat()
            for message in self._member.consume(FETCH, 0.2):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return state
                if self._take(message):
                    _keep(state, message)
            if not self.owned:
                raise StationError("another instance took the alerts over meanwhile")
        raise StationError(f"{ALERT_STATE} was not read to its end within {RESTORE_S:.0f} s")

    # Reading

    def commands(self) -> list[tuple[str, bytes | None]]:
        """What came into the state topic since the last time, also our own records."""
        messages: list[Any] = self._member.consume(FETCH, 0)
        return [(_key(message), message.value()) for message in messages if self._take(message)]

    def episodes(self, wait_s: float) -> list[Episode]:
        """Episodes since the last time; waits for the first one. What cannot be read is passed over and counted."""
        self._look_for_partitions()
        first = self._episodes.poll(wait_s)
        if first is None:
            return []
        found = []
        for message in (first, *self._episodes.consume(FETCH - 1, 0)):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._behind.discard(message.partition())
                else:
                    self._warn(f"episodes {error.code()}", f"{ANOMALIES}: {error.str()}")
                continue
            self._offsets[message.partition()] = message.offset() + 1
            self._moved = True
            try:
                record = decode(message.value())
            except Rejected as problem:
                record, reason = None, str(problem)
            else:
                reason = f"expected an episode, got {type(record).__name__}"
            if isinstance(record, Episode):
                found.append(record)
            else:
                self.unreadable += 1
                where = f"{ANOMALIES}[{message.partition()}] offset {message.offset()}"
                self._warn("unreadable", f"{where} is passed over: {reason}")
        return found

    @property
    def caught_up(self) -> bool:
        """Whether all partitions were read to their end since the beginning."""
        return not self._behind

    def _open_episodes(self, progress: Mapping[int, int], start_ns: int) -> None:
        if self._episodes is not None:
            self._episodes.close()
        self._episodes = Consumer(
            {
                **self._client(),
                "group.id": f"{self._settings.group}-episodes",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            },
            logger=LOG,
        )
        self._offsets, self._behind, self._moved = dict(progress), set(), False
        self._looked_at = float("-inf")
        self._look_for_partitions(start_ns)

    def _look_for_partitions(self, start_ns: int | None = None) -> None:
        """Read every partition of the episodes there is, also those added later."""
        if self._clock() - self._looked_at < PARTITIONS_EVERY_S:
            return
        self._looked_at = self._clock()
        try:
            topic = self._episodes.list_topics(ANOMALIES, timeout=10).topics[ANOMALIES]
            if topic.error is not None:
                raise KafkaException(topic.error)
            assigned = {place.partition for place in self._episodes.assignment()}
            new = [TopicPartition(ANOMALIES, number) for number in topic.partitions if number not in assigned]
            fresh = [place for place in new if place.partition not in self._offsets]
            if fresh and start_ns is not None:
                asked = [TopicPartition(ANOMALIES, place.partition, start_ns // 1_000_000) for place in fresh]
                for place in self._episodes.offsets_for_times(asked, timeout=10):
                    # A number, also where nothing came since: what comes before the first message is not the end.
                    _, high = self._episodes.get_watermark_offsets(place, timeout=10)
                    self._offsets[place.partition] = place.offset if place.offset >= 0 else high
                self._moved = True
            if new:
                for place in new:
                    place.offset = self._offsets.get(place.partition, OFFSET_BEGINNING)
                self._behind |= {place.partition for place in new}
                self._episodes.incremental_assign(new)
        except KafkaException as error:
            if start_ns is not None:
                raise
            self._warn("partitions", f"{ANOMALIES}: {_words(error)}")

    # Writing

    def commit(self, changes: Changes) -> None:
        """Store `changes` and how far episodes are read, all or nothing. Raises StationError when this instance may
        not, or Kafka does not take it within a minute.
        """
        if not changes and not self._moved:
            return
        messages: list[tuple[str, int, bytes, bytes | None]] = []
        messages += [(ALERTS, -1, alert.key.encode(), encode(alert)) for alert in changes.alerts]
        messages += [(DELIVERIES, -1, each.receiver.encode(), encode(each)) for each in changes.deliveries]
        messages += [(ALERT_STATE, 0, key, value) for key, value in changes.state]
        progress = {str(number): offset for number, offset in self._offsets.items() if offset >= 0}
        messages.append((ALERT_STATE, 0, PROGRESS.encode(), json.dumps(progress).encode()))
        until = self._clock() + COMMIT_S
        while True:
            try:
                self._transact(messages)
            except KafkaException as error:
                problem = error.args[0]
                if problem.fatal() or not self.owned or self._clock() > until:
                    raise StationError(f"the alerts cannot be stored: {_words(error)}") from None
                self._warn("commit", f"waiting, and trying again to store alerts: {_words(error)}")
                self._beat()
                time.sleep(0.2)
            else:
                self._moved = False
                return

    def _transact(self, messages: Sequence[tuple[str, int, bytes, bytes | None]]) -> None:
        producer = self._producer
        producer.begin_transaction()
        try:
            for topic, partition, key, value in messages:
                while True:
                    try:
                        producer.produce(topic, value, key, partition)
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.commit_transaction(20)
        except KafkaException as error:
            problem = error.args[0]
            while problem.retriable() and not problem.txn_requires_abort() and self.owned:
                # A commit that was not answered is asked for again: it may have been done.
                self._beat()
                try:
                    producer.commit_transaction(20)
                except KafkaException as again:
                    problem = again.args[0]
                else:
                    return
            if not problem.fatal():
                producer.abort_transaction(20)
            raise KafkaException(problem) from None

    def produce(self, topic: str, key: bytes, value: bytes) -> None:
        """One record beside the transactions, for the channel `kafka`; from any thread. Raises ChannelError."""
        if self._side is None:
            self._side = Producer({**self._client(), **_OUTSIDE, "message.timeout.ms": 10_000}, logger=LOG)
        failed: list[str] = []

        def done(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error.str())

        try:
            self._side.produce(topic, value, key, on_delivery=done)
        except (BufferError, KafkaException) as error:
            raise ChannelError(f"{topic}: {error}", again=True) from None
        if self._side.flush(12) or failed:
            raise ChannelError(f"{topic}: {failed[0] if failed else 'Kafka does not answer'}", again=True)

    def close(self) -> None:
        """Leave, so that another instance takes over at once."""
        if self._episodes is not None:
            self._episodes.close()
        self._member.close()

    # The group

    def _assigned(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            place.offset = OFFSET_BEGINNING
        consumer.incremental_assign(partitions)
        if partitions:
            # Nothing is read before the transaction of the owner before is ended.
            consumer.pause(partitions)
            self._term += 1
            self._owned = True

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._owned = False

    def _take(self, message: Any) -> bool:
        if message is None:
            return False
        error = message.error()
        if error is None:
            return True
        if error.code() != KafkaError._PARTITION_EOF:
            if error.fatal() or error.code() == KafkaError._FATAL:
                raise StationError(f"Kafka does not let this instance go on: {error.str()}")
            hint = ""
            if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                hint = "; `reveal topics` makes the topics"
            self._warn(f"state {error.code()}", f"Kafka: {error.str()}{hint}")
        return False

    def _client(self) -> dict[str, Any]:
        return {**self._kafka.client(), "client.id": self._settings.instance, "log_level": 2, "error_cb": self._problem}

    def _problem(self, error: KafkaError) -> None:
        self._warn(f"kafka {error.code()}", f"Kafka: {error.str()}")

    def _warn(self, about: str, text: str) -> None:
        """Say it, but not more often than each 10 s about the same thing."""
        now = self._clock()
        if now - self._warned.get(about, float("-inf")) >= 10:
            self._warned[about] = now
            LOG.warning("%s", text)


_OUTSIDE: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "compression.type": "zstd",
    "partitioner": "murmur2_random",
    "log_level": 2,
}


def read_state(kafka: KafkaSettings, timeout_s: float = 15.0) -> dict[str, bytes]:
    """The newest value of every key in the state topic. Raises StationError."""
    consumer = Consumer(
        {
            **kafka.client(),
            "group.id": "reveal-alerts-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        },
        logger=LOG,
    )
    state: dict[str, bytes] = {}
    try:
        topic = consumer.list_topics(ALERT_STATE, timeout=timeout_s).topics[ALERT_STATE]
        if topic.error is not None:
            raise StationError(f"there is no topic {ALERT_STATE}; `reveal topics` makes it")
        consumer.assign([TopicPartition(ALERT_STATE, 0, OFFSET_BEGINNING)])
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            for message in consumer.consume(FETCH, 0.2):
                error = message.error()
                if error is None:
                    _keep(state, message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return state
    except KafkaException as error:
        raise StationError(f"Kafka at {kafka.bootstrap}: {_words(error)}") from None
    finally:
        consumer.close()
    raise StationError(f"{ALERT_STATE} was not read to its end within {timeout_s:.0f} s; is Kafka well?")


def write_commands(
    kafka: KafkaSettings, messages: Iterable[Message], feedback: Iterable[Feedback] = (), timeout_s: float = 10.0
) -> None:
    """Put commands into the state topic, after `feedback` into its own. Raises StationError when Kafka does not confirm
    all of them.
    """
    failed: list[str] = []

    def done(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error.str())

    # A record that comes twice says the same twice; without idempotence a command is half a second quicker.
    options = {**_OUTSIDE, "enable.idempotence": False, "acks": "all", "message.timeout.ms": int(1000 * timeout_s)}
    producer = Producer({**kafka.client(), **options}, logger=LOG)
    try:
        for each in feedback:
            producer.produce(FEEDBACK, encode(each), each.alert.encode(), on_delivery=done)
        for key, value in messages:
            producer.produce(ALERT_STATE, value, key, 0, on_delivery=done)
    except (BufferError, KafkaException) as error:
        failed.append(str(error))
    if producer.flush(timeout_s + 1) or failed:
        raise StationError(f"Kafka at {kafka.bootstrap} did not take it: {failed[0] if failed else 'no answer'}")


def topics_missing(kafka: KafkaSettings, wanted: Iterable[str], timeout_s: float = 10.0) -> list[str]:
    """Which of the topics are not there. Raises StationError."""
    try:
        there = AdminClient({**kafka.client()}).list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise StationError(f"Kafka at {kafka.bootstrap}: {_words(error)}") from None
    return [name for name in wanted if name not in there]


def _key(message: Any) -> str:
    return (message.key() or b"").decode("utf-8", "replace")


def _keep(state: dict[str, bytes], message: Any) -> None:
    key = _key(message)
    if message.value() is None:
        state.pop(key, None)
    elif key:
        state[key] = message.value()


def _progress(data: bytes | None) -> dict[int, int]:
    try:
        return {int(number): int(offset) for number, offset in json.loads(data or b"{}").items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def _words(error: KafkaException) -> str:
    problem = error.args[0]
    return problem.str() if isinstance(problem, KafkaError) else str(problem)
