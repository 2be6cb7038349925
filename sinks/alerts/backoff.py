"""When a receiver that failed is tried again: exponentially later with jitter, or when it says so. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sinks.alerts.duration import SECOND_NS

FIRST_S: Final = 1.0
LONGEST_S: Final = 300.0


@dataclass(slots=True)
class Backoff:
    """failures in a row, and before when nothing is sent, ns."""

    failures: int = 0
    until_ns: int = 0

    def failed(self, now_ns: int, jitter: Callable[[], float], retry_after_s: float | None = None) -> None:
        """A try failed. `jitter` gives numbers from 0 to 1: half of the pause is left to it, so that receivers that
        failed together are not tried together. `retry_after_s` is what the receiver asked for.
        """
        pause = min(LONGEST_S, FIRST_S * 2.0 ** min(self.failures, 30))
        pause *= 0.5 + 0.5 * jitter()
        if retry_after_s is not None:
            pause = max(pause, min(retry_after_s, 3600.0))
        self.failures += 1
        self.until_ns = now_ns + int(pause * SECOND_NS)

    def succeeded(self) -> None:
        """A try got through."""
        self.failures = self.until_ns = 0
