"""Faults of our own: bounded, and undone however they end."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.laboratory.acts import meminfo, more_huge_pages
from tests.unit.deploy.supervised import until


def act(name: str, seconds: float, directory: Path, *arguments: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "tests.laboratory.acts", name, str(seconds), str(directory), *arguments]
    return subprocess.Popen(argv, stdout=subprocess.PIPE)


@pytest.fixture
def sleeper() -> Iterator[psutil.Process]:
    with subprocess.Popen(["sleep", "60"]) as child:
        yield psutil.Process(child.pid)
        child.kill()


@pytest.mark.parametrize("told", [True, False])
def test_freeze_lets_go_on_what_it_stopped(sleeper: psutil.Process, tmp_path: Path, told: bool) -> None:
    with act("freeze", 60 if told else 0.5, tmp_path, str(sleeper.pid)) as child:
        until(lambda: sleeper.status() == psutil.STATUS_STOPPED)
        if told:
            child.terminate()
        assert child.wait(10) == 0
    assert sleeper.status() != psutil.STATUS_STOPPED


def test_freeze_survives_the_end_of_what_it_stopped(tmp_path: Path, sleeper: psutil.Process) -> None:
    with act("freeze", 60, tmp_path, str(sleeper.pid)) as child:
        until(lambda: sleeper.status() == psutil.STATUS_STOPPED)
        sleeper.kill()
        sleeper.wait(10)
        child.terminate()
        assert child.wait(10) == 0


def test_page_faults_stop_by_themselves_and_fault_meanwhile(tmp_path: Path) -> None:
    with act("page-faults", 0.3, tmp_path) as child:
        assert child.wait(20) == 0
    with act("page-faults", 60, tmp_path) as child:
        before = _faults(child.pid)
        until(lambda: _faults(child.pid) > before + 20_000)
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0


def _faults(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def test_huge_pages_are_given_back(tmp_path: Path) -> None:
    setting = tmp_path / "nr_hugepages"
    setting.write_text("3\n")
    with pytest.raises(KeyboardInterrupt), more_huge_pages(5, setting):
        assert setting.read_text() == "8\n"
        raise KeyboardInterrupt
    assert setting.read_text() == "3\n"


def test_a_kernel_that_has_no_huge_pages_to_give_is_an_error(tmp_path: Path) -> None:
    setting = tmp_path / "nr_hugepages"
    setting.write_text("3\n")
    with pytest.raises(OSError, match="no memory for huge pages"), more_huge_pages(0, setting):
        pass
    assert setting.read_text() == "3\n"


def test_a_figure_of_meminfo(tmp_path: Path) -> None:
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:       1000 kB\nMemAvailable:    250 kB\n")
    assert meminfo("MemAvailable", path) == 250 << 10


def test_what_the_kernel_refuses_is_said(tmp_path: Path) -> None:
    with act("wire", 60, tmp_path, "loss", "5") as child:
        assert child.wait(10) == 1
        assert child.stdout is not None
        assert b"No such file" in child.stdout.read()


PARENT = """
import os, signal, sys, time
from deploy.process import start_bound
start_bound([sys.executable, "-m", "tests.laboratory.acts", *sys.argv[1:]], os.environ, None, signal.SIGTERM)
time.sleep(60)
"""


def test_a_fault_is_undone_when_the_laboratory_is_killed(sleeper: psutil.Process, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PARENT, "freeze", "60", str(tmp_path), str(sleeper.pid)]
    with subprocess.Popen(argv) as laboratory:
        until(lambda: sleeper.status() == psutil.STATUS_STOPPED)
        laboratory.kill()
    until(lambda: sleeper.status() != psutil.STATUS_STOPPED)
