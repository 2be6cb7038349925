"""The worker's own Kafka clients: results out with confirmation, state in. Telemetry comes through Faust."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from schemas.codec import Rejected, decode, encode
from schemas.records import StateRecord
from schemas.settings import KafkaSettings
from schemas.topics import CONTROL, MODELS

__all__ = [
    "KafkaException",
    "Outgoing",
    "Results",
    "ask",
    "models_end",
    "read_states",
    "told_since",
    "topic_partitions",
]

log = logging.getLogger("reveal.worker")

Outgoing = tuple[str, int, bytes, bytes | None]
"""Topic, partition, key and value."""

RESTORE_TIMEOUT_S: Final = 60.0


def topic_partitions(kafka: KafkaSettings) -> dict[str, int]:
    """Number of partitions of every topic. Raises KafkaException when Kafka does not answer within 5 s."""
    topics = AdminClient({**kafka.client()}).list_topics(timeout=5).topics
    return {name: len(topic.partitions) for name, topic in topics.items()}


class Results:
    """Confirmed delivery of results, through an idempotent producer. `waiting` is called while Kafka does not take
    them.
    """

    def __init__(self, kafka: KafkaSettings, waiting: Callable[[], None]) -> None:
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
        self._waiting = waiting
        self._failed: list[str] = []

    async def deliver(self, messages: Iterable[Outgoing]) -> None:
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
            self._waiting()
        if self._failed:
            raise KafkaException(f"results were refused: {self._failed[0]} and {len(self._failed) - 1} more")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(f"{message.topic()}: {error}")


def read_states(
    kafka: KafkaSettings, partition: int, wanted: Callable[[bytes], bool] | None = None
) -> Mapping[str, list[StateRecord]]:
    """Newest state records of all hosts of a partition of the models topic, or of those whose key is `wanted`.
    Records that cannot be read are passed over and logged.

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
            for message in consumer.consume(1000, timeout=0.1):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        reading = False
                        continue
                    raise KafkaException(error)
                key, value = message.key(), message.value()
                if key is None or (wanted is not None and not wanted(key)):
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


def ask(kafka: KafkaSettings, partition: int, record: StateRecord, timeout_s: float) -> None:
    """Publish a command for the worker of a host, which is in `partition`. Raises KafkaException when it is not
    stored within `timeout_s`.
    """
    failed: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            **kafka.client(),
            "client.id": "reveal-models",
            "enable.idempotence": True,
            "compression.type": "zstd",
            "message.timeout.ms": int(1000 * timeout_s),
            "message.max.bytes": 4 << 20,
        }
    )
    producer.produce(CONTROL, encode(record), record.host.encode(), partition, on_delivery=delivered)
    if producer.flush(timeout_s + 1) or failed:
        raise KafkaException(failed[0] if failed else f"{CONTROL} did not take the command within {timeout_s:.0f} s")


def models_end(kafka: KafkaSettings, partition: int) -> int:
    """Offset of the next message of a partition of the models topic. Raises KafkaException."""
    consumer = Consumer({**kafka.client(), "group.id": "reveal-models"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(MODELS, partition), timeout=10)
        return int(end)
    finally:
        consumer.close()


def told_since(
    kafka: KafkaSettings, place: tuple[int, int], key: bytes, accept: Callable[[StateRecord], bool], timeout_s: float
) -> bool:
    """Whether, within `timeout_s`, a record of `key` that is to be accepted comes in the models topic from
    `place` on: a partition and an offset. Raises KafkaException.
    """
    consumer = Consumer({**kafka.client(), "group.id": "reveal-models", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(MODELS, *place)])
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for message in consumer.consume(100, timeout=0.1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                value = message.value()
                if message.key() != key or value is None:
                    continue
                record = decode(value)
                if isinstance(record, StateRecord) and accept(record):
                    return True
        return False
    finally:
        consumer.close()
