"""How a service tells its supervisor that it is ready and still at work: it touches a file.

The supervisor names the file in REVEAL_READY_FILE. It counts a service as ready when the file appears, and as hung
when its time stops changing for a minute. Without that variable nothing happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "REVEAL_READY_FILE"
EVERY_S: Final = 2.0


class ReadyFile:
    """The file of one service. Call `beat` from the loop that does the work, so that a hung one falls silent."""

    def __init__(self, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        name = environ.get(VARIABLE, "")
        self._path = Path(name) if name else None
        self._clock = clock
        self._last = float("-inf")

    def beat(self) -> None:
        """Ready, and at work: touches the file, at most every EVERY_S seconds. Cheap enough for every turn of a
        loop.
        """
        if self._path is None or self._clock() < self._last + EVERY_S:
            return
        self._last = self._clock()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch()

    async def beating(self, healthy: Callable[[], bool]) -> None:
        """Beats as long as `healthy()` holds, until cancelled: for a service that is an asyncio loop."""
        while True:
            if healthy():
                self.beat()
            await asyncio.sleep(EVERY_S / 4)
