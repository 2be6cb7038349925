"""The worker on the real Kafka: same verdicts as the backtest, whatever is killed and whatever is fed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deploy.kafka.server import LocalKafka
from schemas.codec import encode
from schemas.records import DeadLetter, Episode, Verdict
from schemas.settings import PipelineSettings
from schemas.topics import ANOMALIES, DEAD, TELEMETRY, VERDICTS
from stream_processors.backtest import backtest
from tests.kafka_fixture import NewKafka
from tests.streams import Service, eventually, make_topics, publish, publish_raw, read_all
from tests.synthetic import Fault, run, second

SETTINGS = PipelineSettings(warmup_windows=30, rows=32, refit_windows=40)
HOSTS = ("gpu-001", "gpu-002", "gpu-003")
SECONDS = 90
Start = Callable[[LocalKafka], Service]
FAULT = Fault(60, 72)


def environ(kafka: LocalKafka, directory: Path) -> dict[str, str]:
    return {
        "REVEAL_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "REVEAL_KAFKA_PARTITIONS": "4",
        "REVEAL_WORKER_DIRECTORY": str(directory / "worker"),
        "REVEAL_PIPELINE_WARMUP_WINDOWS": "30",
        "REVEAL_PIPELINE_ROWS": "32",
        "REVEAL_PIPELINE_REFIT_WINDOWS": "40",
    }


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers; whatever still runs at the end is killed."""
    services: list[Service] = []

    def make(kafka: LocalKafka) -> Service:
        services.append(Service("worker", environ(kafka, tmp_path), tmp_path / "worker.log"))
        return services[-1]

    yield make
    for running in services:
        if running.process.poll() is None:
            running.kill()


def expected(seconds: int = SECONDS) -> dict[tuple[str, int], Verdict]:
    results = backtest(run(HOSTS, seconds, FAULT), SETTINGS)
    return {(each.host, each.window_start_ns): each for each in results if isinstance(each, Verdict)}


def same(one: Verdict, other: Verdict) -> bool:
    """Equal window by window, score by score."""
    return one == other or (
        (one.state, one.votes, one.subsystem, one.episode) == (other.state, other.votes, other.subsystem, other.episode)
        and math.isclose(one.severity, other.severity, rel_tol=1e-9)
    )


def check(kafka: LocalKafka, wanted: dict[tuple[str, int], Verdict]) -> None:
    verdicts = read_all(kafka.bootstrap, VERDICTS, Verdict)
    found = {(each.host, each.window_start_ns): each for each in verdicts}
    assert set(found) == set(wanted)
    assert [key for key in wanted if not same(found[key], wanted[key])] == []
    # A verdict may be told twice after a crash, but then it says the same.
    assert [each for each in verdicts if not same(each, found[each.host, each.window_start_ns])] == []


def test_verdicts_equal_those_of_the_backtest(new_kafka: NewKafka, start: Start) -> None:
    kafka, wanted = new_kafka(), expected()
    make_topics(kafka.bootstrap)
    worker = start(kafka)
    publish(kafka.bootstrap, run(HOSTS, SECONDS, FAULT))
    eventually(lambda: len(read_all(kafka.bootstrap, VERDICTS, Verdict)) >= len(wanted), f"{len(wanted)} verdicts", 120)
    assert worker.stop() == 0, worker.tail()
    check(kafka, wanted)
    assert len(read_all(kafka.bootstrap, VERDICTS, Verdict)) == len(wanted)
    episodes = [each for each in backtest(run(HOSTS, SECONDS, FAULT), SETTINGS) if isinstance(each, Episode)]
    assert {(e.id, e.revision) for e in read_all(kafka.bootstrap, ANOMALIES, Episode)} == {
        (e.id, e.revision) for e in episodes
    }


