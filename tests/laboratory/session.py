"""A run of the laboratory, from the start of the stack to the end of the last fault."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from rich.console import Console

from deploy.demo.watch import progress
from deploy.kafka.ports import free_ports
from deploy.process import describe_exit, reveal_argv, start_bound
from deploy.stack.errors import StackError
from deploy.stack.services import stack
from deploy.stack.state import LOCK, is_locked, read_state
from schemas.settings import ClickHouseSettings, PipelineSettings, load
from tests.laboratory import wire
from tests.laboratory.judge import Episode, Trial
from tests.laboratory.needs import read_in
from tests.laboratory.programs import finding
from tests.laboratory.results import Results
from tests.laboratory.table import Fault, Place
from tests.laboratory.workload import PARTS

START_S: Final = 300.0
WIRE_S: Final = 20.0
LINK_GONE_S: Final = 5.0
SETTLE_S: Final = 10.0
RECOVERY_S: Final = 150.0
END_S: Final = 10.0
STOP_S: Final = 60.0
POLL_S: Final = 0.3


class Session:
    """Everything that runs while faults are acted out. Enter it to start it; all is ended and undone at its exit.

    directory  of data and logs, on a disk; emptied first
    environ    settings of Reveal, as everybody has them
    Raises StackError when it cannot start.
    """

    def __init__(self, directory: Path, environ: Mapping[str, str], console: Console) -> None:
        kafka, controller, clickhouse = map(str, free_ports(3))
        self.directory = directory.absolute()
        self._console = console
        self._undo = ExitStack()
        self._host = environ.get("REVEAL_AGENT_HOST") or socket.gethostname()
        environ = {
            **finding(environ),
            "REVEAL_STACK_KAFKA_PORT": kafka,
            "REVEAL_STACK_KAFKA_CONTROLLER_PORT": controller,
            "REVEAL_STACK_CLICKHOUSE_PORT": clickhouse,
            "REVEAL_AGENT_HTTP_PORT": "0",
        }
        self._stack = stack(environ, {}, str(self.directory))
        self._environ = {**environ, **self._stack.client_environ()}
        self._pipeline = load(PipelineSettings, environ)
        self._results: Results | None = None
        self._up: subprocess.Popen[bytes] | None = None
        self._workload: dict[str, subprocess.Popen[bytes]] = {}
        self._scratch = self.directory / "scratch"
        self.place = Place(self._scratch, (), tuple(sorted(os.sched_getaffinity(0))), has_pmu())

    def __enter__(self) -> Session:
        try:
            self._clear()
            self._start_stack()
            self._start_workload()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._say("stopping everything ...")
        self._undo.close()

    def warm_up(self) -> None:
        """Until the first windows are scored."""
        windows = self._pipeline.warmup_windows
        # What setting up has left in the page cache would be written back in bursts, and be learnt as normal.
        os.sync()
        with progress(self._console, "warm-up", windows) as advance:
            for _ in self._waiting(3 * windows * self._pipeline.step_s + 60, "did not finish its warm-up"):
                seen = self._get_results().findings.progress()
                if seen.scored:
                    advance(windows, "windows")
                    break
                advance(min(seen.windows - seen.withheld, windows - 1), "windows")
        self._pass("settling", SETTLE_S)

    def be_quiet(self, seconds: float) -> tuple[float, float]:
        """Lets time pass without a fault; from when to when, s since 1970-01-01 UTC."""
        began = time.time()
        self._pass("quiet", seconds)
        return began, time.time()

    def recover(self) -> None:
        """Until no episode is open and none could be taken up again, or for RECOVERY_S at most. That takes windows of
        the time from now on: a fault may have kept the services waiting as well.
        """
        began, results = time.time(), self._get_results()
        with progress(self._console, "recovery", RECOVERY_S) as advance:
            for waited in self._waiting(2 * RECOVERY_S, "fell silent"):
                pause_s = self._pipeline.reopen_s + 1
                seen = results.findings.progress()
                calm = seen.until > began and seen.calm_s > pause_s
                if (calm and not results.any_open(time.time() - pause_s)) or waited > RECOVERY_S:
                    return
                advance(waited, "s at most")

    def act(self, fault: Fault, seconds: float) -> Trial:
        """Acts out a fault for `seconds`, if that can be done here."""
        cause = fault.expected_cause(self.place.pmu)
        if reason := fault.unable(self.place):
            self._say(f"{fault.name}: skipped, {reason}")
            return Trial(fault, cause, skipped=reason)
        output = self.directory / "logs" / f"{fault.name}.log"
        with output.open("wb") as log:
            onset = time.time()
            with self._child(fault.argv(self.place, seconds), log) as child:
                longest = seconds + fault.extra_s
                with progress(self._console, fault.name, longest) as advance:
                    for waited in self._waiting(longest + END_S, "outlived a fault"):
                        if waited > longest or child.poll() is not None:
                            break
                        advance(waited, "s")
                # It has most often ended by itself, or is about to.
                with suppress(subprocess.TimeoutExpired):
                    child.wait(1.0)
                status = child.poll()
        ended = time.time()
        read_in()
        if ended - onset < seconds / 2:
            words = output.read_text("utf-8", "replace").strip().splitlines()[-1:]
            reason = f"the fault itself failed with {describe_exit(status or 0)}: {' '.join(words)}".rstrip(": ")
            self._say(f"{fault.name}: {reason}")
            return Trial(fault, cause, skipped=reason)
        return Trial(fault, cause, onset, ended)

    def episodes(self) -> list[Episode]:
        """All that were told so far."""
        return self._get_results().episodes()

    def _clear(self) -> None:
        if is_locked(self.directory):
            state = read_state(self.directory)
            pid = state.pid if state else "of reveal up"
            raise StackError(f"a laboratory runs in {self.directory}: end it first with kill {pid}")
        if (self.directory / LOCK).exists():  # only what a stack made
            shutil.rmtree(self.directory)
        for part in ("logs", "scratch"):
            (self.directory / part).mkdir(parents=True, exist_ok=True)
        self._undo.callback(shutil.rmtree, self._scratch, ignore_errors=True)

    def _start_stack(self) -> None:
        log = (self.directory / "logs" / "up.log").open("wb")
        self._undo.callback(log.close)
        argv = reveal_argv("up", "--directory", str(self.directory))
        self._up = start_bound(argv, self._environ, log, signal.SIGTERM)
        self._undo.callback(_end, self._up, STOP_S)
        self._results = Results(load(ClickHouseSettings, self._environ), self._host)
        self._undo.callback(self._results.close)
        with progress(self._console, "starting the stack", START_S) as advance:
            for waited in self._waiting(START_S, "did not become ready"):
                state = read_state(self.directory)
                if state is not None and state.pid == self._up.pid and state.state == "ready":
                    return
                advance(waited, "s at most")

    def _start_workload(self) -> None:
        laid = self._lay_wire()
        parts = [part for part in PARTS if laid or part != "traffic"]
        # One thread: what the library would spread over all cores is to stay on one.
        environ = {**self._environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        for part in parts:
            log = self._undo.enter_context((self.directory / "logs" / f"{part}.log").open("wb"))
            argv = (sys.executable, "-P", "-m", "tests.laboratory.workload", part, str(self._scratch))
            child = start_bound(argv, environ, log)
            self._undo.callback(_end, child, END_S, signal.SIGKILL)
            self._workload[part] = child
        pids = tuple(child.pid for child in self._workload.values())
        self.place = Place(self._scratch, pids, self.place.cores, self.place.pmu)
        self._say(f"workload: {', '.join(parts)}")

    def _lay_wire(self) -> bool:
        self._await_no_link()
        kind = "netem" if wire.knows_netem() else "relay"
        output = self.directory / "logs" / "wire.log"
        log = self._undo.enter_context(output.open("wb"))
        argv = (sys.executable, "-P", "-m", "tests.laboratory.wire", str(self._scratch), kind)
        child = start_bound(argv, self._environ, log)
        self._undo.callback(_end, child, END_S)
        for _ in self._waiting(WIRE_S, "outlived the wire that is not laid"):
            if (self._scratch / wire.SOCKET).exists():
                self._say(f"network faults by {kind if kind == 'netem' else 'a relay, as this kernel has no netem'}")
                return True
            if child.poll() is not None:
                break
        self._say(f"no network faults: {output.read_text('utf-8', 'replace').strip()}")
        return False

    def _await_no_link(self) -> None:
        """The kernel takes the interface of a run before away a moment after its end."""
        deadline = time.monotonic() + LINK_GONE_S
        while Path("/sys/class/net", wire.INTERFACE).exists():
            if time.monotonic() > deadline:
                raise StackError(f"there is an interface {wire.INTERFACE}: another laboratory runs, end it first")
            time.sleep(POLL_S)

    @contextmanager
    def _child(self, argv: Sequence[str], log: object) -> Iterator[subprocess.Popen[bytes]]:
        child = start_bound(argv, self._environ, log, signal.SIGTERM)  # type: ignore[arg-type]
        try:
            yield child
        finally:
            _end(child, END_S)
            for pid in self.place.workload:  # a fault that was killed cannot let them go on
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _pass(self, title: str, seconds: float) -> None:
        with progress(self._console, title, seconds) as advance:
            for waited in self._waiting(seconds + END_S, "outlived the time"):
                advance(waited, "s")
                if waited >= seconds:
                    return

    def _get_results(self) -> Results:
        assert self._results is not None, "the session is not entered"
        return self._results

    def _waiting(self, timeout_s: float, complaint: str) -> Iterator[float]:
        """Turns of a loop, with the seconds since its begin. Raises StackError when the stack ends or time is up."""
        began = time.monotonic()
        while True:
            waited = time.monotonic() - began
            yield waited
            assert self._up is not None
            if self._up.poll() is not None:
                raise StackError(
                    f"the stack ended ({describe_exit(self._up.returncode)}): see {self.directory / 'logs'}"
                )
            for part, child in self._workload.items():
                if child.poll() is not None:
                    raise StackError(f"the workload's {part} ended: see {self.directory / 'logs' / part}.log")
            if waited > timeout_s:
                raise StackError(f"the stack {complaint} within {timeout_s:.0f} s: see {self.directory / 'logs'}")
            time.sleep(POLL_S)

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def has_pmu(root: Path = Path("/")) -> bool:
    """Whether the kernel offers counters of the processors."""
    devices = root / "sys/bus/event_source/devices"
    return any(devices.glob("cpu*")) or any(devices.glob("armv*"))


def _end(child: subprocess.Popen[bytes], patience_s: float, how: int = signal.SIGTERM) -> None:
    """Ends a child, and with it whatever it holds."""
    if child.poll() is None:
        child.send_signal(how)
    try:
        child.wait(patience_s)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        child.kill()
        child.wait()
