"""The agent samples this machine on time, whatever becomes of Kafka, and says so when it could not."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from deploy.kafka.server import LocalKafka
from producers.selection import Selection
from schemas.catalogue import catalogue
from schemas.settings import AgentSettings
from tests.integration.test_agent import SECOND_NS, complete, records_of, reveal, running_agent
from tests.kafka_fixture import local_kafka
from tests.streams import Service, eventually, make_topics


def test_once_shows_this_machine() -> None:
    done = reveal("agent", "--once", "--json")
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    values = {(row["metric"], row["instance"]): row["value"] for row in rows}
    assert len(values) == len(rows) > 150
    metrics = catalogue()
    for row in rows:
        assert set(row) == {"metric", "instance", "unit", "value"}
        assert row["unit"] == metrics[row["metric"]].unit
        assert np.isfinite(row["value"])
    memory = psutil.virtual_memory()
    assert values["mem.total", ""] * 1024 == pytest.approx(memory.total, rel=1e-6)
    assert values["mem.available", ""] * 1024 == pytest.approx(memory.available, rel=0.2)
    cores = {instance for metric, instance in values if metric == "cpu.time.idle"}
    assert len(cores) == psutil.cpu_count()
    for core in cores:
        times = sum(
            value for (metric, place), value in values.items() if metric.startswith("cpu.time.") and place == core
        )
        assert times == pytest.approx(1.0, abs=0.15)
    interfaces = {instance for metric, instance in values if metric == "net.rx_bytes"}
    wanted = Selection({"interface": AgentSettings().interfaces})
    assert interfaces == {name for name in psutil.net_io_counters(pernic=True) if wanted("interface", name)}
    disks = {instance for metric, instance in values if metric == "disk.reads"}
    assert disks <= set(psutil.disk_io_counters(perdisk=True))
    if not Path("/proc/driver/nvidia").exists():
        assert "gpu" in done.stderr


@pytest.mark.stack
def test_agent_publishes_whole_seconds(broker: LocalKafka, tmp_path: Path) -> None:
    environ = {"REVEAL_KAFKA_BOOTSTRAP": broker.bootstrap, "REVEAL_AGENT_HOST": "whole"}
    with running_agent(environ, tmp_path / "agent.log") as agent:
        eventually(complete(broker.bootstrap, "whole", 4), "four seconds of telemetry")
        assert agent.stop() == 0, agent.tail()
        assert "0 failed, 0 dropped, 0 left in memory" in agent.tail()
    sessions = set()
    for subsystem, records in records_of(broker.bootstrap, "whole").items():
        for sequence, record in enumerate(records):
            assert (record.subsystem, record.sequence, record.period_ms, record.count) == (subsystem, sequence, 100, 10)
            assert record.start_ns == records[0].start_ns + sequence * SECOND_NS
            assert record.start_ns % SECOND_NS == 0
            sessions.add(record.session)
    assert len(sessions) == 1
    # The last record is what was there when the agent was told to stop.
    for record in records_of(broker.bootstrap, "whole")["cpu"][:-1]:
        sampled = ~np.isnan(record.metrics["cpu.time.idle"]).any(axis=1)
        assert sampled.sum() >= 10 - record.dropped
        assert record.metrics["cpu.time.idle"][sampled].mean() < 1.2


@pytest.mark.stack
def test_agent_starts_without_kafka_and_delivers_when_it_comes(tmp_path: Path) -> None:
    kafka = local_kafka(tmp_path / "kafka")
    environ = {"REVEAL_KAFKA_BOOTSTRAP": kafka.bootstrap, "REVEAL_AGENT_HOST": "early"}
    with running_agent(environ, tmp_path / "agent.log") as agent:
        eventually(lambda: "does not answer: sampling goes on" in agent.tail(), "a word about the missing Kafka")
        began_ns = time.time_ns()
        with kafka:
            make_topics(kafka.bootstrap)
            eventually(lambda: "delivering to Kafka" in agent.tail(), "deliveries")
            eventually(complete(kafka.bootstrap, "early", 3), "telemetry")
            assert agent.stop() == 0, agent.tail()
            for records in records_of(kafka.bootstrap, "early").values():
                # Nothing of the time before is lost, and nothing is out of order.
                assert records[0].start_ns < began_ns
                assert [record.sequence for record in records] == list(range(len(records)))
                assert records[-1].dropped < 50


@pytest.mark.stack
def test_agent_stops_in_time_while_kafka_is_away(tmp_path: Path) -> None:
    kafka = local_kafka(tmp_path / "kafka")
    agent = Service("agent", {"REVEAL_KAFKA_BOOTSTRAP": kafka.bootstrap}, tmp_path / "agent.log")
    try:
        eventually(lambda: "does not answer" in agent.tail(), "a word about the missing Kafka")
        began = time.monotonic()
        assert agent.stop() == 0, agent.tail()
        assert time.monotonic() - began < 8
    finally:
        agent.stop()


@pytest.mark.stack
def test_an_agent_that_was_stopped_says_what_it_lost(broker: LocalKafka, tmp_path: Path) -> None:
    environ = {"REVEAL_KAFKA_BOOTSTRAP": broker.bootstrap, "REVEAL_AGENT_HOST": "stopped"}
    with running_agent(environ, tmp_path / "agent.log") as agent:
        eventually(complete(broker.bootstrap, "stopped", 2), "two seconds of telemetry")
        process = psutil.Process(agent.process.pid)
        process.suspend()
        # Time is what passes here, and nothing tells when enough has.
        time.sleep(4.5)
        process.resume()
        told = re.compile(r"the agent did not run for ([\d.]+) s: (\d+) samples could not be taken")
        eventually(lambda: told.search(agent.tail()) is not None, "a word about the lost samples")
        assert agent.stop() == 0, agent.tail()
        found = told.search(agent.tail())
        assert found is not None
        assert 4 <= float(found[1]) < 60
        assert int(found[2]) == pytest.approx(10 * float(found[1]), abs=1)
        assert "the clock was set" not in agent.tail()
        assert "suspended" not in agent.tail()
        assert "has not moved" not in agent.tail()
    records = records_of(broker.bootstrap, "stopped")["cpu"]
    assert records[-1].dropped >= int(found[2])
    assert [record.sequence for record in records] == list(range(len(records)))


@pytest.mark.stack
@pytest.mark.parametrize("realtime", [True, False])
def test_all_threads_of_an_agent_go_first_unless_told_not_to(
    broker: LocalKafka, tmp_path: Path, realtime: bool
) -> None:
    """One that waits for another is as late as that one, and the publisher's threads hold locks."""
    environ = {
        "REVEAL_KAFKA_BOOTSTRAP": broker.bootstrap,
        "REVEAL_AGENT_HOST": f"first-{realtime}",
        "REVEAL_AGENT_REALTIME": str(realtime).lower(),
    }
    with running_agent(environ, tmp_path / "agent.log") as agent:
        eventually(complete(broker.bootstrap, f"first-{realtime}", 2), "two seconds of telemetry")
        threads = psutil.Process(agent.process.pid).threads()
        policies = {os.sched_getscheduler(thread.id) for thread in threads}
        assert agent.stop() == 0, agent.tail()
    if "does not let sampling go first" in agent.tail():
        pytest.skip("needs CAP_SYS_NICE or a limit on real-time priority")
    assert len(threads) > 3
    assert policies == {os.SCHED_RR if realtime else os.SCHED_OTHER}
    assert "gives way" not in agent.tail()
