"""How a service tells its supervisor that it is ready and still at work: it touches a file, and tells systemd.

The supervisor names the file in REVEAL_READY_FILE. It counts a service as ready when the file appears, and as hung
when its time stops changing for a minute. systemd names a socket in NOTIFY_SOCKET (sd_notify(3)). Without those
variables nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "REVEAL_READY_FILE"
SYSTEMD: Final = "NOTIFY_SOCKET"
EVERY_S: Final = 2.0


class ReadyFile:
    """The file of one service. Call `beat` from the loop that does the work, so that a hung one falls silent."""

    def __init__(self, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        name = environ.get(VARIABLE, "")
        self._path = Path(name) if name else None
        # An @ stands for the zero byte that begins an abstract name.
        address = environ.get(SYSTEMD, "")
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._clock = clock
        self._last = float("-inf")

    def beat(self) -> None:
        """Ready, and at work: says so at most every EVERY_S seconds. Cheap enough for every turn of a loop."""
        if self._clock() < self._last + EVERY_S:
            return
        self._last = self._clock()
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch()
        if self._address:
            # A systemd that does not listen is no reason to stop working.
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
                out.setblocking(False)
                out.sendto(b"READY=1\nWATCHDOG=1", self._address)

    async def beating(self, healthy: Callable[[], bool]) -> None:
        """Beats as long as `healthy()` holds, until cancelled: for a service that is an asyncio loop."""
        while True:
            if healthy():
                self.beat()
            await asyncio.sleep(EVERY_S / 4)
