"""Progress of long preparations, as plain lines that read well in a terminal and in a log file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

# (done, total, name): how far a step has come, in bytes while jars come, 0 of 1 and 1 of 1 around an indivisible one;
# name: of the jar that came last, or of the step.
Progress = Callable[[int, int, str], None]


def silent(done: int, total: int, name: str) -> None:
    """Progress for nobody."""


class LineProgress:
    """Writes one line a step, and at most one a second while bytes come in."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._last = float("-inf")

    def __call__(self, done: int, total: int, name: str) -> None:
        if total <= 1:
            text = f"{name} ..." if done < total else f"{name}: done"
        else:
            now = self._clock()
            if done < total and now < self._last + 1:
                return
            self._last = now
            text = f"Kafka's jars: {done / 1e6:.0f} of {total / 1e6:.0f} MB ({name})"
        self._stream.write(text + "\n")
        self._stream.flush()
