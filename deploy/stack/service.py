"""One service under supervision: started, watched, started again with backoff, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from deploy import ready
from deploy.process import describe_exit, start_bound
from deploy.stack.health import Heartbeat

BACKOFF_S: Final = 0.5
BACKOFF_LIMIT_S: Final = 30.0
BACKOFF_RESET_S: Final = 60.0
CHECK_STARTING_S: Final = 0.1
CHECK_READY_S: Final = 3.0
# A service that can be asked nothing counts as ready when it has lived this long.
ALIVE_S: Final = 1.0
LOG_LIMIT: Final = 8 << 20
# A wrong setting or wrong usage: no restart mends it.
HOPELESS_STATUS: Final = 2


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A row of the table of services.

    argv     the program; it runs in the foreground and ends on SIGTERM
    environ  its whole environment
    after    services that must be ready before it starts, and that are stopped after it
    check    whether it serves; called on a thread, answers within seconds, does not raise
    beats    it touches the file in REVEAL_READY_FILE when it is ready and while it works; takes the place of `check`
    job      it runs once, and is ready when it has ended with status 0
    start_s, hang_s, stop_s  seconds to become ready, to be unhealthy, and to stop, before it is killed
    """

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    after: tuple[str, ...] = ()
    check: Callable[[], bool] | None = None
    beats: bool = False
    job: bool = False
    start_s: float = 90.0
    hang_s: float = 60.0
    stop_s: float = 20.0


class State(StrEnum):
    """waiting is for the services it comes after, or for its restart; done is a job's ready; failed is for good."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    DONE = "done"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Service:
    """A service in one of its states; `step` moves it on.

    directory: holds logs/NAME.log and run/NAME.ready. say: is told of every change, in words. pool: runs the checks.
    clock: seconds, monotonic.
    """

    def __init__(
        self,
        spec: ServiceSpec,
        directory: Path,
        say: Callable[[str], None],
        pool: Executor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self.state = State.WAITING
        self.restarts = 0
        self.log = directory / "logs" / f"{spec.name}.log"
        self._ready_file = directory / "run" / f"{spec.name}.ready"
        self._say = say
        self._pool = pool
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._check: Callable[[], bool] | None = None
        self._answer: Future[bool] | None = None
        self._check_at = self._started = self._ready_at = self._healthy_at = self._kill_at = 0.0
        self._start_at = float("-inf")
        self._failures = 0
        self._log_start = 0
        self._condemned = False

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def satisfied(self) -> bool:
        """Whether services that come after it may start."""
        return self.state in (State.READY, State.DONE)

    def step(self, may_start: bool) -> bool:
        """Look at the process and do what is due. Returns whether anything changed.

        may_start: whether all that it comes after is ready. Raises StackError for a program that is not there.
        """
        before = self.state, self.pid
        now = self._clock()
        if self._process is not None and (status := self._process.poll()) is not None:
            self._ended(status, now)
        elif self.state is State.WAITING and may_start and now >= self._start_at:
            self._start(now)
        elif self.state in (State.STARTING, State.READY):
            self._watch(now)
        elif self.state is State.STOPPING and now > self._kill_at:
            self._say(f"did not stop within {self.spec.stop_s:.0f} s: killed")
            self.kill()
        return before != (self.state, self.pid)

    def stop(self) -> None:
        """Ask the process to end; `step` kills it when it does not."""
        if self._process is None:
            self.state = State.STOPPED
        elif self.state is not State.STOPPING:
            self.state = State.STOPPING
            self._kill_at = self._clock() + self.spec.stop_s
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL to the process and to whatever it started in its session."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._kill_at = float("inf")

    def last_line(self) -> str:
        """Last line it logged since its last start; empty when there is none."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(self._log_start, self.log.stat().st_size - 4096))
                lines = file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _start(self, now: float) -> None:
        self._ready_file.parent.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        environ = {name: value for name, value in self.spec.environ.items() if name != ready.VARIABLE}
        self._check = self.spec.check
        if self.spec.beats:
            environ[ready.VARIABLE] = str(self._ready_file)
            self._check = Heartbeat(self._ready_file)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            self._process = start_bound(self.spec.argv, environ, output)
        self.state = State.STARTING
        self._answer = None
        self._condemned = False
        self._started = self._check_at = now
        self._say(f"started, pid {self._process.pid}")

    def _watch(self, now: float) -> None:
        if self._condemned:
            return
        if not self.spec.job and self._is_well(now):
            self._healthy_at = now
            if self.state is State.STARTING:
                self.state = State.READY
                self._ready_at = now
                self._say(f"ready in {now - self._started:.1f} s")
        elif self.state is State.STARTING and now > self._started + self.spec.start_s:
            self._condemn(f"not ready within {self.spec.start_s:.0f} s")
        elif self.state is State.READY and now > self._healthy_at + self.spec.hang_s:
            self._condemn(f"no sign of life for {self.spec.hang_s:.0f} s")

    def _condemn(self, why: str) -> None:
        self._say(f"{why}: killed")
        self._condemned = True
        self.kill()

    def _is_well(self, now: float) -> bool:
        """Whether there is a new proof of health. Asks for the next one when it is due."""
        if self._check is None:
            return now >= self._started + ALIVE_S
        if self._answer is not None and self._answer.done():
            well = self._answer.result()
            self._answer = None
            return well
        if self._answer is None and now >= self._check_at:
            self._check_at = now + (CHECK_STARTING_S if self.state is State.STARTING else CHECK_READY_S)
            self._answer = self._pool.submit(self._check)
        return False

    def _ended(self, status: int, now: float) -> None:
        self._process = None
        self._ready_file.unlink(missing_ok=True)
        how = describe_exit(status)
        if self.state is State.STOPPING:
            self.state = State.STOPPED
            self._say("stopped" if status in (0, 143, -signal.SIGTERM) else f"stopped with {how}")
            return
        if self.spec.job and status == 0:
            self.state = State.DONE
            self._say(f"done in {now - self._started:.1f} s")
            return
        line = self.last_line()
        because = f"{how}; last line of {self.log.name}: {line}" if line else how
        if status == HOPELESS_STATUS:
            self.state = State.FAILED
            self._say(f"failed with {because}")
            return
        if self.state is State.READY and now >= self._ready_at + BACKOFF_RESET_S:
            self._failures = 0
        delay = min(BACKOFF_LIMIT_S, BACKOFF_S * 2**self._failures)
        self._failures += 1
        self.restarts += 1
        self.state = State.WAITING
        self._start_at = now + delay
        self._say(f"died ({because}); restarting in {delay:g} s")
