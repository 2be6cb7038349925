"""The demo from beginning to end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from deploy.demo.faults import FAULTS, Fault, writeback_bytes
from deploy.demo.findings import Findings
from deploy.demo.report import Outcome, clock, show_others, show_outcome
from deploy.demo.watch import progress
from deploy.process import describe_exit, reveal_argv, start_bound
from deploy.stack.errors import StackError
from deploy.stack.foreground import welcome
from deploy.stack.ports import check_ports
from deploy.stack.services import Stack, stack
from deploy.stack.state import LOCK, is_locked, read_state
from schemas.settings import AgentSettings, ClickHouseSettings, PipelineSettings, load

WARMUP_WINDOWS: Final = 60
FAULT_S: Final = 12.0
START_S: Final = 300.0
CALM_S: Final = 45.0
CALM_WINDOWS: Final = 6
FIND_S: Final = 10.0
CLOSE_S: Final = 25.0
BUSY: Final = 0.75
POLL_S: Final = 0.4
STOP_S: Final = 60.0
MEMORY_DISKS: Final = ("tmpfs", "ramfs")

QUERIES: Final = (
    "SELECT start, subsystem, duration_s, round(peak_severity, 1) AS peak, windows, state FROM anomalies "
    "ORDER BY start",
    "SELECT metric, instance, feature, round(observed, 2) AS observed, round(expected, 2) AS expected, unit, "
    "round(deviation) AS deviation FROM anomaly_evidence "
    "WHERE id = (SELECT id FROM anomalies ORDER BY start DESC LIMIT 1) ORDER BY rank LIMIT 5",
    "SELECT host, count() AS windows, countIf(anomalous) AS anomalous, round(avg(coverage), 3) AS coverage, "
    "round(quantile(0.5)(dateDiff('millisecond', window_end, stored)) / 1000, 2) AS p50_s, "
    "round(quantile(0.99)(dateDiff('millisecond', window_end, stored)) / 1000, 2) AS p99_s "
    "FROM verdicts WHERE state = 'scored' GROUP BY host",
)
"""Episodes; evidence of the last one; windows, and seconds from a window's end to its row in ClickHouse."""


