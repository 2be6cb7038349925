"""The spool against a real Kafka that stops, dies and comes back: nothing is lost, and in order."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from deploy.kafka.server import LocalKafka
from deploy.kafka.topics import create_topics
from producers.publisher import Publisher
from producers.vitals import Vitals
from schemas.catalogue import SUBSYSTEMS, catalogue
from schemas.records import Event, Telemetry
from schemas.topics import EVENTS, TELEMETRY, TopicSpec, topic_table
from tests.kafka_fixture import NewKafka, local_kafka
from tests.streams import PARTITIONS, Service, eventually, make_topics, read_all

SECOND_NS = 1_000_000_000
pytestmark = pytest.mark.stack


def record(subsystem: str, sequence: int, host: str = "host", count: int = 10) -> Telemetry:
    """A record of one metric; of some 100 bytes unless `count` is large."""
    metric = next(metric for metric in catalogue().values() if metric.subsystem == subsystem)
    values = np.random.default_rng(sequence).random((count, 1)).astype(np.float32)
    start_ns = (1_700_000_000 + sequence) * SECOND_NS
    names = {metric.dimension: ("",)}
    return Telemetry(
        subsystem, host, "session", sequence, start_ns, 1000 // count or 1, count, names, {metric.name: values}
    )


class Load:
    """A publisher under load: one record of every subsystem at a time."""

    def __init__(self, bootstrap: str, directory: Path, spool_mb: int = 64) -> None:
        self.directory = directory
        self.vitals = Vitals()
        self.sequence = 0
        self.slowest_s = 0.0
        self.publisher = Publisher(
            {"bootstrap.servers": bootstrap}, 16, spool=str(directory), spool_mb=spool_mb, vitals=self.vitals
        )

    def publish(self, count: int = 10) -> None:
        """The next record of every subsystem."""
        for subsystem in SUBSYSTEMS:
            began = time.monotonic()
            assert self.publisher.publish(record(subsystem, self.sequence, count=count))
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.sequence += 1
        # Not faster than the disk takes it: what does not fit into memory is dropped.
        eventually(lambda: self.publisher.in_memory() < 2000, "room in memory", every_s=0.001)

    def run(self, seconds: float, every_s: float = 0.02) -> None:
        """Publish for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.publish()
            time.sleep(every_s)

    def delivered(self) -> bool:
        """Whether all is, while more comes."""
        self.publish()
        return self.publisher.flush(0.5) == 0

    def segments(self) -> list[Path]:
        """Files on disk, oldest first."""
        return sorted(self.directory.glob("*.spool"))


@contextmanager
def under_load(bootstrap: str, directory: Path, spool_mb: int = 64) -> Iterator[Load]:
    """A load that is closed afterwards."""
    load = Load(bootstrap, directory, spool_mb)
    try:
        yield load
    finally:
        load.publisher.close(0)


def arrived(bootstrap: str, host: str = "host") -> dict[str, list[int]]:
    """Sequence numbers that Kafka has of each subsystem, in its order, duplicates included."""
    return {
        subsystem: [item.sequence for item in read_all(bootstrap, topic, Telemetry) if item.host == host]
        for subsystem, topic in TELEMETRY.items()
    }


def once(sequences: list[int]) -> list[int]:
    """Without duplicates, in the order of first arrival."""
    return list(dict.fromkeys(sequences))


def absent(new_kafka: NewKafka) -> LocalKafka:
    """A broker that has Reveal's topics and does not run."""
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    kafka.stop()
    return kafka


def sessions(bootstrap: str, host: str) -> dict[str, dict[str, list[Telemetry]]]:
    """Telemetry of a host by session and subsystem."""
    found: dict[str, dict[str, list[Telemetry]]] = {}
    for subsystem, topic in TELEMETRY.items():
        for item in read_all(bootstrap, topic, Telemetry):
            if item.host == host:
                found.setdefault(item.session, {}).setdefault(subsystem, []).append(item)
    return found


