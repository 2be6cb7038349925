"""The way to Kafka and back: the only file of this service that knows a Kafka client."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from producers.delivery import PATIENCE_S, Delivery
from producers.inbox import Inbox
from producers.ledger import Counts, Ledger
from producers.notices import Notices
from producers.partition import partition_of
from producers.segment import Stored
from producers.sending import Outcome, Verdict
from producers.spool import Spool
from producers.vitals import Vitals
from schemas.codec import Rejected, decode, decode_telemetry, encode
from schemas.records import Episode, Event, Telemetry
from schemas.topics import ANOMALIES, EVENTS, TELEMETRY

log = logging.getLogger(__name__)

REPORT_S: Final = 60.0
LARGEST_BYTES: Final = 16 << 20
QUEUE_BYTES: Final = 3 * LARGEST_BYTES
PROPAGATION_MS: Final = 5_000
LOOK_AGAIN_S: Final = 0.9
EPISODES_S: Final = 0.5
UNREACHABLE: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE})
BROKEN: Final = frozenset(
    {
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.PRODUCER_FENCED,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError._FATAL,
    }
)
"""Failures after which a producer is of no use: the broker's memory of it and its own do not fit together."""
AGAIN: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._PURGE_QUEUE,
        KafkaError._QUEUE_FULL,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)
"""Failures that say nothing about the message."""
REFUSED: Final = frozenset(
    {
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._INVALID_ARG,
    }
)
"""Failures that another try would not change. All that are in no set may end when somebody does something."""


