"""The demo's parts: real faults in small, what belongs to them, and the report."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from deploy.demo import faults, report
from deploy.demo.faults import FAULTS, writeback_bytes
from deploy.demo.findings import Anomaly, Findings
from deploy.demo.report import Outcome, number, show_others, show_outcome
from deploy.demo.show import Demo, filesystem
from deploy.demo.watch import progress
from deploy.kafka.ports import free_ports
from deploy.stack.errors import StackError
from deploy.stack.state import lock
from schemas.records import Evidence
from schemas.settings import ClickHouseSettings
from tests.unit.deploy.supervised import alive, until

ANOMALY = Anomaly(
    id="abc",
    state="closed",
    subsystem="cpu",
    start=1000.0,
    opened=1003.0,
    closed=1012.0,
    windows=9,
    votes={"zscore": 9, "forest": 7},
    shares={"cpu": 0.8, "memory": 0.2, "network": 0.001},
    peak_severity=4.2,
    explanation="h: the cpu is busy",
)
EVIDENCE = Evidence("cpu.time.user", "cpu", "1", "level of the spread", "%", 99.0, 3.0, 40.0, 100.0, 2.5)
OUTCOME = Outcome(FAULTS["cpu-hog"], 1000.5, 1012.5, ANOMALY, 1004.0, (EVIDENCE,))


def act(name: str, seconds: float, place: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "deploy.demo.faults", name, str(seconds), str(place)])


def test_hog_keeps_one_core_busy_and_stops_by_itself(tmp_path: Path) -> None:
    assert act("cpu-hog", 0.1, tmp_path).wait(10) == 0
    with act("cpu-hog", 60, tmp_path) as hog:
        process = psutil.Process(hog.pid)
        until(lambda: len(process.cpu_affinity() or ()) == 1)
        assert process.cpu_affinity() == [max(os.sched_getaffinity(0))]
        # Others may want the core as well.
        until(lambda: process.cpu_times().user > 0.7, 40)
        hog.kill()


def test_burst_writes_its_share_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "MOST", 100 << 20)
    before = _written_back()
    began = time.monotonic()
    faults.burst_writeback(1.0, tmp_path)
    assert time.monotonic() - began < 8
    assert _written_back() - before >= 90 << 20
    assert list(tmp_path.iterdir()) == []


def test_burst_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    with act("writeback", 20, tmp_path) as process:
        until(lambda: psutil.Process(process.pid).io_counters().write_chars > 100 << 20)
        process.kill()
        process.wait()
    assert list(tmp_path.iterdir()) == []


def test_burst_is_bounded_by_the_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert writeback_bytes(tmp_path) <= 1536 << 20
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert writeback_bytes(tmp_path) == 100


def test_anomaly_belongs_to_the_fault_it_starts_in() -> None:
    assert ANOMALY.belongs_to(1002.0, 1014.0)
    assert ANOMALY.belongs_to(990.0, 998.0)
    assert not ANOMALY.belongs_to(1002.1, 1014.0)
    assert not ANOMALY.belongs_to(980.0, 997.9)


def test_outcome_passes_only_with_the_right_subsystem() -> None:
    assert OUTCOME.passed
    assert OUTCOME.shortcoming == ""
    wrong = replace(OUTCOME, anomaly=replace(ANOMALY, subsystem="network"))
    assert not wrong.passed
    assert wrong.shortcoming == "CPU hog: attributed to network, not to cpu"
    assert replace(OUTCOME, anomaly=None).shortcoming == "CPU hog: no episode started while it ran"
    burst = FAULTS["writeback"]
    for subsystem in ("memory", "storage"):
        assert replace(OUTCOME, fault=burst, anomaly=replace(ANOMALY, subsystem=subsystem)).passed


def test_report_says_everything() -> None:
    console = Console(file=io.StringIO(), width=160)
    show_outcome(console, OUTCOME)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in (
        "CPU hog",
        "opened 2.5 s after the fault began, readable in ClickHouse after 3.5 s",
        "lasted 12 s, 9 anomalous windows; peak severity 4.2",
        "cpu (right;",
        "cpu 80%, memory 20%",
        "forest 7, zscore 9",
        "h: the cpu is busy",
        "level of the spread",
        "+40 σ",
        "1: 100 (usually 2.5)",
    ):
        assert part in text
    assert "network" not in text


def test_report_of_nothing_and_of_others() -> None:
    console = Console(file=io.StringIO(), width=160)
    show_outcome(console, replace(OUTCOME, anomaly=None))
    show_others(console, [])
    show_others(console, [replace(ANOMALY, closed=None)])
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "nothing" in text
    assert "No other episode" in text
    assert "00:16:40 UTC  cpu, still open, 9 anomalous windows" in text


def test_numbers() -> None:
    assert [number(value) for value in (12345.6, 999.4, 0.012345, -2000)] == ["12,346", "999", "0.0123", "-2,000"]
    assert report.ROWS > 3


def test_progress_elsewhere_than_on_a_terminal_is_a_line_now_and_then() -> None:
    now = 0.0
    console = Console(file=io.StringIO(), width=100)
    with progress(console, "warm-up", 60, lambda: now) as advance:
        for done in range(61):
            now = float(done)
            advance(done, "windows")
            advance(done, "windows")
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == [f"warm-up: {done} of 60  windows" for done in range(0, 61, 10)]


def test_progress_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with progress(console, "warm-up", 60) as advance:
        advance(60, "windows")
    assert "60/60" in console.file.getvalue()  # type: ignore[attr-defined]


def test_findings_without_clickhouse_are_none() -> None:
    findings = Findings(ClickHouseSettings(port=free_ports(1)[0]), "host")
    assert findings.progress().windows == 0
    assert findings.anomalies() == []
    findings.close()


def test_filesystem_of_memory_is_told_from_a_disk() -> None:
    assert filesystem(Path("/proc")) == "proc"
    if os.path.ismount("/dev/shm"):
        assert filesystem(Path("/dev/shm")) == "tmpfs"


def test_demo_refuses_to_empty_the_folder_of_a_running_one(tmp_path: Path) -> None:
    environ = {**os.environ, "REVEAL_STACK_DIRECTORY": str(tmp_path)}
    with lock(tmp_path / "demo"), pytest.raises(StackError, match="a demo still runs in"):
        Demo(environ, {}, None, Console(file=io.StringIO())).run(keep=False)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_demo_ends_its_stack_when_it_is_ended(tmp_path: Path, how: signal.Signals) -> None:
    kafka, controller, clickhouse = free_ports(3)
    environ = {
        **os.environ,
        "REVEAL_STACK_DIRECTORY": str(tmp_path),
        "REVEAL_STACK_KAFKA_PORT": str(kafka),
        "REVEAL_STACK_KAFKA_CONTROLLER_PORT": str(controller),
        "REVEAL_STACK_CLICKHOUSE_PORT": str(clickhouse),
    }
    with subprocess.Popen([sys.executable, "-m", "deploy.cli", "demo"], env=environ, stdout=subprocess.DEVNULL) as demo:
        me = psutil.Process(demo.pid)
        until(lambda: len(me.children(recursive=True)) >= 2, 60)
        pids = [child.pid for child in me.children(recursive=True)]
        demo.send_signal(how)
        assert demo.wait(60) == (-how if how is signal.SIGKILL else 130)
        until(lambda: not any(alive(pid) for pid in pids), 40)


def _written_back() -> int:
    """Bytes the kernel has written back since it started."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("nr_written ")) * os.sysconf("SC_PAGE_SIZE")
