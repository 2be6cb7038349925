"""Events end to end: from the kernel's log to SQL, and into the evidence of an episode, whichever worker tells it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest

from deploy.kafka.server import LocalKafka
from schemas.codec import encode
from schemas.records import DeadLetter, Event, StateRecord, Verdict
from schemas.settings import PipelineSettings
from schemas.topics import DEAD, EVENTS, MODELS, VERDICTS
from stream_processors.backtest import backtest
from stream_processors.happenings import SLOT
from tests.clickhouse_fixture import ClickHouseProcess
from tests.streams import Service, eventually, publish, publish_raw, read_all
from tests.synthetic import START, Fault, run

pytestmark = pytest.mark.stack

SETTINGS = PipelineSettings(warmup_windows=30, rows=32, refit_windows=40)
XID = "4,7,1,-;NVRM: Xid (PCI:0000:cb:00): 79, pid=7, name=secret, GPU has fallen off the bus.\n"
HOST = "gpu-001"
OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"
NANO = 10**9


@dataclass
class Stack:
    """Kafka, ClickHouse and the services of one test."""

    kafka: LocalKafka
    clickhouse: ClickHouseProcess
    directory: Path
    services: list[Service] = field(default_factory=list)

    def start(self, name: str, **environ: str) -> Service:
        settings = {
            "REVEAL_KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "REVEAL_CLICKHOUSE_PORT": str(self.clickhouse.port),
            "REVEAL_CLICKHOUSE_DATABASE": "events",
            "REVEAL_WORKER_DIRECTORY": str(self.directory / "worker"),
            "REVEAL_PIPELINE_WARMUP_WINDOWS": "30",
            "REVEAL_PIPELINE_ROWS": "32",
            "REVEAL_PIPELINE_REFIT_WINDOWS": "40",
            "REVEAL_AGENT_SPOOL": str(self.directory / "spool"),
            "REVEAL_AGENT_HTTP_PORT": "0",
        }
        self.services.append(Service(name, settings | environ, self.directory / f"{name}.log"))
        return self.services[-1]

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows; none while there is no table."""
        client = clickhouse_connect.get_client(host="127.0.0.1", port=self.clickhouse.port)
        try:
            return [tuple(row) for row in client.query(statement).result_rows]
        except clickhouse_connect.driver.exceptions.DatabaseError:
            return []
        finally:
            client.close()


@pytest.fixture
def stack(broker: LocalKafka, clickhouse: ClickHouseProcess, tmp_path: Path) -> Iterator[Stack]:
    running = Stack(broker, clickhouse, tmp_path)
    yield running
    for service in running.services:
        if service.process.poll() is None:
            service.kill()


def test_an_xid_travels_from_the_kernels_log_to_sql(stack: Stack, tmp_path: Path) -> None:
    kmsg = tmp_path / "kmsg"
    kmsg.write_text(XID.replace("79", "13"))  # from before the agent began
    stack.start("warehouse")
    agent = stack.start("agent", REVEAL_AGENT_HOST="real", REVEAL_AGENT_KMSG=str(kmsg))
    eventually(lambda: bool(stack.query("SELECT 1 FROM events.batches WHERE host = 'real'")), "telemetry")
    began_ns = time.time_ns()
    with kmsg.open("a") as log:
        log.write(XID)
    told = (
        "SELECT instance, code, subsystem, severity, message, source, toUnixTimestamp64Milli(ts) FROM events.events "
        "WHERE host = 'real' AND kind = 'xid'"
    )
    eventually(lambda: bool(stack.query(told)), f"an XID in ClickHouse; the agent says {agent.tail()}")
    assert agent.stop() == 0, agent.tail()
    [(*words, time_ms)] = stack.query(told)
    message = "Xid 79 on 0000:cb:00: GPU has fallen off the bus."
    assert words == ["0000:cb:00", 79, "gpu", "critical", message, "kernel log"]
    assert began_ns / 10**6 - 2000 <= time_ms <= time.time_ns() / 10**6
    [documented] = re.findall(r'reveal sql "(SELECT .* FROM events .*)"', OPERATING.read_text())
    [row] = stack.query(documented.replace("FROM events", "FROM events.events"))
    assert row[:4] == ("real", "0000:cb:00", 79, 1)
    [(detail,)] = stack.query("SELECT detail FROM events.host_timeline WHERE host = 'real' AND event = 'xid'")
    assert detail == f"critical on 0000:cb:00: {message}"


def test_an_event_is_evidence_also_after_a_take_over(stack: Stack) -> None:
    """The worker that read the event is killed before the episode opens; what cannot be read stops nobody."""
    kafka = stack.kafka.bootstrap
    fault = Fault(60, 72)
    wanted = {v.window_start_ns: v for v in backtest(run([HOST], 90, fault), SETTINGS) if isinstance(v, Verdict)}
    xid = Event(
        host=HOST,
        session="s1",
        sequence=0,
        time_ns=(START + 58) * NANO,
        kind="xid",
        subsystem="gpu",
        severity="critical",
        message="GPU has fallen off the bus",
        source="kernel log",
        instance="gpu3",
        code=79,
    )

    def verdicts() -> list[Verdict]:
        return [each for each in read_all(kafka, VERDICTS, Verdict) if each.host == HOST]

    stack.start("warehouse")
    worker = stack.start("worker")
    publish(kafka, run([HOST], 55, fault))
    publish_raw(kafka, EVENTS, HOST.encode(), b"no event", encode(xid), encode(next(run([HOST], 1))))
    publish_raw(kafka, EVENTS, b"somebody else", encode(xid))
    eventually(lambda: len(verdicts()) >= 53, "windows before the fault")
    eventually(lambda: any(each.slot == SLOT for each in read_all(kafka, MODELS, StateRecord)), "the event's record")
    worker.kill()
    stack.start("worker")
    publish(kafka, run([HOST], 90, fault, begin=55))
    eventually(lambda: len({v.window_start_ns for v in verdicts()}) == len(wanted), "every window")
    evidence = (
        "SELECT instance, observed, unit, subsystem, feature FROM events.anomaly_evidence "
        f"WHERE host = '{HOST}' AND metric = 'event.xid'"
    )
    eventually(lambda: bool(stack.query(evidence)), "evidence in ClickHouse")
    assert stack.query(evidence) == [("gpu3", 79.0, "code", "gpu", "GPU has fallen off the bus")]
    eventually(
        lambda: stack.query(f"SELECT state FROM events.anomalies WHERE host = '{HOST}'") == [("closed",)], "the close"
    )
    [(explanation,)] = stack.query(f"SELECT explanation FROM events.anomalies WHERE host = '{HOST}'")
    assert explanation.endswith(". Events: xid on gpu3: GPU has fallen off the bus")
    for verdict in verdicts():
        same = wanted[verdict.window_start_ns]
        assert (verdict.state, verdict.votes, verdict.subsystem, verdict.episode) == (
            same.state,
            same.votes,
            same.subsystem,
            same.episode,
        )
        assert verdict.severity == pytest.approx(same.severity)
    letters = {(each.service, each.reason) for each in read_all(kafka, DEAD, DeadLetter) if each.topic == EVENTS}
    assert letters == {
        ("worker", "not-avro"),
        ("worker", "wrong-record"),
        ("worker", "wrong-key"),
        ("warehouse", "not-avro"),
        ("warehouse", "wrong-record"),
    }
