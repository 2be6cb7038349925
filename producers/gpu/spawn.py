"""The process that reads GPUs, as its parent holds it: nothing here ever waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from json import dumps
from typing import Final, Protocol, TypeAlias

from producers.gpu.wire import MARK_SIZE, Mark, Orders
from producers.priority import as_usual

CHUNK: Final = 1 << 20
FAREWELL_S: Final = 0.5


class Held(Protocol):
    """A process at work."""

    @property
    def pid(self) -> int:
        """Process id."""

    def ask(self) -> None:
        """Want a reading."""

    def receive(self) -> bytes | None:
        """What it has said since the last call; None when it will say no more."""

    def finish(self) -> None:
        """Tell it to end, which it does between two calls of the driver."""

    def kill(self) -> None:
        """End it by force, which takes effect once it is back from the kernel."""

    def ended(self) -> str | None:
        """How it ended, in words, "" if as it should; None while it is there."""

    def asks(self) -> str:
        """Name of the GPU that it asks at the moment, or asked when it ended; "" for none."""

    def cpu_s(self) -> float:
        """Processor time so far, s."""

    def close(self) -> None:
        """Give up the pipes."""

    def end(self) -> None:
        """Have it end with its parent: by asking, then once by force. The one thing that may take a moment."""


Spawn: TypeAlias = Callable[[Orders], Held]


class Process:
    """A real one. Raises OSError when it cannot be started.

    It ends with the thread that starts it, which is the agent's main one.
    """

    def __init__(self, orders: Orders) -> None:
        memory = os.memfd_create("reveal-gpu")
        try:
            os.truncate(memory, MARK_SIZE)
            self._mark = Mark(memory)
            with as_usual():
                self._popen = subprocess.Popen(
                    [sys.executable, "-m", "producers.gpu"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    pass_fds=(memory,),
                )
        finally:
            os.close(memory)
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._in, self._out = self._popen.stdin, self._popen.stdout
        self._cpu_s = 0.0
        # Less than the pipe holds, so it never waits.
        os.write(self._in.fileno(), dumps(asdict(replace(orders, mark=memory))).encode() + b"\n")
        os.set_blocking(self._in.fileno(), False)
        os.set_blocking(self._out.fileno(), False)

    @property
    def pid(self) -> int:
        """As in Held."""
        return self._popen.pid

    def ask(self) -> None:
        """As in Held."""
        # A pipe that is full or broken shows itself by there being no answer.
        with suppress(OSError):
            os.write(self._in.fileno(), b"\n")

    def receive(self) -> bytes | None:
        """As in Held."""
        try:
            return os.read(self._out.fileno(), CHUNK) or None
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def finish(self) -> None:
        """As in Held."""
        self._in.close()

    def kill(self) -> None:
        """As in Held."""
        self._popen.kill()

    def ended(self) -> str | None:
        """As in Held."""
        status = self._popen.poll()
        if not status:
            return None if status is None else ""
        if status > 0:
            return f"ended with status {status}"
        try:
            return f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"was ended by signal {-status}"

    def asks(self) -> str:
        """As in Held."""
        return self._mark.get()

    def cpu_s(self) -> float:
        """As in Held."""
        # The number of a process' own clock, as clock_getcpuclockid(3) makes it.
        with suppress(OSError):
            self._cpu_s = time.clock_gettime(~self._popen.pid << 3 | 2)
        return self._cpu_s

    def close(self) -> None:
        """As in Held."""
        self._in.close()
        self._out.close()
        self._mark.close()

    def end(self) -> None:
        """As in Held."""
        self.finish()
        try:
            self._popen.wait(FAREWELL_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(FAREWELL_S)
        self.close()
