"""Workers that are killed, join and leave while hosts speak at different times, and what must not stop them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.kafka.server import LocalKafka
from deploy.signals import STOP_S
from schemas.codec import encode
from schemas.records import DeadLetter, StateRecord, Telemetry, Verdict
from schemas.settings import PipelineSettings
from schemas.topics import DEAD, MODELS, TELEMETRY, VERDICTS
from stream_processors.backtest import backtest
from tests.kafka_fixture import NewKafka
from tests.streams import PARTITIONS, Service, eventually, make_topics, publish, publish_raw, read_all
from tests.synthetic import START, Fault, run, second

SETTINGS = PipelineSettings(warmup_windows=30, rows=32, refit_windows=40)
FAULT = Fault(57, 66)
SECONDS = 75
Start = Callable[..., Service]
Windows = Mapping[tuple[str, int], Verdict]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers; whatever still runs at the end is killed."""
    services: list[Service] = []

    def make(kafka: LocalKafka, instance: str = "worker-1", **more: str) -> Service:
        environ = {
            "REVEAL_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "REVEAL_KAFKA_PARTITIONS": str(PARTITIONS),
            "REVEAL_WORKER_INSTANCE": instance,
            "REVEAL_WORKER_DIRECTORY": str(tmp_path / instance),
            "REVEAL_PIPELINE_WARMUP_WINDOWS": str(SETTINGS.warmup_windows),
            "REVEAL_PIPELINE_ROWS": str(SETTINGS.rows),
            "REVEAL_PIPELINE_REFIT_WINDOWS": str(SETTINGS.refit_windows),
            **more,
        }
        services.append(Service("worker", environ, tmp_path / f"{instance}.log"))
        return services[-1]

    yield make
    for running in services:
        if running.process.poll() is None:
            running.kill()


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key, which decides its partition."""
    size, mask = len(key), 0xFFFFFFFF
    value = 0x9747B28C ^ size
    for at in range(0, size - size % 4, 4):
        part = int.from_bytes(key[at : at + 4], "little") * 0x5BD1E995 & mask
        part = (part ^ part >> 24) * 0x5BD1E995 & mask
        value = (value * 0x5BD1E995 & mask) ^ part
    if size % 4:
        value = (value ^ int.from_bytes(key[size - size % 4 :], "little")) * 0x5BD1E995 & mask
    value = (value ^ value >> 13) * 0x5BD1E995 & mask
    return value ^ value >> 15


def partition(host: str) -> int:
    return (murmur2(host.encode()) & 0x7FFFFFFF) % PARTITIONS


def hosts(*wanted: int) -> list[str]:
    """Names of hosts on these partitions, all different."""
    names = (f"gpu-{number:03}" for number in itertools.count())
    return [next(name for name in names if partition(name) == where) for where in wanted]


def windows(batches: list[Telemetry]) -> Windows:
    return {(v.host, v.window_start_ns): v for v in backtest(batches, SETTINGS) if isinstance(v, Verdict)}


def told(kafka: LocalKafka) -> list[Verdict]:
    return read_all(kafka.bootstrap, VERDICTS, Verdict)


def await_all(kafka: LocalKafka, wanted: Windows, *workers: Service) -> None:
    """Until every window is told; fails when a worker has ended meanwhile."""

    def complete() -> bool:
        for worker in workers:
            assert worker.process.poll() is None, worker.tail()
        return {(v.host, v.window_start_ns) for v in told(kafka)} >= set(wanted)

    eventually(complete, "every window", 120)


def check(kafka: LocalKafka, wanted: Windows) -> None:
    """Every window is told; each time as in the backtest; no message was rejected."""
    verdicts = told(kafka)
    assert {(v.host, v.window_start_ns) for v in verdicts} == set(wanted)
    assert [v for v in verdicts if v != wanted[v.host, v.window_start_ns]] == []
    assert read_all(kafka.bootstrap, DEAD, DeadLetter) == []


def test_hosts_out_of_phase_on_a_partition_and_a_worker_killed(new_kafka: NewKafka, start: Start) -> None:
    """Of two hosts in one partition the progress of one is ahead, so that what is done and what is not alternate in
    each topic. What is not done must come again.
    """
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    early, late = hosts(1, 1)
    batches = sorted((*run([early], SECONDS, FAULT), *run([late], SECONDS - 2)), key=_phase(late))
    wanted = windows(batches)
    # After the warm-up progress is told every few windows; the kills come at different places between.
    kills = [sum(_phase(late)(b) < (START + at) * 10**9 for b in batches) for at in (38, 44, 50, 56)]
    for begin, end in itertools.pairwise([0, *kills, len(batches)]):
        worker = start(kafka)
        publish(kafka.bootstrap, batches[begin:end])
        if end < len(batches):
            await_all(kafka, windows(batches[:end]), worker)
            # What Faust would commit by mistake it commits within a second, and nothing shows when it does not.
            time.sleep(2.5)
            worker.kill()
    await_all(kafka, wanted, worker)
    assert worker.stop() == 0, worker.tail()
    check(kafka, wanted)


def test_a_backlog_of_which_one_topic_lies_behind_others(new_kafka: NewKafka, start: Start) -> None:
    """All of it was sent just now, and reading what lies before takes longer than a subsystem is waited for."""
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    beside, host = hosts(1, 1)
    batches = list(run([host], SECONDS, FAULT))
    publish(kafka.bootstrap, [second(beside, "cpu", 0)] * 12_000)
    publish(kafka.bootstrap, batches)
    worker = start(kafka, REVEAL_PIPELINE_GRACE_S="0.2")
    wanted = windows(batches)
    eventually(lambda: {(v.host, v.window_start_ns) for v in told(kafka)} >= set(wanted), worker.tail, 120)
    assert worker.stop() == 0, worker.tail()
    assert [v for v in told(kafka) if v.host == host and v != wanted[v.host, v.window_start_ns]] == []
    assert read_all(kafka.bootstrap, DEAD, DeadLetter) == []


def test_a_collector_that_died_does_not_stop_the_others(new_kafka: NewKafka, start: Start) -> None:
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    [host] = hosts(2)
    worker = start(kafka, REVEAL_PIPELINE_GRACE_S="1.0")
    publish(kafka.bootstrap, run([host], 10))
    publish(kafka.bootstrap, [b for b in run([host], 40, begin=10) if b.subsystem != "storage"], pause_s=0.05)
    eventually(lambda: len(told(kafka)) >= 38, worker.tail, 60)
    assert worker.stop() == 0, worker.tail()
    coverage = {v.window_start_ns // 10**9 - START: round(v.coverage, 2) for v in told(kafka)}
    assert [coverage[start] for start in range(12)] == [1.0] * 8 + [0.92, 0.83, 0.75, 1.0]
    assert read_all(kafka.bootstrap, DEAD, DeadLetter) == []


def _phase(late: str) -> Callable[[Telemetry], int]:
    return lambda batch: batch.start_ns + (2_500_000_000 if batch.host == late else 0)


def test_workers_that_join_and_leave(new_kafka: NewKafka, start: Start) -> None:
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    batches = list(run(hosts(0, 1, 2, 3), SECONDS, FAULT))
    wanted = windows(batches)
    first = start(kafka, "one")
    hurry = threading.Event()
    publisher = threading.Thread(target=publish, args=(kafka.bootstrap, _paced(batches, hurry)))
    publisher.start()
    try:
        eventually(lambda: len(told(kafka)) > 8, "verdicts of the first worker")
        second_ = start(kafka, "two")
        eventually(lambda: "partition " in second_.tail(), "the second worker takes partitions")
        floor = len(told(kafka))
        eventually(lambda: len(told(kafka)) > floor + 8, "verdicts of both")
        second_.kill()
        second_ = start(kafka, "two")
        floor = len(told(kafka))
        eventually(lambda: len(told(kafka)) > floor + 8, "verdicts after a kill")
        assert first.stop() == 0, first.tail()
    finally:
        hurry.set()
        publisher.join(60)
    await_all(kafka, wanted, second_)
    assert second_.stop() == 0, second_.tail()
    check(kafka, wanted)


def _paced(batches: Iterable[Telemetry], hurry: threading.Event) -> Iterator[Telemetry]:
    """Slow enough that workers can come and go meanwhile, on a busy machine too; without a pause once told to hurry."""
    for batch in batches:
        yield batch
        hurry.wait(0.05)


@pytest.mark.parametrize("version", [0, 1])
def test_a_worker_killed_between_a_fit_and_its_adoption(new_kafka: NewKafka, start: Start, version: int) -> None:
    """The first fit of a host, or a refit: whoever takes over has the same model for the same window."""
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    [host] = hosts(1)
    batches = list(run([host], 130, Fault(110, 120)))
    wanted = windows(batches)
    asked = next(state["next_start"] for state in _progress(backtest(batches, SETTINGS), version)) - START
    half = 4 * (asked + 4)
    worker = start(kafka)
    publish(kafka.bootstrap, batches[:half])
    eventually(
        lambda: any(_progress(read_all(kafka.bootstrap, MODELS, StateRecord), version)),
        f"fit {version + 1} is asked for",
    )
    await_all(kafka, windows(batches[:half]), worker)
    assert max(v.model_version for v in told(kafka)) == version
    worker.kill()
    worker = start(kafka)
    publish(kafka.bootstrap, batches[half:])
    await_all(kafka, wanted, worker)
    assert worker.stop() == 0, worker.tail()
    assert max(v.model_version for v in wanted.values()) > version
    check(kafka, wanted)


def _progress(results: Iterable[object], version: int) -> Iterator[dict[str, Any]]:
    """States of a host in which a fit is under way, and `version` is in use."""
    for each in results:
        if isinstance(each, StateRecord) and each.slot == "progress":
            state = json.loads(each.manifest)
            if state["due"] is not None and state["using"] == version:
                yield state


def test_what_must_not_stop_a_worker(new_kafka: NewKafka, start: Start) -> None:
    """A message under another host's key, and garbage among the state that is read at the start."""
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    host, *keys = hosts(2, 2, 2, 2, 2)
    wrong = second(host, "cpu", 3)
    # All of it in the partition of the host: bytes, a record of another kind, and a progress that is none.
    for key, value in zip(keys, (b"garbage", b"", os.urandom(100), encode(wrong)), strict=True):
        publish_raw(kafka.bootstrap, MODELS, key.encode(), value)
    publish_raw(kafka.bootstrap, MODELS, host.encode(), encode(StateRecord(host, "progress", "no state", {})))
    worker = start(kafka)
    batches = list(run([host], 20))
    publish(kafka.bootstrap, batches[:16])
    publish_raw(kafka.bootstrap, TELEMETRY["cpu"], b"somebody else", encode(wrong))
    publish(kafka.bootstrap, batches[16:])
    wanted = windows(batches)
    await_all(kafka, wanted, worker)
    eventually(lambda: len(read_all(kafka.bootstrap, DEAD, DeadLetter)) > 0, "a dead letter")
    assert worker.stop() == 0, worker.tail()
    [letter] = read_all(kafka.bootstrap, DEAD, DeadLetter)
    assert (letter.reason, letter.key, letter.value) == ("wrong-key", b"somebody else", encode(wrong))
    assert {v.host for v in told(kafka)} == {host}
    assert {(v.host, v.window_start_ns): v for v in told(kafka)} == wanted
    log = worker.log.read_text()
    assert [log.count(f"state {key.encode()!r} in {MODELS} cannot be read") for key in keys] == [1, 1, 1, 0]
    assert f"the stored state of {host} cannot be used" in log


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_stops_within_seconds_although_kafka_is_gone(new_kafka: NewKafka, start: Start, fate: signal.Signals) -> None:
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    batches = list(run(hosts(0, 1), SECONDS, FAULT))
    worker = start(kafka)
    publish(kafka.bootstrap, batches[: len(batches) // 2])
    eventually(lambda: told(kafka), "verdicts")
    publish(kafka.bootstrap, batches[len(batches) // 2 :])
    assert kafka.pid is not None
    os.kill(kafka.pid, fate)
    began = time.monotonic()
    assert worker.stop() == 0, worker.tail()
    assert time.monotonic() - began < STOP_S + 5
