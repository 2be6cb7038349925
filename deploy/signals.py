"""Being told to stop: a flag that SIGTERM and SIGINT set, for loops that look at it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType


def stop_flag() -> Callable[[], bool]:
    """From now on SIGTERM and SIGINT only set a flag; says whether it is set. Call it in the main thread."""
    stop = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal stop
        stop = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return lambda: stop