def agent_of(kafka: LocalKafka, directory: Path) -> Mapping[str, str]:
    """Settings of an agent with a spool."""
    return {
        "REVEAL_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "REVEAL_AGENT_HOST": "killed",
        "REVEAL_AGENT_SPOOL": str(directory / "spool"),
        "REVEAL_AGENT_HTTP_PORT": "0",
    }


def spooled_bytes(directory: Path) -> int:
    """Bytes in the spool."""
    return sum(path.stat().st_size for path in (directory / "spool").glob("*.spool"))


def test_agent_killed_while_the_broker_is_away(new_kafka: NewKafka, tmp_path: Path) -> None:
    kafka = absent(new_kafka)
    environ = agent_of(kafka, tmp_path)
    first = Service("agent", environ, tmp_path / "first.log")
    try:
        eventually(lambda: spooled_bytes(tmp_path) > 0, "a spool", every_s=0.05)
        time.sleep(8)
        killed_ns = time.time_ns()
    finally:
        first.kill()
    before = spooled_bytes(tmp_path)
    assert before > 1000
    second = Service("agent", environ, tmp_path / "second.log")
    try:
        eventually(lambda: "of earlier runs" in second.log.read_text(), "a word about what was left")
        eventually(lambda: spooled_bytes(tmp_path) > before, "more in the spool")
        with kafka:
            eventually(lambda: "the spool is empty" in second.log.read_text(), "back-fill")
            assert second.stop() == 0
            assert "nothing is left in the spool" in second.tail()
            found = sessions(kafka.bootstrap, "killed")
    finally:
        second.stop()
    assert len(found) == 2
    old, new = found.values()
    assert set(old) == set(new) >= {"cpu", "memory"}
    for subsystem in old:
        for records in (old[subsystem], new[subsystem]):
            assert once([item.sequence for item in records]) == list(range(len({item.sequence for item in records})))
        # At most the second that was not over and what was on its way to the disk.
        last = max(item.start_ns + item.count * item.period_ms * 1_000_000 for item in old[subsystem])
        assert killed_ns - last < 2 * SECOND_NS, subsystem
        # The old session comes first.
        assert min(item.start_ns for item in new[subsystem]) > last - SECOND_NS
    for topic in TELEMETRY.values():
        order = [item.session for item in read_all_of(kafka, topic, found)]
        assert order == sorted(order, key=list(found).index)


def read_all_of(kafka: LocalKafka, topic: str, found: dict[str, dict[str, list[Telemetry]]]) -> list[Telemetry]:
    """Records of a topic in the order in which they were read."""
    subsystem = topic.rpartition(".")[2]
    return [item for session in found.values() for item in session.get(subsystem, [])]


def test_clean_stop_leaves_all_to_the_next_start(new_kafka: NewKafka, tmp_path: Path) -> None:
    kafka = absent(new_kafka)
    with under_load(kafka.bootstrap, tmp_path / "spool") as load:
        load.run(3)
        left = load.publisher.close(5)
        assert (left.on_disk, left.in_memory) == (load.sequence * len(SUBSYSTEMS), 0)
        count = load.sequence
    with kafka, under_load(kafka.bootstrap, tmp_path / "spool") as load:
        load.sequence = count
        load.run(1)
        eventually(load.delivered, "back-fill")
        for sequences in arrived(kafka.bootstrap).values():
            assert sequences == list(range(load.sequence))


