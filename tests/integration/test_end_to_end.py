"""Recorded telemetry through everything, from replay to ClickHouse; also with each of the four killed in mid-stream."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest

from deploy.kafka.server import LocalKafka
from schemas.codec import encode
from schemas.recording import RecordingWriter, read_recording
from schemas.records import Episode, Event, Verdict
from schemas.settings import PipelineSettings
from schemas.topics import EVENTS
from stream_processors.backtest import backtest
from tests.clickhouse_fixture import ClickHouseProcess
from tests.kafka_fixture import NewKafka
from tests.streams import Service, eventually, make_topics, publish_raw
from tests.synthetic import START, Fault, run

HOSTS = ("gpu-001", "gpu-002")
SECONDS = 80
SETTINGS = PipelineSettings(warmup_windows=30, rows=32, refit_windows=40)


@dataclass
class Stack:
    """Everything between a recording and SQL, as processes that a test may kill."""

    kafka: LocalKafka
    clickhouse: ClickHouseProcess
    directory: Path
    services: dict[str, Service] = field(default_factory=dict)

    def environ(self) -> Mapping[str, str]:
        return {
            "REVEAL_KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "REVEAL_CLICKHOUSE_PORT": str(self.clickhouse.port),
            "REVEAL_WORKER_DIRECTORY": str(self.directory / "worker"),
            "REVEAL_PIPELINE_WARMUP_WINDOWS": "30",
            "REVEAL_PIPELINE_ROWS": "32",
            "REVEAL_PIPELINE_REFIT_WINDOWS": "40",
        }

    def start(self, name: str, *arguments: str) -> Service:
        self.services[name] = Service(name, self.environ(), self.directory / f"{name}.log", *arguments)
        return self.services[name]

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        client = clickhouse_connect.get_client(host="127.0.0.1", port=self.clickhouse.port)
        try:
            return [tuple(row) for row in client.query(statement).result_rows]
        finally:
            client.close()

    def count(self, table: str) -> int:
        """Rows in ClickHouse; 0 while there is no table or no server."""
        try:
            return int(self.query(f"SELECT count() FROM reveal.{table}")[0][0])
        except Exception:  # whatever the client says of a server that is away or empty
            return 0

    def windows(self) -> int:
        """Verdicts in ClickHouse."""
        return self.count("verdicts")

    def wait_until_at_work(self) -> None:
        """Until sink and worker have taken a message, an event of a host that is in no recording."""
        first = Event("first", "s1", 0, START * 10**9, "oom_kill", "memory", "info", "a process", "kernel log")
        publish_raw(self.kafka.bootstrap, EVENTS, first.host.encode(), encode(first))
        eventually(lambda: "hosts restored" in self.services["worker"].tail(), "the worker at work")
        eventually(lambda: self.count("events") == 1, "the sink at work")

    def kill_and_restart(self, name: str) -> None:
        if name == "kafka":
            self.kafka.kill()
            self.kafka.start()
            self.kafka.wait_ready()
        elif name == "clickhouse":
            self.clickhouse.kill()
            self.clickhouse.start()
        else:
            self.services[name].kill()
            self.start(name)


@pytest.fixture
def stack(new_kafka: NewKafka, make_clickhouse: Callable[..., ClickHouseProcess], tmp_path: Path) -> Iterator[Stack]:
    kafka = new_kafka()
    make_topics(kafka.bootstrap)
    running = Stack(kafka, make_clickhouse(), tmp_path)
    yield running
    for service in running.services.values():
        if service.process.poll() is None:
            service.kill()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("recording") / "two-hosts"
    with RecordingWriter(directory) as writer:
        for batch in run(HOSTS, SECONDS, Fault(55, 67)):
            writer.write(batch)
    return directory


@pytest.fixture(scope="module")
def wanted(recording: Path) -> list[Verdict | Episode]:
    results = backtest(read_recording(recording), SETTINGS)
    return [each for each in results if isinstance(each, Verdict | Episode)]


def assert_everything_once(stack: Stack, wanted: list[Verdict | Episode]) -> None:
    """Verdicts as the backtest's, window by window; episodes; every second of telemetry; each of them once."""
    verdicts = {(v.host, v.window_start_ns // 10**9): v for v in wanted if isinstance(v, Verdict)}
    rows = stack.query(
        "SELECT host, toUnixTimestamp(window_start), state, votes, severity, coverage, ifNull(subsystem, ''),"
        " ifNull(episode, ''), scores FROM reveal.verdicts"
    )
    assert len(rows) == len(verdicts)
    assert {(row[0], row[1]) for row in rows} == set(verdicts)
    for host, start, *found in rows:
        verdict = verdicts[host, start]
        state, votes, severity, coverage, subsystem, episode, scores = found
        assert (state, votes, subsystem or None, episode or None) == (
            verdict.state,
            verdict.votes,
            verdict.subsystem,
            verdict.episode,
        )
        assert math.isclose(severity, verdict.severity, rel_tol=1e-9)
        assert coverage == verdict.coverage == 1.0
        assert scores == pytest.approx({score.detector: score.score for score in verdict.scores})
    episodes = [each for each in wanted if isinstance(each, Episode)]
    assert sorted(stack.query("SELECT id, revision FROM reveal.episodes")) == sorted(
        (e.id, e.revision) for e in episodes
    )
    evidence = stack.query("SELECT episode, revision, count() FROM reveal.evidence GROUP BY ALL")
    assert sorted(evidence) == sorted((e.id, e.revision, len(e.evidence)) for e in episodes if e.evidence)
    doubled = stack.query("SELECT host, metric, ts FROM reveal.telemetry GROUP BY ALL HAVING count() > 1")
    assert doubled == []
    seconds = stack.query(
        "SELECT host, metric, uniqExact(ts), toUnixTimestamp(min(ts)), toUnixTimestamp(max(ts))"
        " FROM reveal.telemetry GROUP BY ALL"
    )
    assert {row[2:] for row in seconds} == {(SECONDS, START, START + SECONDS - 1)}
    assert {row[0] for row in seconds} == set(HOSTS)
    assert stack.query("SELECT * FROM reveal.dead_letters") == []


def telemetry_is_complete(stack: Stack) -> bool:
    rows = stack.query("SELECT count() FROM (SELECT DISTINCT host, subsystem, ts FROM reveal.telemetry)")
    return int(rows[0][0]) == len(HOSTS) * 4 * SECONDS


def test_verdicts_in_clickhouse_equal_those_of_the_backtest(
    stack: Stack, recording: Path, wanted: list[Verdict | Episode]
) -> None:
    stack.start("warehouse")
    stack.start("worker")
    assert stack.start("replay", str(recording), "--speed", "max").wait(120) == 0, stack.services["replay"].tail()
    windows = sum(isinstance(each, Verdict) for each in wanted)
    eventually(lambda: stack.windows() == windows, lambda: f"{windows} windows, not {stack.windows()}")
    eventually(lambda: telemetry_is_complete(stack), "telemetry")
    for name in ("worker", "warehouse"):
        assert stack.services[name].stop() == 0, stack.services[name].tail()
    assert_everything_once(stack, wanted)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", ["worker", "warehouse", "kafka", "clickhouse"])
def test_sigkill_in_mid_stream(victim: str, stack: Stack, recording: Path, wanted: list[Verdict | Episode]) -> None:
    stack.start("warehouse")
    stack.start("worker")
    # On a busy machine the stream would be over before anybody could be killed in the middle of it: it waits there.
    stack.wait_until_at_work()
    replay = stack.start("replay", str(recording), "--speed", "5")
    halt = threading.Timer(6.0, replay.process.send_signal, [signal.SIGSTOP])
    halt.start()
    windows = sum(isinstance(each, Verdict) for each in wanted)
    # In the warm-up, while telemetry keeps coming, and again after it, when it still does unless the machine is slow.
    for share in (0.15, 0.5):
        eventually(lambda s=share: stack.windows() > s * windows, f"{share:.0%} of the windows", 120, 0.1)  # type: ignore[misc]
        assert share > 0.2 or replay.process.poll() is None, "the stream ended before the first kill"
        stack.kill_and_restart(victim)
        halt.cancel()
        replay.process.send_signal(signal.SIGCONT)
    assert replay.wait(120) == 0, replay.tail()
    eventually(
        lambda: stack.windows() == windows, lambda: f"{windows} windows after a kill of {victim}, not {stack.windows()}"
    )
    eventually(lambda: telemetry_is_complete(stack), "telemetry")
    for name in ("worker", "warehouse"):
        assert stack.services[name].stop() == 0, stack.services[name].tail()
    assert_everything_once(stack, wanted)
