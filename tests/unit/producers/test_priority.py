"""An agent that goes before everything else, and gives way when it does not sleep."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from typing import Final

import pytest

from producers.priority import BUSY_S, Priority

PROGRAM: Final = """
import os, subprocess, sys, threading, time
from producers.priority import Priority, as_usual
priority = Priority()
priority.go_first()
if not priority.first:
    print("refused", priority.refused)
    sys.exit()
POLICY = "import os; print(os.sched_getscheduler(0))"
def policies():
    return [os.sched_getscheduler(int(thread)) for thread in os.listdir("/proc/self/task")]
def run(seconds, spin):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        if not spin:
            time.sleep(0.01)
how = sys.argv[1]
if how == "child":
    with as_usual():
        child = subprocess.run([sys.executable, "-c", POLICY], capture_output=True, text=True).stdout.strip()
    print(child, *policies(), sep="|")
    sys.exit()
if how == "meanwhile":
    with as_usual():
        priority.give_way("made up")
    print(*policies())
    sys.exit()
seconds = 4 * float(sys.argv[2]) if how == "spin" else 0.05
thread = threading.Thread(target=run, args=(seconds, how == "spin"))
thread.start()
before = policies()
if how == "stuck":
    priority.give_way("its loop has not moved")
while thread.is_alive():
    thread.join(1.0)
    if how == "spin" and not priority.first:
        break
print(*before, "|", *policies(), "|", priority.refused)
"""
OTHER, RR = str(os.SCHED_OTHER), str(os.SCHED_RR)


def run(how: str) -> str:
    """What the program says, which has to be allowed to go first."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how, str(BUSY_S)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("refused"):
        pytest.skip(f"needs CAP_SYS_NICE or a limit on real-time priority: {done.stdout}")
    return done.stdout.strip()


def test_all_threads_go_first() -> None:
    before, after, refused = run("sleep").split("|")
    assert before.split() == [RR, RR]
    assert set(after.split()) == {RR}
    assert refused.strip() == ""


@pytest.mark.parametrize(("how", "why"), [("spin", "it did not sleep for 0.5 s"), ("stuck", "its loop has not moved")])
def test_all_give_way(how: str, why: str) -> None:
    """The interpreter lets other threads run in between, so the kernel may not see a loop that never ends."""
    before, after, refused = run(how).split("|")
    assert before.split() == [RR, RR]
    assert set(after.split()) == {OTHER}
    assert refused.strip() == f"sampling gives way: {why}"


def test_a_child_is_as_usual() -> None:
    child, *own = run("child").split("|")
    assert child == OTHER
    assert set(own) == {RR}


def test_what_was_given_away_meanwhile_is_not_taken_back() -> None:
    assert set(run("meanwhile").split()) == {OTHER}


def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    limits, handler = resource.getrlimit(resource.RLIMIT_RTTIME), signal.getsignal(signal.SIGXCPU)
    priority = Priority()
    try:
        with caplog.at_level("INFO"):
            priority.go_first()
    finally:
        resource.setrlimit(resource.RLIMIT_RTTIME, limits)
        signal.signal(signal.SIGXCPU, handler)
    assert not priority.first
    assert priority.refused == "the kernel does not let sampling go first (Operation not permitted)"
    assert "samples are lost when the processors are overcommitted" in caplog.text
    priority.give_way("made up")  # nothing to give
    assert "made up" not in priority.refused