def test_worker_killed_in_mid_stream(new_kafka: NewKafka, start: Start) -> None:
    kafka, wanted = new_kafka(), expected()
    make_topics(kafka.bootstrap)
    told = 0
    for begin in range(0, SECONDS, 15):
        worker = start(kafka)
        publish(kafka.bootstrap, run(HOSTS, begin + 15, FAULT, begin=begin), pause_s=0.002)
        # Killed in the middle of the work, not after it: when the first verdicts of this part are out.
        floor = told
        eventually(lambda f=floor: len(read_all(kafka.bootstrap, VERDICTS, Verdict)) > f, "verdicts", 120, 0.05)  # type: ignore[misc]
        worker.kill()
        told = len(read_all(kafka.bootstrap, VERDICTS, Verdict))
    worker = start(kafka)
    windows = set(wanted)
    eventually(
        lambda: {(v.host, v.window_start_ns) for v in read_all(kafka.bootstrap, VERDICTS, Verdict)} >= windows,
        "every window",
        60,
    )
    assert worker.stop() == 0, worker.tail()
    check(kafka, wanted)


def test_bad_input_is_dead_lettered_and_nothing_stops(new_kafka: NewKafka, start: Start) -> None:
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    host, topic = HOSTS[0], TELEMETRY["cpu"]
    key = host.encode()
    good = second(host, "cpu", 0)
    infinite = second(host, "cpu", 20)
    infinite.metrics["cpu.load1"][0, 0] = np.inf
    absent = second(host, "cpu", 21)
    absent.metrics["cpu.load1"][:] = np.nan
    truncated = encode(good)[:-7]
    unknown = b"\xc3\x01" + b"12345678" + b"x" * 20
    wide = encode(good).replace(b"\x08core", b"\x08cure")  # its matrices then have no such dimension
    assert wide != encode(good)
    worker = start(kafka)
    publish(kafka.bootstrap, run(HOSTS[:1], 20))
    publish_raw(kafka.bootstrap, topic, key, b"", None, b"not avro at all", truncated, unknown, wide)
    before = second(host, "cpu", 5, session="s2")
    publish_raw(kafka.bootstrap, topic, key, encode(replace(before, start_ns=before.start_ns - 10**12)))
    publish(kafka.bootstrap, [infinite, absent])
    publish(
        kafka.bootstrap, [b for b in run(HOSTS[:1], 40, begin=20) if not (b.subsystem == "cpu" and b.sequence < 22)]
    )
    eventually(lambda: len(read_all(kafka.bootstrap, VERDICTS, Verdict)) >= 38, "38 windows", 120)
    assert worker.stop() == 0, worker.tail()
    letters = read_all(kafka.bootstrap, DEAD, DeadLetter)
    assert Counter(letter.reason for letter in letters) == {
        "empty": 2,
        "not-avro": 1,
        "unreadable-body": 1,
        "unknown-schema": 1,
        "wrong-dimensions": 1,
        "time-backwards": 1,
        "not-finite": 1,
    }
    assert next(each for each in letters if each.reason == "not-avro").value == b"not avro at all"
    verdicts = read_all(kafka.bootstrap, VERDICTS, Verdict)
    assert len({each.window_start_ns for each in verdicts}) == len(verdicts) == 38
    assert {each.state for each in verdicts} == {"warming", "scored"}


@pytest.mark.parametrize("kills", [2])
def test_kafka_killed_in_mid_stream(new_kafka: NewKafka, start: Start, kills: int) -> None:
    kafka, wanted = new_kafka(), expected(60)
    make_topics(kafka.bootstrap)
    worker = start(kafka)
    part = 60 // (kills + 1)
    for begin in range(0, 60, part):
        told = len(read_all(kafka.bootstrap, VERDICTS, Verdict))
        publish(kafka.bootstrap, run(HOSTS, begin + part, FAULT, begin=begin), pause_s=0.002)
        if begin + part < 60:
            eventually(lambda t=told: len(read_all(kafka.bootstrap, VERDICTS, Verdict)) > t, "verdicts", 120, 0.05)  # type: ignore[misc]
            kafka.kill()
            kafka.start()
            kafka.wait_ready()
    windows = set(wanted)
    eventually(
        lambda: {(v.host, v.window_start_ns) for v in read_all(kafka.bootstrap, VERDICTS, Verdict)} >= windows,
        "every window",
        90,
    )
    assert worker.stop() == 0, worker.tail()
    check(kafka, wanted)
