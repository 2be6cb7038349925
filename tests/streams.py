"""Kafka for tests: publish telemetry as the agent does, read results, run our services as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from deploy.kafka.topics import create_topics
from schemas.codec import decode, encode
from schemas.records import Record, Telemetry
from schemas.topics import TELEMETRY, topic_table

T = TypeVar("T", bound=Record)
PARTITIONS = 4


def make_topics(bootstrap: str) -> None:
    """All topics of Reveal."""
    create_topics({"bootstrap.servers": bootstrap}, topic_table(PARTITIONS))


def producer(bootstrap: str) -> Producer:
    """A producer with the agent's settings."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "partitioner": "murmur2_random",
            "linger.ms": 5,
        }
    )


def publish(bootstrap: str, batches: Iterable[Telemetry], pause_s: float = 0.0) -> int:
    """Publish `batches` in order, `pause_s` after each; returns how many, all of them acknowledged."""
    out = producer(bootstrap)
    failed: list[str] = []

    def told(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    count = 0
    for batch in batches:
        out.produce(TELEMETRY[batch.subsystem], encode(batch), batch.host.encode(), on_delivery=told)
        out.poll(0)
        count += 1
        if pause_s:
            time.sleep(pause_s)
    assert out.flush(60) == 0
    assert not failed, failed[0]
    return count


def publish_raw(bootstrap: str, topic: str, key: bytes, *values: bytes | None) -> None:
    """Publish bytes as they are."""
    out = producer(bootstrap)
    for value in values:
        out.produce(topic, value, key)
    assert out.flush(30) == 0


def read_all(bootstrap: str, topic: str, kind: type[T]) -> list[T]:
    """Every record of `topic` from its beginning to its present end."""
    consumer, ends = _at_ends(bootstrap, topic)
    records: list[T] = []
    try:
        left = {partition: high for partition, (low, high) in ends.items() if low < high}
        consumer.assign([TopicPartition(topic, partition, ends[partition][0]) for partition in left])
        deadline = time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline, f"{topic} was not read to its end"
            for message in consumer.consume(1000, timeout=0.5):
                assert message.error() is None, message.error()
                offset, partition = message.offset() or 0, message.partition() or 0
                record = decode(message.value())
                assert isinstance(record, kind)
                records.append(record)
                if offset + 1 >= left.get(partition, 0):
                    left.pop(partition, None)
    finally:
        consumer.close()
    return records


def _at_ends(bootstrap: str, topic: str) -> tuple[Consumer, dict[int, tuple[int, int]]]:
    """A consumer, and the first and the next offset of each partition of `topic`."""
    deadline = time.monotonic() + 60
    while True:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
        try:
            places = {partition: TopicPartition(topic, partition) for partition in range(PARTITIONS)}
            return consumer, {name: consumer.get_watermark_offsets(place, timeout=5) for name, place in places.items()}
        except KafkaException:
            # A broker that has just come back, or that a busy machine has kept waiting, has no leaders yet. A client
            # that has once heard of no such partition may go on saying so: the next one asks for itself.
            consumer.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def eventually(
    condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = 120.0, every_s: float = 0.25
) -> None:
    """Wait until `condition` holds; fails with `what` otherwise. The limit is for a machine that does much else."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(every_s)


def wait_for(condition: Callable[[], object], what: str | Callable[[], str]) -> None:
    """`eventually`, for a condition that costs little to ask."""
    eventually(condition, what, every_s=0.05)


def _apart(log: Path) -> Mapping[str, str]:
    """Settings that keep a service apart from those of other tests, of which some may run at the same time."""
    return {
        # What an agent of another test left behind would be sent by this one.
        "REVEAL_AGENT_SPOOL": str(log.with_suffix(".spool")),
        "REVEAL_AGENT_HTTP_PORT": "0",
        "REVEAL_WAREHOUSE_LISTEN": "",
    }


class Service:
    """One of our services as a process."""

    def __init__(self, name: str, environ: Mapping[str, str], log: Path, *arguments: str) -> None:
        self.log = log
        self.name = name
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "deploy.cli", name, *arguments],
                env={**os.environ, **_apart(log), **environ},
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def wait(self, timeout_s: float) -> int:
        """Wait for it to end by itself; the exit status."""
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> int:
        """SIGTERM once the process is so far that it handles it; the exit status."""
        eventually(lambda: self.process.poll() is not None or self._handles(signal.SIGTERM), f"{self.name} started")
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.name} did not stop on SIGTERM:\n{self.tail()}") from None
        return self.process.returncode

    def _handles(self, number: signal.Signals) -> bool:
        """Whether it catches the signal, or blocks it and waits for it: until then the signal just ends it."""
        fields = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        )
        return bool((int(fields["SigCgt"], 16) | int(fields["SigBlk"], 16)) & 1 << (number - 1))

    def tail(self) -> str:
        """End of its log."""
        return self.log.read_text(errors="replace")[-4000:]
