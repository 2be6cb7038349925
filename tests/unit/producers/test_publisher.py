"""The publisher without a broker: it never waits, and keeps or counts everything."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import KafkaError

from producers.notices import Notices
from producers.publisher import KafkaClient, KafkaUnreachableError, Publisher
from producers.segment import Stored
from producers.sending import Verdict
from producers.vitals import Vitals
from schemas.records import Event, Telemetry

SECOND_NS = 1_000_000_000
# Nothing listens on the port for discarding.
NOWHERE = {"bootstrap.servers": "127.0.0.1:9"}
# The largest part of a message's time on its way to the thread that delivers.
SOON_S = 20.0


def record(sequence: int, metric: str = "mem.free") -> Telemetry:
    """A record of about 40 KB."""
    values = np.random.default_rng(sequence).random((10_000, 1), np.float32)
    instances = {"host": ("",)}
    return Telemetry("memory", "a", "s", sequence, (sequence + 1) * SECOND_NS, 100, 10_000, instances, {metric: values})


def soon(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds."""
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_without_a_spool_memory_is_bounded_and_the_oldest_go() -> None:
    notices = Notices()
    publisher = Publisher(NOWHERE, queue_mb=1, notices=notices)
    began = time.monotonic()
    assert all(publisher.publish(record(sequence)) for sequence in range(300))
    assert time.monotonic() - began < 5
    soon(lambda: publisher.counts.dropped + publisher.waiting() == 300)
    # A megabyte waits, and up to four are on their way.
    assert 25 <= publisher.waiting() <= 150
    assert publisher.lost("memory") == 10_000 * publisher.counts.dropped > 0
    assert publisher.lost("cpu") == 0
    assert {notice.kind for notice in notices.drain("a", "s", "")} == {"samples_lost"}
    assert publisher.spooled() == 0
    left = publisher.close(0.1)
    assert (left.on_disk, left.in_memory) == (0, publisher.waiting())


def test_with_a_spool_nothing_is_lost(tmp_path: Path) -> None:
    vitals = Vitals()
    publisher = Publisher(NOWHERE, queue_mb=1, spool=str(tmp_path / "spool"), spool_mb=64, vitals=vitals)
    for sequence in range(200):
        assert publisher.publish(record(sequence))
        soon(lambda: publisher.in_memory() < 10)
    soon(lambda: vitals.spooled == 200)
    assert publisher.counts.dropped == 0
    event = Event("a", "s", 0, SECOND_NS, "oom_kill", "memory", "critical", "a process", "kernel log")
    assert publisher.publish(event)
    left = publisher.close(5)
    assert (left.on_disk, left.in_memory) == (201, 0)
    assert sum(path.stat().st_size for path in tmp_path.glob("spool/*.spool")) > 200 * 30_000


def test_closing_is_quick_when_all_is_on_disk(tmp_path: Path) -> None:
    publisher = Publisher(NOWHERE, queue_mb=1, spool=str(tmp_path / "spool"))
    publisher.publish(record(1))
    soon(lambda: publisher.reachable is False)
    began = time.monotonic()
    assert publisher.close(30).on_disk == 1
    assert time.monotonic() - began < 5


def test_a_record_that_cannot_be_encoded_stops_nothing() -> None:
    publisher = Publisher(NOWHERE, queue_mb=1)
    assert not publisher.publish(record(0, "mem.no_such_metric"))
    assert publisher.counts.dropped == 1
    assert publisher.lost("memory") == 10_000
    assert publisher.publish(record(1))


@pytest.mark.parametrize("spool", [True, False])
def test_absent_broker_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, spool: bool) -> None:
    publisher = Publisher(NOWHERE, queue_mb=1, spool=str(tmp_path / "spool") if spool else "", spool_mb=2)
    assert publisher.publish(record(0))
    soon(lambda: publisher.reachable is False)
    assert publisher.flush(1) == 1
    kept = 2 if spool else 1
    assert caplog.text.count(f"does not answer: sampling goes on, and up to {kept} MB are kept") == 1
    publisher.close(0)


def test_absent_broker_is_an_error_for_who_checks() -> None:
    publisher = Publisher(NOWHERE, queue_mb=1)
    with pytest.raises(KafkaUnreachableError, match=r"127.0.0.1:9 does not answer .*REVEAL_KAFKA_BOOTSTRAP"):
        publisher.check(0.2)


def test_spool_that_cannot_be_is_said_and_memory_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "spool").write_bytes(b"")
    publisher = Publisher(NOWHERE, queue_mb=1, spool=str(tmp_path / "spool"))
    assert publisher.publish(record(0))
    soon(lambda: "no spool, messages are kept in memory alone: File exists" in caplog.text)
    left = publisher.close(0.1)
    assert (left.on_disk, left.in_memory) == (0, 1)


def test_a_message_too_large_for_kafka_is_refused_at_once() -> None:
    client = KafkaClient(NOWHERE, 1)
    outcome = client.send(1, Stored("topic", b"a", bytes(17 << 20), "cpu", 1, 1))
    assert outcome is not None
    assert outcome.verdict is Verdict.REFUSED


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Verdict.REFUSED),
        (KafkaError.INVALID_RECORD, Verdict.REFUSED),
        (KafkaError._MSG_TIMED_OUT, Verdict.AGAIN),
        (KafkaError._PURGE_INFLIGHT, Verdict.AGAIN),
        (KafkaError._FATAL, Verdict.AGAIN),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, Verdict.AGAIN),
        (KafkaError._UNKNOWN_TOPIC, Verdict.NOT_NOW),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Verdict.NOT_NOW),
        (KafkaError._UNKNOWN_PARTITION, Verdict.NOT_NOW),
        (KafkaError.UNKNOWN, Verdict.NOT_NOW),
    ],
)
def test_what_an_error_says_of_the_message(code: int, verdict: Verdict) -> None:
    client = KafkaClient(NOWHERE, 1)
    assert client._failed(1, "topic", KafkaError(code)).verdict is verdict
    assert bool(client.broken) is (code in (KafkaError._FATAL, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER))


def test_after_a_renewal_nothing_is_heard_of_the_old_producer() -> None:
    client = KafkaClient(NOWHERE, 1)
    message = Stored("topic", b"a", b"value", "cpu", 1, 1)
    assert client.send(1, message) is None
    client._on_error(0, KafkaError(KafkaError._FATAL, "sequence", fatal=True))
    assert "sequence" in client.broken
    client.renew()
    assert not client.broken
    client._on_error(0, KafkaError(KafkaError._FATAL, "sequence", fatal=True))
    assert not client.broken
    assert client.poll(0.2) == []
