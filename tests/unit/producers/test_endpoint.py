"""The agent's pages, read back with Prometheus' own parser."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from producers.endpoint import site
from producers.reading import Problem
from producers.status import Status
from producers.vitals import Vitals
from schemas.records import Telemetry

WELL = Status(
    host="gpu-001",
    version="1.0",
    since_sample_s=0.05,
    stalled="",
    samples=1200,
    missed=3,
    batches=120,
    delivered=480,
    failed=0,
    waiting=4,
    reachable=True,
    vitals=Vitals(period_ms=100, sample_ms=1.5, dropped=3),
    errors={"numa": 2},
    costs={"stat": 0.25},
    problems=(Problem("thermal", 'sys/class/thermal/"zone"\n0', "hung", "no answer for 7.0 s"),),
)
NAN = float("nan")
RECORDS = (
    Telemetry(
        subsystem="cpu",
        host="gpu-001",
        session="s",
        sequence=1,
        start_ns=1,
        period_ms=500,
        count=2,
        instances={"host": ("",), "core": ("cpu0", "cpu1", "cpu2")},
        metrics={
            "cpu.load1": np.array([[1.0], [2.0]], np.float32),
            "cpu.busy_pct": np.array([[10.0, NAN, NAN], [30.0, 50.0, NAN]], np.float32),
        },
    ),
)


def get(status: Status, path: str) -> tuple[int, str]:
    code, _, text = site(lambda: status, lambda: RECORDS).get(path)
    return code, text


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_of_the_agent() -> None:
    code, text = get(WELL, "/metrics")
    found = samples(text)
    assert code == 200
    assert found["reveal_agent_samples_total", ()] == 1200
    assert found["reveal_agent_period_seconds", ()] == 0.1
    assert found["reveal_agent_messages_spooled", ()] == 0
    assert found["reveal_agent_kafka_reachable", ()] == 1
    assert found["reveal_agent_collector_errors_total", (("collector", "numa"),)] == 2
    assert found["reveal_agent_collector_cpu_seconds_total", (("collector", "stat"),)] == 0.25
    labels = (
        ("collector", "thermal"),
        ("kind", "hung"),
        ("path", 'sys/class/thermal/"zone"\n0'),
        ("reason", "no answer for 7.0 s"),
    )
    assert found["reveal_agent_problem", labels] == 1


def test_telemetry_is_the_mean_of_the_last_batch_and_absent_where_nothing_was_read() -> None:
    code, text = get(WELL, "/telemetry")
    assert code == 200
    assert samples(text) == {
        ("reveal_cpu_load1", ()): 1.5,
        ("reveal_cpu_busy_pct", (("core", "cpu0"),)): 20.0,
        ("reveal_cpu_busy_pct", (("core", "cpu1"),)): 50.0,
    }


@pytest.mark.parametrize(
    ("status", "alive", "ready", "words"),
    [
        (WELL, 200, 200, "ok"),
        (replace(WELL, reachable=False), 200, 503, "Kafka does not answer; 0 messages wait on disk, 4 in memory"),
        # A broker that takes connections and says nothing.
        (replace(WELL, vitals=Vitals(spooled=7)), 200, 503, "7 messages wait on disk"),
        (replace(WELL, reachable=None), 200, 503, "nothing delivered to Kafka yet"),
        (replace(WELL, batches=0), 200, 503, "no batch yet"),
        (replace(WELL, since_sample_s=11.0), 503, 503, "no sample for 11 s"),
        (replace(WELL, stalled="stuck in publishing"), 503, 503, "the sampling loop is stuck in publishing"),
        (replace(WELL, since_sample_s=None, batches=0), 200, 503, "no batch yet"),
    ],
)
def test_alive_and_ready_are_two_questions(status: Status, alive: int, ready: int, words: str) -> None:
    assert get(status, "/healthz")[0] == alive
    code, text = get(status, "/readyz")
    assert code == ready
    assert words in text
    assert "thermal" in text, "what hangs is said even when all is well"
