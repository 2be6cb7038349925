"""A run's parts: what it needs of the machine, and that children are ended."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from deploy.stack.errors import StackError
from deploy.stack.state import lock
from tests.laboratory import session
from tests.laboratory.session import Session, has_pmu
from tests.laboratory.workload import steps

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"


def test_performance_counters_are_seen(tmp_path: Path) -> None:
    devices = tmp_path / "sys/bus/event_source/devices"
    (devices / "software").mkdir(parents=True)
    assert not has_pmu(tmp_path)
    (devices / "cpu").mkdir()
    assert has_pmu(tmp_path)


def test_a_child_that_does_not_end_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        session._end(child, 0.2)
        assert child.returncode == -9


def test_a_directory_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with lock(tmp_path), pytest.raises(StackError, match="a laboratory runs"):
        Session(tmp_path, {}, Console(file=StringIO())).__enter__()
    assert (tmp_path / "mine").exists()


def test_what_was_begun_is_undone_when_the_start_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(argv: object, environ: object, output: object, death: object = 0) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[-1]

    monkeypatch.setattr(session, "start_bound", start)
    monkeypatch.setattr(session, "START_S", 0.5)
    with pytest.raises(StackError, match="did not become ready"):
        Session(tmp_path, {}, Console(file=StringIO())).__enter__()
    assert [child.returncode for child in started] == [-15]
    assert not (tmp_path / "scratch").exists()
    assert (tmp_path / "logs").exists()


def test_steps_that_come_late_do_not_wait() -> None:
    now, slept = 0.0, list[float]()

    def clock() -> float:
        nonlocal now
        now += 0.06  # so long between any two looks at the clock
        return now

    for _, _ in zip(range(5), steps(clock, slept.append), strict=False):
        pass
    assert len(slept) >= 4
    assert min(slept) == 0.0
