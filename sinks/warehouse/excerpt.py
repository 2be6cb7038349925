"""Reads telemetry of one host a second time, from stretches of the topics. With `consumer` the only file of the sink
that knows the Kafka client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from schemas.codec import Rejected, decode
from schemas.records import Telemetry
from schemas.settings import KafkaSettings
from sinks.warehouse.samples import Stretch, Unavailable

LOG: Final = logging.getLogger(__name__)
FETCH: Final = 500
WAIT_S: Final = 0.5
LIMIT_S: Final = 60.0


class Excerpt:
    """Reads stretches beside the consumer group, and commits nothing. `clock` in seconds, steady."""

    def __init__(self, kafka: KafkaSettings, group: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._settings = kafka.client() | {
            # A name is asked for; no group forms of it.
            "group.id": f"{group}-samples",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # What is gone is passed over.
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": 16_384,
            "log_level": 2,
        }

    def __call__(self, stretches: Sequence[Stretch], host: str) -> list[Telemetry]:
        """Telemetry of `host` in `stretches`, as far as the topics still hold it. Raises Unavailable."""
        failures: list[KafkaError] = []
        consumer = Consumer(self._settings | {"error_cb": failures.append}, logger=LOG)
        try:
            return self._read(consumer, {(each.topic, each.partition): each for each in stretches}, host, failures)
        except KafkaException as error:
            raise Unavailable(f"Kafka: {error.args[0].str()}") from error
        finally:
            consumer.close()

    def _read(
        self, consumer: Any, left: dict[tuple[str, int], Stretch], host: str, failures: list[KafkaError]
    ) -> list[Telemetry]:
        consumer.assign([TopicPartition(topic, number, each.first) for (topic, number), each in left.items()])
        until = self._clock() + LIMIT_S
        key = host.encode()
        found: list[Telemetry] = []
        while left:
            if any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in failures):
                raise Unavailable("Kafka does not answer")
            if self._clock() > until:
                raise Unavailable(f"Kafka did not give what was asked for within {LIMIT_S:.0f} s")
            for message in consumer.consume(FETCH, WAIT_S):
                place = message.topic(), message.partition()
                error = message.error()
                if error is not None:
                    if error.code() in (KafkaError._PARTITION_EOF, KafkaError._UNKNOWN_PARTITION):
                        left.pop(place, None)
                        continue
                    raise Unavailable(f"Kafka: {error.str()}")
                stretch = left.get(place)
                if stretch is None:
                    continue
                if message.offset() >= stretch.last:
                    del left[place]
                if message.offset() <= stretch.last and message.key() == key:
                    found += _telemetry(message.value(), host)
        return found


def _telemetry(value: bytes | None, host: str) -> list[Telemetry]:
    try:
        record = decode(value)
    except Rejected:
        # Whatever it is, the sink told of it when it read it first.
        return []
    return [record] if isinstance(record, Telemetry) and record.host == host else []
