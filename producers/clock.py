"""Time as the agent sees it: a wall clock for the grid, a monotonic one for intervals, and one that knows suspends."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Clocks in ns, and a way to wait."""

    def wall_ns(self) -> int:
        """Time since 1970-01-01 UTC."""

    def monotonic_ns(self) -> int:
        """Time that never jumps, and stands still while the machine is suspended."""

    def boot_ns(self) -> int:
        """The same, but it goes on while the machine is suspended."""

    def sleep(self, seconds: float) -> None:
        """Wait; may return late."""


class SystemClock:
    """The machine's clocks."""

    def wall_ns(self) -> int:
        """As in Clock."""
        return time.time_ns()

    # Asked around every reading: no call in between.
    monotonic_ns = staticmethod(time.monotonic_ns)

    def boot_ns(self) -> int:
        """As in Clock."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """As in Clock."""
        time.sleep(seconds)
