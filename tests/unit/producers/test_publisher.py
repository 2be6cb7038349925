"""The publisher without a broker: it never waits, and counts what it cannot keep."""

from __future__ import annotations

import time

import numpy as np
import pytest

from producers.publisher import Publisher
from schemas.records import Telemetry

SECOND_NS = 1_000_000_000
# Nothing listens on the port for discarding.
NOWHERE = {"bootstrap.servers": "127.0.0.1:9"}


def record(sequence: int, metric: str = "mem.free") -> Telemetry:
    """A record of about 40 KB."""
    values = np.full((10_000, 1), sequence, np.float32)
    instances = {"host": ("",)}
    return Telemetry("memory", "a", "s", sequence, (sequence + 1) * SECOND_NS, 100, 10_000, instances, {metric: values})


def test_full_queue_drops_the_newest_and_counts() -> None:
    publisher = Publisher(NOWHERE, queue_mb=1)
    began = time.monotonic()
    kept = [publisher.publish(record(sequence)) for sequence in range(60)]
    assert time.monotonic() - began < 5
    assert 20 <= sum(kept) <= 27
    assert kept == sorted(kept, reverse=True)
    dropped = 60 - sum(kept)
    assert publisher.counts.dropped == dropped
    assert publisher.lost("memory") == 10_000 * dropped
    assert publisher.lost("cpu") == 0
    assert publisher.waiting() >= sum(kept)


def test_a_record_that_cannot_be_encoded_stops_nothing() -> None:
    publisher = Publisher(NOWHERE, queue_mb=1)
    assert not publisher.publish(record(0, "mem.no_such_metric"))
    assert publisher.counts.dropped == 1
    assert publisher.publish(record(1))


def test_absent_broker_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher(NOWHERE, queue_mb=1)
    deadline = time.monotonic() + 10
    while publisher.reachable is None and time.monotonic() < deadline:
        publisher.flush(0.05)
    publisher.flush(1)
    assert publisher.reachable is False
    assert caplog.text.count("does not answer: sampling goes on, and up to 1 MB are kept") == 1