class KafkaUnreachableError(Exception):
    """No broker answers; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class Left:
    """What was not delivered when the publisher closed: messages on disk, and messages that only memory had."""

    on_disk: int
    in_memory: int


class Publisher:
    """Sends telemetry and events, idempotent and compressed, and never makes the caller wait, for Kafka or for a disk.

    What is not acknowledged soon goes to a spool on disk (see `delivery`) of up to `spool_mb`, and beyond that the
    oldest is dropped and counted. Without a spool, or while its disk fails, messages wait in `queue_mb` of memory.

    client      properties of librdkafka that say where Kafka is
    spool       directory of the spool; empty for none
    patience_s  how long a topic may be missing or forbidden before its messages are set aside
    """

    def __init__(
        self,
        client: Mapping[str, str],
        queue_mb: int,
        *,
        spool: str = "",
        spool_mb: int = 256,
        notices: Notices | None = None,
        vitals: Vitals | None = None,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._servers = client["bootstrap.servers"]
        self._report_s = clock() + REPORT_S
        self._ledger = Ledger(notices, vitals, clock)
        self._client = KafkaClient(client, spool_mb if spool else queue_mb)
        self._inbox = Inbox(queue_mb << 20)

        def open_spool() -> Spool:
            return Spool(Path(spool).absolute(), spool_mb << 20, self._ledger.lose)

        self._delivery = Delivery(
            self._client, self._inbox, self._ledger, open_spool if spool else None, patience_s=patience_s, clock=clock
        )
        self._delivery.start()

    @property
    def counts(self) -> Counts:
        """Messages so far."""
        return self._ledger.counts

    @property
    def reachable(self) -> bool | None:
        """Whether Kafka answers; None before anything is known."""
        return self._client.reachable

    def publish(self, record: Telemetry | Event) -> bool:
        """Take `record` on; False when it cannot be encoded. Raises nothing: no record may stop the agent."""
        try:
            message = _stored(record)
        except ValueError as error:
            log.error("dropped a message of %s: %s", record.subsystem, error)
            self._ledger.lose(record.subsystem, 1, _samples(record), str(error))
            return False
        for gone in self._inbox.put(message):
            self._ledger.lose(gone.subsystem, 1, gone.samples, "no room in memory")
        self._ledger.say()
        return True

    def publish_all(self, record: Telemetry | Event) -> None:
        """Take `record` on, waiting for room. Raises KafkaUnreachableError when there is none within a minute."""
        message = _stored(record)
        deadline = self._clock() + 60
        while not self._inbox.room():
            time.sleep(0.001)
            if self._clock() > deadline:
                raise KafkaUnreachableError(
                    f"Kafka at {self._servers} takes no messages: is it running? (`reveal kafka`)"
                )
        self._inbox.put(message)

    def poll(self) -> None:
        """Once a minute, say how it goes."""
        if self._clock() >= self._report_s:
            self._report_s = self._clock() + REPORT_S
            counts = self.counts
            log.info(
                "%d delivered, %d waiting, %d of them on disk, %d failed, %d dropped",
                counts.delivered,
                self.waiting(),
                self.spooled(),
                counts.failed,
                counts.dropped,
            )

    def lost(self, subsystem: str) -> int:
        """Samples of `subsystem` that could be neither delivered nor kept."""
        return self._ledger.lost(subsystem)

    def waiting(self) -> int:
        """Messages that are not delivered yet."""
        return self._delivery.waiting()

    def spooled(self) -> int:
        """Those of them that are on disk."""
        return self._delivery.on_disk()

    def in_memory(self) -> int:
        """Those of them that are only in memory."""
        return self._delivery.in_memory()

    def flush(self, seconds: float) -> int:
        """Wait up to `seconds` for deliveries; messages that are still waiting then."""
        deadline = self._clock() + seconds
        while (left := self.waiting()) and self._clock() < deadline:
            time.sleep(0.01)
        return left

    def close(self, seconds: float) -> Left:
        """Deliver for up to `seconds` more, and put the rest into the spool; what is left."""
        self._delivery.stop(seconds)
        return Left(self._delivery.on_disk(), self._delivery.in_memory())

    def check(self, seconds: float) -> None:
        """Raises KafkaUnreachableError unless a broker answers within `seconds`."""
        self._client.check(seconds)


class KafkaClient:
    """librdkafka's idempotent producer as a `sending.Client`. One thread uses it.

    It keeps messages in order and tries for ever, so what it gives up is either refused or comes from a fault of its
    own: idempotence ends with an error that it cannot recover from when the broker's memory of it is gone.
    """

    def __init__(self, client: Mapping[str, str], keeps_mb: int) -> None:
        self.reachable: bool | None = None
        self.broken = ""
        self._settings = client
        self._servers = client["bootstrap.servers"]
        self._keeps_mb = keeps_mb
        self._generation = 0
        self._outcomes: list[Outcome] = []
        self._missing: dict[str, float] = {}
        self._complaint = ""
        self._producer = self._new_producer()

    @property
    def away(self) -> bool:
        """As in Client."""
        return self.reachable is False

    def send(self, token: int, message: Stored) -> Outcome | None:
        """As in Client."""
        if time.monotonic() > self._missing.get(message.topic, float("inf")):
            # The client would look only every few minutes whether the topic has been made.
            del self._missing[message.topic]
            with suppress(KafkaException):
                self._producer.list_topics(message.topic, timeout=0.5)
        try:
            self._producer.produce(
                message.topic,
                value=message.value,
                key=message.key,
                on_delivery=partial(self._on_delivery, self._generation, token),
            )
        except BufferError:
            return Outcome(token, Verdict.AGAIN, "the client's queue is full")
        except KafkaException as error:
            return self._failed(token, message.topic, error.args[0])
        return None

    def poll(self, seconds: float) -> list[Outcome]:
        """As in Client."""
        try:
            self._producer.poll(seconds)
        except KafkaException as error:
            # The binding raises a fatal error where it would be told.
            self.broken = error.args[0].str()
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def renew(self) -> None:
        """As in Client."""
        self._generation += 1
        self._outcomes.clear()
        self.broken = ""
        old, self._producer = self._producer, self._new_producer()
        with suppress(KafkaException):
            old.purge()

    def close(self) -> None:
        """As in Client."""
        with suppress(KafkaException):
            self._producer.purge()

    def check(self, seconds: float) -> None:
        """Raises KafkaUnreachableError unless a broker answers within `seconds`."""
        _check(self._producer, self._servers, seconds)

    def _new_producer(self) -> Producer:
        # The client's own complaints come once a connection attempt; `_on_error` says it once.
        quiet = logging.getLogger(f"{__name__}.client")
        quiet.setLevel(logging.CRITICAL + 1)
        return Producer(
            {
                **self._settings,
                "client.id": "reveal-agent",
                "enable.idempotence": True,
                "compression.type": "zstd",
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                # Few messages are out at a time, but one may be large.
                "queue.buffering.max.kbytes": QUEUE_BYTES >> 10,
                # A host with a thousand cores sends a megabyte a message before compression; brokers count it after.
                "message.max.bytes": LARGEST_BYTES,
                # Never: a message that is given up and sent again could come after the one that followed it.
                "delivery.timeout.ms": 0,
                "topic.metadata.propagation.max.ms": PROPAGATION_MS,
                "reconnect.backoff.max.ms": 5_000,
                "log.connection.close": False,
                "error_cb": partial(self._on_error, self._generation),
            },
            logger=quiet,
        )

    def _on_delivery(self, generation: int, token: int, error: KafkaError | None, message: Message) -> None:
        if generation != self._generation:
            return
        if error is not None:
            self._outcomes.append(self._failed(token, message.topic() or "", error))
            return
        self._outcomes.append(Outcome(token, Verdict.DELIVERED))
        if self.reachable is not True:
            self.reachable = True
            self._complaint = ""
            log.info("delivering to Kafka at %s", self._servers)

    def _failed(self, token: int, topic: str, error: KafkaError) -> Outcome:
        if error.fatal() or error.code() in BROKEN:
            self.broken = self.broken or error.str()
        if self.broken or error.code() in AGAIN or error.retriable():
            return Outcome(token, Verdict.AGAIN, error.str())
        if error.code() in REFUSED:
            return Outcome(token, Verdict.REFUSED, error.str())
        if error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
            self._missing.setdefault(topic, time.monotonic() + LOOK_AGAIN_S)
        return Outcome(token, Verdict.NOT_NOW, error.str())

    def _on_error(self, generation: int, error: KafkaError) -> None:
        if generation != self._generation:
            return
        if error.fatal():
            self.broken = error.str()
        elif error.code() not in UNREACHABLE:
            if error.str() != self._complaint:
                self._complaint = error.str()
                log.warning("Kafka: %s", error.str())
        elif self.reachable is not False:
            self.reachable = False
            log.warning(
                "Kafka at %s does not answer: sampling goes on, and up to %d MB are kept until it does",
                self._servers,
                self._keeps_mb,
            )


class Subscription:
    """Telemetry of all hosts from Kafka, from now on."""

    def __init__(self, client: Mapping[str, str], group: str) -> None:
        self.rejected = 0
        self._servers = client["bootstrap.servers"]
        self._consumer = Consumer(
            {**client, "group.id": group, "auto.offset.reset": "latest", "enable.auto.commit": False}
        )
        self._consumer.subscribe(list(TELEMETRY.values()))

    def check(self, seconds: float) -> None:
        """Raises KafkaUnreachableError unless a broker answers within `seconds`."""
        _check(self._consumer, self._servers, seconds)

    def records(self, stopped: Callable[[], bool]) -> Iterator[Telemetry | None]:
        """Records as they come, None when none came for a while; until `stopped`."""
        while not stopped():
            message: Any = self._consumer.poll(0.2)
            if message is None or message.error() is not None:
                yield None
                continue
            try:
                yield decode_telemetry(message.value())
            except Rejected as error:
                self.rejected += 1
                log.warning("left out a message of %s: %s", message.topic(), error)
                yield None

    def close(self) -> None:
        """Leave Kafka."""
        self._consumer.close()


class Episodes:
    """Hands the episodes of `host` to `take`, from now on, in a thread of its own, until closed.

    It reads the one partition that holds the host, without a group: nothing is committed. While no broker answers, or
    the topic is not there, it tries again.
    """

    def __init__(self, client: Mapping[str, str], host: str, take: Callable[[Episode], None]) -> None:
        self._host = host
        self._take = take
        self._closed = threading.Event()
        quiet = logging.getLogger(f"{__name__}.client")
        quiet.setLevel(logging.CRITICAL)
        self._consumer = Consumer(
            {
                **client,
                "client.id": "reveal-agent-episodes",
                "group.id": "reveal-agent-episodes",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                # Episodes are rare: the broker answers at once when there is one, and else not for a while.
                "fetch.wait.max.ms": 10_000,
                "reconnect.backoff.max.ms": 30_000,
                "log.connection.close": False,
            },
            logger=quiet,
        )
        self._thread = threading.Thread(target=self._run, name="episodes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; takes a second at most."""
        self._closed.set()
        self._thread.join(2 * EPISODES_S)

    def _run(self) -> None:
        try:
            while not self._closed.is_set() and not self._assign():
                self._closed.wait(EPISODES_S)
            while not self._closed.is_set():
                message: Any = self._consumer.poll(EPISODES_S)
                if message is not None and message.error() is None and message.key() == self._host.encode():
                    self._hand_over(message.value())
        finally:
            self._consumer.close()

    def _assign(self) -> bool:
        """Find the partition of the host, and start at its end; False when Kafka does not tell."""
        try:
            partitions = len(self._consumer.list_topics(ANOMALIES, timeout=EPISODES_S).topics[ANOMALIES].partitions)
        except KafkaException:
            return False
        if not partitions:
            return False
        mine = partition_of(self._host.encode(), partitions)
        self._consumer.assign([TopicPartition(ANOMALIES, mine, OFFSET_END)])
        log.info("listening for episodes of %s in partition %d of %s", self._host, mine, ANOMALIES)
        return True

    def _hand_over(self, value: bytes | None) -> None:
        try:
            record = decode(value)
        except Rejected as error:
            log.warning("left out a message of %s: %s", ANOMALIES, error)
            return
        if isinstance(record, Episode):
            self._take(record)


def _stored(record: Telemetry | Event) -> Stored:
    """The message of `record`. Raises ValueError for one that cannot be encoded."""
    if isinstance(record, Event):
        topic, time_ns = EVENTS, record.time_ns
    else:
        topic, time_ns = TELEMETRY[record.subsystem], record.start_ns
    return Stored(topic, record.host.encode(), encode(record), record.subsystem, _samples(record), time_ns)


def _samples(record: Telemetry | Event) -> int:
    return record.count if isinstance(record, Telemetry) else 0


def _check(client: Producer | Consumer, servers: str, seconds: float) -> None:
    try:
        client.list_topics(timeout=seconds)
    except KafkaException as error:
        raise KafkaUnreachableError(
            f"Kafka at {servers} does not answer ({error.args[0].str()}): start it with `reveal kafka`, or name yours"
            " in REVEAL_KAFKA_BOOTSTRAP"
        ) from None