def test_limit_keeps_the_newest(new_kafka: NewKafka, tmp_path: Path) -> None:
    kafka = absent(new_kafka)
    with under_load(kafka.bootstrap, tmp_path / "spool", spool_mb=1) as load:
        eventually(lambda: load.publisher.reachable is False, "a word about the missing Kafka")
        for _ in range(200):
            load.publish(count=10_000)
            time.sleep(0.01)
        eventually(lambda: load.publisher.spooled() > 0 and len(load.segments()) > 4, "a full spool")
        assert sum(path.stat().st_size for path in load.segments()) <= 1 << 20
        with kafka:
            eventually(lambda: load.publisher.flush(0.5) == 0, "back-fill")
            lost = {subsystem: load.publisher.lost(subsystem) // 10_000 for subsystem in SUBSYSTEMS}
            assert all(0 < count < 200 for count in lost.values())
            for subsystem, sequences in arrived(kafka.bootstrap).items():
                assert sequences == sorted(set(sequences))
                # All that did not arrive is counted, and the newest are there.
                assert 200 - len(sequences) == lost[subsystem]
                missing = set(range(200)) - set(sequences)
                assert max(missing) < 197
        assert load.publisher.counts.dropped == sum(lost.values())


def test_damaged_segment_costs_what_is_damaged(new_kafka: NewKafka, tmp_path: Path) -> None:
    kafka = absent(new_kafka)
    with under_load(kafka.bootstrap, tmp_path / "spool", spool_mb=2) as load:
        eventually(lambda: load.publisher.reachable is False, "a word about the missing Kafka")
        for _ in range(100):
            load.publish(count=400)
        load.publisher.close(5)
        first, second, *_ = load.segments()
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 0x20
    first.write_bytes(data)
    os.truncate(second, second.stat().st_size - 100)
    (tmp_path / "spool" / f"{1:016d}.spool".replace("1", "0")).write_bytes(b"garbage")
    with kafka, under_load(kafka.bootstrap, tmp_path / "spool", spool_mb=2) as load:
        eventually(lambda: load.publisher.counts.delivered >= 498, "back-fill")
        assert load.publisher.flush(10) == 0
        found = arrived(kafka.bootstrap)
        assert sum(len(sequences) for sequences in found.values()) == 498
        assert all(sequences == sorted(set(sequences)) for sequences in found.values())
        # Two messages, and a file that is none.
        assert load.publisher.counts.dropped == 3
        missing = {name: 400 * (100 - len(sequences)) for name, sequences in found.items()}
        assert {name: load.publisher.lost(name) for name in SUBSYSTEMS} == missing
        assert load.segments() == []


def test_what_kafka_refuses_is_set_aside_and_the_rest_goes_on(
    new_kafka: NewKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kafka = new_kafka()
    small = TopicSpec(TELEMETRY["memory"], PARTITIONS, {"max.message.bytes": "20000"})
    table = {spec.name: spec for spec in topic_table(PARTITIONS)} | {small.name: small}
    events = table.pop(EVENTS)
    create_topics({"bootstrap.servers": kafka.bootstrap}, table.values())
    directory = tmp_path / "spool"
    publisher = Publisher({"bootstrap.servers": kafka.bootstrap}, 16, spool=str(directory), patience_s=12)
    event = Event("host", "session", 0, SECOND_NS, "oom_kill", "memory", "critical", "a process", "kernel log")
    try:
        assert publisher.publish(event)
        for sequence in range(40):
            # Two that a broker will not have, in one batch with others.
            publisher.publish(record("memory", sequence, count=10_000 if sequence in (5, 9) else 10))
            publisher.publish(record("cpu", sequence))
        eventually(lambda: publisher.counts.delivered == 78, "all but the refused ones")
        found = arrived(kafka.bootstrap)
        assert sorted(set(found["memory"])) == [each for each in range(40) if each not in (5, 9)]
        assert once(found["cpu"]) == list(range(40))
        assert publisher.lost("memory") == 20_000
        eventually(lambda: publisher.counts.failed == 3, "the event of the missing topic to be given up")
        assert publisher.waiting() == 0
        assert "reveal.events: " in caplog.text
        assert "Kafka refuses a message for reveal.telemetry.memory, set aside in" in caplog.text
        create_topics({"bootstrap.servers": kafka.bootstrap}, [events])
    finally:
        publisher.close(1)
    # The topic is there now: what was set aside is moved back, and goes out.
    for path in (directory / "refused").glob("*.spool"):
        path.rename(directory / path.name)
    again = Publisher({"bootstrap.servers": kafka.bootstrap}, 16, spool=str(directory))
    try:
        eventually(lambda: again.counts.delivered == 1 and again.counts.failed == 2, "the event")
        assert read_all(kafka.bootstrap, EVENTS, Event) == [event]
    finally:
        again.close(1)


def test_broker_that_lost_its_disk(new_kafka: NewKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Sequence numbers of idempotence begin anew in the broker, not in the client: it must recover all the same."""
    caplog.set_level(logging.INFO)
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    with under_load(kafka.bootstrap, tmp_path / "spool") as load:
        load.run(1)
        eventually(load.delivered, "deliveries")
        known = load.sequence
        kafka.kill()
        shutil.rmtree(kafka.data)
        load.run(4)
        kafka.prepare()
        kafka.start()
        kafka.wait_ready()
        make_topics(kafka.bootstrap)
        eventually(load.delivered, "back-fill")
        for subsystem, sequences in arrived(kafka.bootstrap).items():
            assert once(sequences) == list(range(known, load.sequence)), subsystem
        assert load.publisher.counts.failed == 0


def test_broker_that_was_set_back(new_kafka: NewKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broker restored from a copy lacks what it had acknowledged: idempotence ends in a fatal error of the client."""
    caplog.set_level(logging.INFO)
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    with under_load(kafka.bootstrap, tmp_path / "spool") as load:
        load.run(0.5)
        eventually(load.delivered, "deliveries")
        copied = load.sequence
        kafka.stop()
        shutil.copytree(kafka.data, tmp_path / "copy")
        kafka.start()
        kafka.wait_ready()
        load.run(0.5)
        eventually(load.delivered, "deliveries")
        acknowledged = load.sequence
        kafka.kill()
        shutil.rmtree(kafka.data)
        (tmp_path / "copy").rename(kafka.data)
        load.run(3)
        kafka.start()
        kafka.wait_ready()
        eventually(load.delivered, "back-fill")
        assert "Kafka's client cannot go on" in caplog.text
        assert "stumbled" not in caplog.text
        assert "trying again" not in caplog.text
        for subsystem, sequences in arrived(kafka.bootstrap).items():
            expected = [*range(copied), *range(acknowledged, load.sequence)]
            assert once(sequences) == expected, subsystem
        assert load.publisher.counts.failed == load.publisher.counts.dropped == 0


def test_killed_in_the_middle_of_back_fill(new_kafka: NewKafka, tmp_path: Path) -> None:
    nowhere = local_kafka(tmp_path / "nowhere")
    with under_load(nowhere.bootstrap, tmp_path / "spool") as load:
        eventually(lambda: load.publisher.reachable is False, "a word about the missing Kafka")
        for _ in range(4000):
            load.publish(count=200)
        load.publisher.close(30)
        count, segments = load.sequence, len(load.segments())
    assert segments >= 3
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    environ = {**agent_of(kafka, tmp_path), "REVEAL_AGENT_DISABLE": ""}
    agent = Service("agent", environ, tmp_path / "agent.log")
    try:
        with suppress(AssertionError):
            eventually(lambda: 0 < len(load.segments()) < segments, "the first segment to be gone", 30, 0.001)
    finally:
        agent.kill()
    assert load.segments(), "the back-fill was over before it could be killed"
    agent = Service("agent", environ, tmp_path / "agent.log")
    try:
        eventually(lambda: "the spool is empty" in agent.log.read_text(), "back-fill")
        assert agent.stop() == 0
    finally:
        agent.stop()
    for subsystem, sequences in arrived(kafka.bootstrap).items():
        assert set(sequences) == set(range(count)), subsystem
        assert once(sequences) == list(range(count)), subsystem
