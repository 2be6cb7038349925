"""Time as the agent sees it: a wall clock for the grid, a monotonic one for intervals."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Both clocks in ns, and a way to wait."""

    def wall_ns(self) -> int:
        """Time since 1970-01-01 UTC."""

    def monotonic_ns(self) -> int:
        """Time that never jumps."""

    def sleep(self, seconds: float) -> None:
        """Wait; may return late."""


class SystemClock:
    """The machine's clocks."""

    def wall_ns(self) -> int:
        """As in Clock."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """As in Clock."""
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        """As in Clock."""
        time.sleep(seconds)
