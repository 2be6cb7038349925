"""The agent's commands on this machine and a real Kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.kafka.ports import free_ports
from deploy.kafka.server import LocalKafka
from producers.publisher import Episodes
from schemas.catalogue import catalogue
from schemas.codec import encode
from schemas.recording import read_recording
from schemas.records import Episode, Telemetry
from schemas.topics import ANOMALIES, TELEMETRY
from tests.kafka_fixture import local_kafka
from tests.streams import Service, eventually, make_topics, producer, read_all
from tests.unit.producers.episodes import episode

SUBSYSTEMS = ("cpu", "memory", "network", "storage")
SECOND_NS = 1_000_000_000


def reveal(
    *arguments: str, environ: Mapping[str, str] | None = None, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "deploy.cli", *arguments],
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@contextmanager
def running_agent(environ: Mapping[str, str], log: Path) -> Iterator[Service]:
    """An agent in a process of its own, stopped afterwards."""
    agent = Service("agent", environ, log)
    try:
        yield agent
    finally:
        agent.stop()


def records_of(bootstrap: str, host: str) -> dict[str, list[Telemetry]]:
    """Telemetry of one host by subsystem."""
    found = {}
    for subsystem in SUBSYSTEMS:
        records = read_all(bootstrap, TELEMETRY[subsystem], Telemetry)
        found[subsystem] = [record for record in records if record.host == host]
    return found


def complete(bootstrap: str, host: str, count: int) -> Callable[[], bool]:
    """Whether there are so many records of each subsystem."""
    return lambda: all(len(records) >= count for records in records_of(bootstrap, host).values())


def test_once_says_what_is_missing_and_why(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "loadavg").write_text("0.5 0.25 0.1 1/2 3\n")
    (proc / "meminfo").write_text("MemTotal: 5 kB\n")
    os.mkfifo(proc / "vmstat")
    environ = {
        "REVEAL_AGENT_PROCFS": str(proc),
        "REVEAL_AGENT_SYSFS": str(tmp_path),
        "REVEAL_AGENT_DISABLE": "netdev",
    }
    done = reveal("agent", "--once", "--json", environ=environ)
    # What the agent says of itself, and what it asks the kernel without a file, is there all the same.
    rows = [(row["metric"], row["value"]) for row in json.loads(done.stdout)]
    assert {(metric, value) for metric, value in rows if not metric.startswith(("agent.", "cpu.perf.", "fs."))} == {
        ("cpu.load1", 0.5),
        ("cpu.load5", 0.25),
        ("mem.total", 5.0),
    }
    assert "stat: proc/stat is missing: No such file or directory" in done.stderr
    assert "vmstat: proc/vmstat is failing: not a regular file" in done.stderr
    assert "netdev: switched off" in done.stderr
    table = reveal("agent", "--once", environ=environ).stdout
    assert "mem.total" in table
    assert "stat: proc/stat is missing: No such file or directory" in table


def test_wrong_settings_are_told_in_words() -> None:
    done = reveal("agent", status=2, environ={"REVEAL_AGENT_DISABLE": "fans"})
    assert "there is no collector fans" in done.stderr
    assert "Traceback" not in done.stderr


def test_metrics_are_the_catalogue() -> None:
    rows = json.loads(reveal("metrics", "--json").stdout)
    assert [row["name"] for row in rows] == list(catalogue())
    assert set(rows[0]) == {"name", "subsystem", "unit", "kind", "dimension", "doc"}
    assert "net.rx_dropped" in reveal("metrics").stdout


@pytest.mark.stack
def test_recording_is_replayed_exactly(broker: LocalKafka, tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    reveal("record", str(directory), "--seconds", "4", environ={"REVEAL_AGENT_HOST": "recorded"})
    records = list(read_recording(directory))
    assert {record.subsystem for record in records} == set(SUBSYSTEMS)
    assert len(records) >= 12
    kafka = {"REVEAL_KAFKA_BOOTSTRAP": broker.bootstrap}
    done = reveal("replay", str(directory), "--speed", "max", environ=kafka)
    assert f"{len(records)} of {len(records)} records delivered" in done.stdout
    reveal("replay", str(directory), "--speed", "max", "--host", "again", "--now", environ=kafka)
    for subsystem in SUBSYSTEMS:
        sent = [record for record in records if record.subsystem == subsystem]
        same = records_of(broker.bootstrap, "recorded")[subsystem]
        assert [encode(record) for record in same] == [encode(record) for record in sent]
        moved = records_of(broker.bootstrap, "again")[subsystem]
        shift_ns = moved[0].start_ns - sent[0].start_ns
        assert shift_ns > 0
        assert shift_ns % SECOND_NS == 0
        assert {record.session for record in moved}.isdisjoint({record.session for record in sent})
        for new, old in zip(moved, sent, strict=True):
            back = replace(new, host=old.host, session=old.session, start_ns=new.start_ns - shift_ns)
            assert encode(back) == encode(old)


@pytest.mark.stack
def test_recording_from_kafka(broker: LocalKafka, tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    kafka = {"REVEAL_KAFKA_BOOTSTRAP": broker.bootstrap}
    with running_agent({**kafka, "REVEAL_AGENT_HOST": "taped"}, tmp_path / "agent.log"):
        eventually(complete(broker.bootstrap, "taped", 1), "telemetry")
        reveal("record", str(directory), "--seconds", "6", "--from-kafka", environ=kafka)
    taped = list(read_recording(directory))
    published = records_of(broker.bootstrap, "taped")
    assert {record.subsystem for record in taped} == set(SUBSYSTEMS)
    for record in taped:
        original = published[record.subsystem][record.sequence]
        assert encode(original) == encode(record)


def test_what_cannot_be_done_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "cpu.avro").write_bytes(b"")
    assert "already holds a recording" in reveal("record", str(tmp_path), status=1).stderr
    done = reveal("replay", str(tmp_path / "none"), status=1, environ={"REVEAL_KAFKA_BOOTSTRAP": "127.0.0.1:9"})
    assert "is no recording" in done.stderr or "does not answer" in done.stderr


@pytest.mark.stack
def test_episodes_of_the_own_host_are_heard(broker: LocalKafka) -> None:
    client = {"bootstrap.servers": broker.bootstrap}
    heard: list[Episode] = []
    out = producer(broker.bootstrap)

    def publish_episode(host: str, revision: int) -> None:
        out.produce(ANOMALIES, encode(episode(host=host, revision=revision)), host.encode())
        assert out.flush(30) == 0

    publish_episode("heard", 0)
    episodes = Episodes(client, "heard", heard.append)
    try:
        # What was there before it listened is not told; it listens once something is heard.
        revision = 0

        def told() -> bool:
            nonlocal revision
            revision += 1
            publish_episode("heard", revision)
            for number in range(4):
                publish_episode(f"other-{number}", 0)
            return bool(heard)

        eventually(told, "an episode")
        out.produce(ANOMALIES, b"garbage", b"heard")
        publish_episode("heard", 1000)
        eventually(lambda: heard[-1].revision == 1000, "the last state")
        assert {each.host for each in heard} == {"heard"}
        assert 0 not in {each.revision for each in heard}
    finally:
        began = time.monotonic()
        episodes.close()
        assert time.monotonic() - began < 5


@pytest.mark.stack
def test_episodes_wait_for_kafka(tmp_path: Path) -> None:
    kafka = local_kafka(tmp_path / "kafka")
    heard: list[Episode] = []
    episodes = Episodes({"bootstrap.servers": kafka.bootstrap}, "early", heard.append)
    try:
        with kafka:
            make_topics(kafka.bootstrap)
            out = producer(kafka.bootstrap)

            def told() -> bool:
                out.produce(ANOMALIES, encode(episode(host="early")), b"early")
                assert out.flush(30) == 0
                return bool(heard)

            eventually(told, "an episode")
    finally:
        episodes.close()


def page(port: int, path: str) -> tuple[int, str]:
    """Status and text of a page of the agent; 0 while nothing is served."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_the_agent_says_how_it_is(broker: LocalKafka, tmp_path: Path) -> None:
    port = free_ports(1)[0]
    environ = {"REVEAL_KAFKA_BOOTSTRAP": broker.bootstrap, "REVEAL_AGENT_HTTP_PORT": str(port)}
    with running_agent(environ, tmp_path / "agent.log"):
        eventually(lambda: page(port, "/readyz")[0] == 200, "ready")
        assert page(port, "/healthz")[0] == 200
        own, telemetry = page(port, "/metrics")[1], page(port, "/telemetry")[1]
    assert 'reveal_agent_collector_cpu_seconds_total{collector="stat"}' in own
    assert "reveal_agent_kafka_reachable 1.0" in own
    assert 'reveal_cpu_busy_pct{core="cpu0"}' in telemetry
    assert "reveal_mem_total " in telemetry


def test_an_agent_without_kafka_is_alive_and_not_ready_and_a_taken_port_stops_nobody(tmp_path: Path) -> None:
    port, nowhere = free_ports(2)
    environ = {"REVEAL_KAFKA_BOOTSTRAP": f"127.0.0.1:{nowhere}", "REVEAL_AGENT_HTTP_PORT": str(port)}
    with running_agent(environ, tmp_path / "agent.log"):
        eventually(lambda: "Kafka does not answer" in page(port, "/readyz")[1], "a word on Kafka")
        assert page(port, "/readyz")[0] == 503
        assert page(port, "/healthz")[0] == 200
        with running_agent(environ, tmp_path / "second.log") as second:
            eventually(lambda: "nothing is served on 127.0.0.1" in second.log.read_text(), "a word on the port")
            assert second.stop() == 0, second.tail()