class Demo:
    """One run of the demo. Prints to `console`; what it starts is ended by `run`, unless it is to be kept."""

    def __init__(
        self, environ: Mapping[str, str], file: Mapping[str, Any], directory: str | None, console: Console
    ) -> None:
        self._console = console
        self._own = directory is None
        environ = {"REVEAL_PIPELINE_WARMUP_WINDOWS": str(WARMUP_WINDOWS), **environ}
        self._stack = _demo_stack(environ, file, directory)
        self._environ = {**environ, **self._stack.client_environ()}
        self._pipeline = load(PipelineSettings, self._environ, file)
        host = load(AgentSettings, environ, file).host or socket.gethostname()
        self._load = 0.0
        self._findings = Findings(load(ClickHouseSettings, self._environ, file), host)

    def run(self, *, keep: bool) -> int:
        """All of it; exit status 0 only if every fault was found and attributed to the right subsystem.

        Raises StackError when the stack cannot be started or stays silent.
        """
        directory = self._stack.directory
        self._refuse_memory_disk()
        self._clear()
        check_ports(self._stack.ports)
        self._announce(keep)
        with self._running(keep) as up:
            self._start(up)
            # What setting up has left in the page cache would be written back in bursts, and be learnt as normal.
            os.sync()
            self._warm_up(up)
            outcomes = []
            for fault in FAULTS.values():
                self._await_calm(up)
                outcomes.append(self._act(up, fault))
            self._report(outcomes)
        shortcomings = [outcome.shortcoming for outcome in outcomes if outcome.shortcoming]
        self._console.print()
        for line in shortcomings:
            self._console.print(f"[bold red]{line}")
        if shortcomings:
            self._say(
                f"The demo failed; the logs are in {directory / 'logs'}. With make demo KEEP=1 you can look around."
            )
            self._tell_busy()
        else:
            self._console.print("[bold green]Both faults were found and attributed to the right subsystem.")
        if keep:
            self._say(welcome(self._stack), f"  stop it     kill {up.pid}")
        return 1 if shortcomings else 0

    def _tell_busy(self) -> None:
        cores = len(os.sched_getaffinity(0))
        if self._load > BUSY * cores:
            self._say(
                f"This machine was busy while Reveal learnt what is normal (load {self._load:.1f} on {cores} cores). A "
                "fault has to stand out from that: try again when less is going on."
            )

    def _refuse_memory_disk(self) -> None:
        place = next(parent for parent in (self._stack.directory, *self._stack.directory.parents) if parent.exists())
        kind = filesystem(place)
        if kind in MEMORY_DISKS:
            raise StackError(
                f"{place} is on {kind}, which is memory: a writeback burst needs a disk. Name a folder that is on one: "
                "REVEAL_STACK_DIRECTORY=/folder make demo"
            )

    def _clear(self) -> None:
        directory = self._stack.directory
        if is_locked(directory):
            state = read_state(directory)
            pid = state.pid if state else "of reveal up"
            raise StackError(f"a demo still runs in {directory}: end it first with kill {pid}")
        # Only what a stack made, and only where nobody but the demo keeps anything.
        if self._own and (directory / LOCK).exists():
            shutil.rmtree(directory)
        (directory / "logs").mkdir(parents=True, exist_ok=True)

    def _announce(self, keep: bool) -> None:
        windows = self._pipeline.warmup_windows
        written = writeback_bytes(self._stack.directory)
        faults = [
            f"  {place}. {fault.title}: {fault.does}, for {FAULT_S:.0f} s"
            for place, fault in enumerate(FAULTS.values(), 1)
        ]
        self._say(
            "Reveal will watch this machine, learn what is normal on it, and then find two real faults:",
            *faults,
            f"Both stop by themselves; the second writes at most {written / 1e6:,.0f} MB and leaves nothing behind.",
            f"It learns from {windows} windows of a second each, so that you need not wait long; the default is "
            f"{PipelineSettings().warmup_windows}.",
            f"Data and logs: {self._stack.directory}",
            "The stack will be left running." if keep else "Everything is stopped at the end. Ctrl-C stops it at once.",
            "",
        )

    @contextmanager
    def _running(self, keep: bool) -> Iterator[subprocess.Popen[bytes]]:
        death = 0 if keep else signal.SIGTERM
        argv = reveal_argv("up", "--directory", str(self._stack.directory))
        with self._log.open("wb") as output:
            up = start_bound(argv, self._environ, output, death)
        try:
            yield up
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                self._stop(up)

    def _stop(self, up: subprocess.Popen[bytes]) -> None:
        self._findings.close()
        if up.poll() is None:
            self._say("stopping everything ...")
            up.terminate()
        try:
            up.wait(STOP_S)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            up.kill()  # and the kernel ends all that it started
            up.wait()

    def _start(self, up: subprocess.Popen[bytes]) -> None:
        shown = 0
        for _ in self._waiting(up, START_S, "did not become ready"):
            lines = self._log.read_text("utf-8", "replace").split("\n")
            for line in lines[shown:-1]:
                self._console.print(f"  {line}", markup=False, highlight=False, style="dim", soft_wrap=True)
            shown = max(0, len(lines) - 1)
            state = read_state(self._stack.directory)
            if state is not None and state.pid == up.pid and state.state == "ready":
                return

    def _warm_up(self, up: subprocess.Popen[bytes]) -> None:
        windows = self._pipeline.warmup_windows
        patience = 3 * windows * self._pipeline.step_s + 60
        with progress(self._console, "learning what is normal here", windows) as advance:
            for _ in self._waiting(up, patience, "did not finish its warm-up"):
                seen = self._findings.progress()
                if seen.scored:
                    advance(windows, "windows")
                    self._load = os.getloadavg()[0]
                    return
                advance(min(seen.windows - seen.withheld, windows - 1), "windows")

    def _await_calm(self, up: subprocess.Popen[bytes]) -> None:
        """Until nothing strange is going on, but for not too long: then the fault adds to it."""
        deadline = time.monotonic() + CALM_S
        for _ in self._waiting(up, 2 * CALM_S, "did not score any windows"):
            seen = self._findings.progress()
            # More of the same within `reopen_s` would be told as the same episode.
            quiet = seen.calm_s > self._pipeline.reopen_s + 2
            quiet = quiet and all(each.state == "closed" for each in self._findings.anomalies())
            if seen.scored >= CALM_WINDOWS and (quiet or time.monotonic() > deadline):
                return

    def _act(self, up: subprocess.Popen[bytes], fault: Fault) -> Outcome:
        self._say("", f"{clock(time.time())} UTC  fault: {fault.does}")
        argv = (sys.executable, "-P", "-m", "deploy.demo.faults", fault.name, str(FAULT_S), str(self._stack.directory))
        began = time.time()
        outcome = Outcome(fault, began, float("inf"))
        process = start_bound(argv, self._environ, None)
        try:
            with progress(self._console, fault.title, FAULT_S) as advance:
                for _ in self._waiting(up, 5 * FAULT_S, "outlived the fault that does not end"):
                    outcome = self._look(outcome)
                    advance(time.time() - began, _note(outcome))
                    if process.poll() is not None:
                        break
        finally:
            if process.poll() is None:
                process.kill()
            status = process.wait()
        if status != 0:
            raise StackError(f"the fault itself failed: {fault.title}, {describe_exit(status)}")
        outcome = replace(outcome, ended=time.time())
        return self._follow(up, outcome)

    def _follow(self, up: subprocess.Popen[bytes], outcome: Outcome) -> Outcome:
        """Until the episode is closed; not for ever where there is none, or where it stays open."""
        for waited in self._waiting(up, 2 * CLOSE_S, "fell silent"):
            outcome = self._look(outcome)
            if waited > CLOSE_S or (outcome.anomaly is None and waited > FIND_S):
                break
            if outcome.anomaly is not None and outcome.anomaly.closed is not None:
                break
        if outcome.anomaly is not None:
            outcome = replace(outcome, evidence=tuple(self._findings.evidence(outcome.anomaly)))
        self._say(_note(outcome) or "nothing found")
        return outcome

    def _look(self, outcome: Outcome) -> Outcome:
        mine = [each for each in self._findings.anomalies() if each.belongs_to(outcome.began, outcome.ended)]
        if not mine:
            return outcome
        # Where several began in that time, something else went on as well; it is shown among the others.
        right = outcome.fault.subsystems
        best = max(mine, key=lambda each: (each.subsystem in right, each.peak_severity))
        return replace(outcome, anomaly=best, readable=outcome.readable or time.time())

    def _report(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            show_outcome(self._console, outcome)
        theirs = {outcome.anomaly.id for outcome in outcomes if outcome.anomaly is not None}
        show_others(self._console, [each for each in self._findings.anomalies() if each.id not in theirs])
        self._console.print()
        self._console.rule("[bold]the same in SQL", align="left")
        for query in QUERIES:
            self._say("", f'$ reveal sql "{query}"')
            sys.stdout.flush()
            subprocess.run(reveal_argv("sql", query), env=self._environ, check=False)

    def _waiting(self, up: subprocess.Popen[bytes], timeout_s: float, complaint: str) -> Iterator[float]:
        """Turns of a loop, with the seconds since its begin. Raises StackError when the stack ends or time is up."""
        began = time.monotonic()
        while True:
            waited = time.monotonic() - began
            yield waited
            logs = self._stack.directory / "logs"
            if up.poll() is not None:
                end = "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-5:])
                raise StackError(
                    f"the stack ended ({describe_exit(up.returncode)}); see {logs}. Its last words:\n{end}"
                )
            if waited > timeout_s:
                raise StackError(f"the stack {complaint} within {timeout_s:.0f} s: see {logs}")
            time.sleep(POLL_S)

    def _say(self, *lines: str) -> None:
        for line in lines:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @property
    def _log(self) -> Path:
        return self._stack.directory / "logs" / "up.log"


def filesystem(place: Path) -> str:
    """Type of the filesystem that `place` is on; empty where the kernel does not tell."""
    device = place.stat().st_dev
    mark = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        fields = line.split()
        if fields[2] == mark:
            return fields[fields.index("-") + 1]
    return ""


def _demo_stack(environ: Mapping[str, str], file: Mapping[str, Any], directory: str | None) -> Stack:
    usual = stack(environ, file, directory)
    return usual if directory is not None else stack(environ, file, str(usual.directory / "demo"))


def _note(outcome: Outcome) -> str:
    anomaly = outcome.anomaly
    if anomaly is None:
        return ""
    return f"episode opened {anomaly.opened - outcome.began:.1f} s after the fault began: {anomaly.subsystem}"
