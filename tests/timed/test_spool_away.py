"""Kafka away for twenty seconds under load: nobody waits for it, nothing is lost, and memory holds only what is new."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from schemas.catalogue import SUBSYSTEMS
from tests.integration.test_spool import Load, arrived, once, under_load
from tests.kafka_fixture import NewKafka
from tests.streams import eventually, make_topics

pytestmark = pytest.mark.stack


def run(loads: tuple[Load, ...], seconds: float) -> None:
    """Publish at every load for so long, some 45 times a second."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for load in loads:
            load.publish()
        time.sleep(0.02)


def test_one_broker_stands_still_and_one_is_dead_for_twenty_seconds(new_kafka: NewKafka, tmp_path: Path) -> None:
    """The connections to the first one stay, but nothing is answered; the second one starts again on its data."""
    still, dead = brokers = new_kafka(), new_kafka()
    for kafka in brokers:
        make_topics(kafka.bootstrap)
    assert still.pid is not None
    with (
        under_load(still.bootstrap, tmp_path / "still") as one,
        under_load(dead.bootstrap, tmp_path / "dead") as other,
    ):
        loads = (one, other)
        run(loads, 2)
        for load in loads:
            eventually(load.delivered, "deliveries")
            assert load.segments() == []
        before = [load.sequence for load in loads]
        os.kill(still.pid, signal.SIGSTOP)
        try:
            dead.kill()
            run(loads, 21)
            for load, sequence in zip(loads, before, strict=True):
                sent = (load.sequence - sequence) * len(SUBSYSTEMS)
                # What is only in memory is what came in the last seconds.
                assert load.publisher.in_memory() < sent / 7
                assert load.publisher.spooled() > sent * 6 / 7
                assert load.vitals.spooled > 0
            dead.start()
            dead.wait_ready()
        finally:
            os.kill(still.pid, signal.SIGCONT)
        for load in loads:
            eventually(load.delivered, "back-fill", every_s=0.05)
        run(loads, 1)
        for kafka, load, sequence in zip(brokers, loads, before, strict=True):
            eventually(load.delivered, "deliveries")
            eventually(lambda each=load: each.segments() == [] and each.vitals.spooled == 0, "an empty spool")  # type: ignore[misc]
            assert load.sequence > sequence + 200
            # Nobody waits for Kafka or for the disk.
            assert load.slowest_s < 0.25
            assert load.publisher.counts.failed == load.publisher.counts.dropped == 0
            for subsystem, sequences in arrived(kafka.bootstrap).items():
                assert once(sequences) == list(range(load.sequence)), subsystem
