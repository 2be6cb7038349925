"""A broker that dies under load is back within seconds, without a loss and without a double."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from confluent_kafka import KafkaError, Message, Producer

from deploy.kafka.server import LocalKafka
from tests.integration.test_kafka import PRODUCER, client, read_all
from tests.kafka_fixture import NewKafka, new_topic
from tests.streams import wait_for

pytestmark = pytest.mark.stack


class Stream:
    """Idempotent produces at a steady rate from a thread of its own. sent: how many; acknowledged: which numbers."""

    def __init__(self, kafka: LocalKafka, topic: str, rate: float) -> None:
        self.sent = 0
        self.acknowledged: set[int] = set()
        self._topic = topic
        self._rate = rate
        self._stop = threading.Event()
        quiet = {"log_level": 0, "delivery.timeout.ms": 60_000}
        self._producer = Producer({**client(kafka), **PRODUCER, **quiet})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> None:
        """Stop sending, and wait until every message has been acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0

    def _run(self) -> None:
        start = time.monotonic()
        while not self._stop.is_set():
            number = self.sent

            def done(error: KafkaError | None, _: Message, number: int = number) -> None:
                if error is None:
                    self.acknowledged.add(number)

            self._producer.produce(self._topic, str(number), f"host-{number % 50}", on_delivery=done)
            self.sent += 1
            self._producer.poll(max(0.0, start + self.sent / self._rate - time.monotonic()))


def test_sigkill_loses_nothing_acknowledged_and_doubles_nothing(new_kafka: NewKafka) -> None:
    kafka = new_kafka()
    topic = new_topic(kafka)
    stream = Stream(kafka, topic, rate=1000)
    try:
        wait_for(lambda: len(stream.acknowledged) > 1500, "acknowledgements")
        before = kafka.pid
        kafka.kill()
        at_kill = len(stream.acknowledged)
        started = time.monotonic()
        kafka.start()
        kafka.wait_ready(15)
        back_s = time.monotonic() - started
        assert kafka.pid != before
        wait_for(lambda: len(stream.acknowledged) > at_kill + 1000, "acknowledgements after the kill")
    finally:
        stream.finish()
    read = Counter(int(message.value() or b"-1") for message in read_all(kafka, topic))
    assert stream.acknowledged <= read.keys()
    assert len(stream.acknowledged) == stream.sent
    assert set(read.values()) == {1}
    assert back_s < 5
