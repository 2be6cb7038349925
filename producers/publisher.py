"""The way to Kafka and back: the only file of this service that knows a Kafka client."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from schemas.codec import Rejected, decode_telemetry, encode
from schemas.records import Event, Telemetry
from schemas.topics import EVENTS, TELEMETRY

log = logging.getLogger(__name__)

PATIENCE_MS: Final = 600_000
REPORT_S: Final = 60.0
LARGEST_BYTES: Final = 16 << 20
UNREACHABLE: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE})


class KafkaUnreachableError(Exception):
    """No broker answers; the message says which and what to do."""


@dataclass(slots=True)
class Counts:
    """Messages so far: delivered by the broker, failed for good, dropped because the queue was full."""

    delivered: int = 0
    failed: int = 0
    dropped: int = 0


class Publisher:
    """Sends telemetry, idempotent and compressed, and never makes the caller wait.

    While no broker answers, messages wait in a queue of `queue_mb`; a message that finds it full is dropped and
    counted, one that waited for ten minutes is given up and counted.
    """

    def __init__(self, client: Mapping[str, str], queue_mb: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts = Counts()
        self.reachable: bool | None = None
        self._lost: dict[str, int] = {}
        self._clock = clock
        self._servers = client["bootstrap.servers"]
        self._queue_mb = queue_mb
        self._report_s = clock() + REPORT_S
        # The client's own complaints come once a connection attempt; `_on_error` says it once.
        quiet = logging.getLogger(f"{__name__}.client")
        quiet.setLevel(logging.CRITICAL)
        self._producer = Producer(
            {
                **client,
                "client.id": "reveal-agent",
                "enable.idempotence": True,
                "compression.type": "zstd",
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "queue.buffering.max.kbytes": queue_mb * 1024,
                "queue.buffering.max.messages": 1_000_000,
                # A host with a thousand cores sends a megabyte a message before compression; brokers count it after.
                "message.max.bytes": LARGEST_BYTES,
                "delivery.timeout.ms": PATIENCE_MS,
                "topic.metadata.propagation.max.ms": PATIENCE_MS,
                "reconnect.backoff.max.ms": 5_000,
                "log.connection.close": False,
                "error_cb": self._on_error,
            },
            logger=quiet,
        )

    def publish(self, record: Telemetry | Event) -> bool:
        """Queue `record`; False when it had to be dropped. Raises nothing: no record may stop the agent."""
        try:
            if self._send(record):
                return True
        except (KafkaException, ValueError) as error:
            log.error("dropped a message of %s: %s", record.subsystem, error)
        self.counts.dropped += 1
        if isinstance(record, Telemetry):
            self._lost[record.subsystem] = self._lost.get(record.subsystem, 0) + record.count
        return False

    def publish_all(self, record: Telemetry | Event) -> None:
        """Queue `record`, waiting for room. Raises KafkaUnreachableError when there is none within a minute."""
        deadline = self._clock() + 60
        while not self._send(record):
            self._producer.poll(0.1)
            if self._clock() > deadline:
                raise KafkaUnreachableError(
                    f"Kafka at {self._servers} takes no messages: is it running? (`reveal kafka`)"
                )

    def poll(self) -> None:
        """Take notice of deliveries and failures; once a minute say how it goes."""
        self._producer.poll(0)
        if self._clock() >= self._report_s:
            self._report_s = self._clock() + REPORT_S
            counts = self.counts
            waiting = len(self._producer)
            log.info(
                "%d delivered, %d waiting, %d failed, %d dropped",
                counts.delivered,
                waiting,
                counts.failed,
                counts.dropped,
            )

    def lost(self, subsystem: str) -> int:
        """Samples of `subsystem` that a full queue refused."""
        return self._lost.get(subsystem, 0)

    def waiting(self) -> int:
        """Messages that are not delivered yet."""
        return len(self._producer)

    def flush(self, seconds: float) -> int:
        """Wait up to `seconds` for deliveries; messages that are still waiting then."""
        return int(self._producer.flush(seconds))

    def check(self, seconds: float) -> None:
        """Raises KafkaUnreachableError unless a broker answers within `seconds`."""
        _check(self._producer, self._servers, seconds)

    def _send(self, record: Telemetry | Event) -> bool:
        try:
            self._producer.produce(
                EVENTS if isinstance(record, Event) else TELEMETRY[record.subsystem],
                value=encode(record),
                key=record.host.encode(),
                on_delivery=self._on_delivery,
            )
        except BufferError:
            return False
        return True

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.counts.delivered += 1
            if self.reachable is not True:
                self.reachable = True
                log.info("delivering to Kafka at %s", self._servers)
            return
        self.counts.failed += 1
        if self.counts.failed == 1 or self.counts.failed % 100 == 0:
            log.warning("%d messages given up, the last one: %s", self.counts.failed, error.str())

    def _on_error(self, error: KafkaError) -> None:
        if error.code() not in UNREACHABLE:
            log.warning("Kafka: %s", error.str())
        elif self.reachable is not False:
            self.reachable = False
            log.warning(
                "Kafka at %s does not answer: sampling goes on, and up to %d MB are kept until it does",
                self._servers,
                self._queue_mb,
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


def _check(client: Producer | Consumer, servers: str, seconds: float) -> None:
    try:
        client.list_topics(timeout=seconds)
    except KafkaException as error:
        raise KafkaUnreachableError(
            f"Kafka at {servers} does not answer ({error.args[0].str()}): start it with `reveal kafka`, or name yours"
            " in REVEAL_KAFKA_BOOTSTRAP"
        ) from None
