"""Real faults for a real machine: `python -m deploy.demo.faults NAME SECONDS DIRECTORY`.

Each stops by itself after SECONDS, leaves nothing behind however it ends, and is bounded in what it takes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHUNK: Final = 4 << 20
BURST: Final = 48 << 20
BURSTS_A_FILE: Final = 4
MOST: Final = 1536 << 20
FREE_SHARE: Final = 0.10


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of FAULTS. subsystems: what it may rightly be attributed to, and `why` these."""

    name: str
    title: str
    does: str
    subsystems: tuple[str, ...]
    why: str
    act: Callable[[float, Path], None]


def hog_core(seconds: float, directory: Path) -> None:
    """Keeps the last core that this process may use busy."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    end = time.monotonic() + seconds
    number = 1
    while time.monotonic() < end:
        for _ in range(100_000):
            number = number * 1_103_515_245 + 12_345 & 0x7FFFFFFF


def burst_writeback(seconds: float, directory: Path) -> None:
    """Dirties pages of files in `directory` for a second or two, has them written back at once, and again.

    At most writeback_bytes(directory) in all, evenly over the time. The files have no names, so that the kernel
    takes their space back however this process ends.
    """
    noise = os.urandom(CHUNK)
    total = writeback_bytes(directory)
    began, written = time.monotonic(), 0

    def going_on() -> bool:
        return written < total and time.monotonic() < began + seconds

    while going_on():
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            for _ in range(BURSTS_A_FILE):
                if not going_on():
                    break
                for _ in range(BURST // CHUNK):
                    written += file.write(noise)
                time.sleep(max(0.0, began + seconds * written / total - time.monotonic()))
            os.fdatasync(file.fileno())


def writeback_bytes(directory: Path) -> int:
    """How much burst_writeback writes: MOST, or a tenth of the free space where that is less."""
    return min(MOST, int(shutil.disk_usage(directory).free * FREE_SHARE))


FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault
    for fault in (
        Fault(
            "cpu-hog",
            "CPU hog",
            "a process in a busy loop, pinned to one core",
            ("cpu",),
            "one core's time and what waits for it belong to the cpu subsystem",
            hog_core,
        ),
        Fault(
            "writeback",
            "page-cache writeback burst",
            "a process that dirties page cache faster than usual and has the kernel write it back",
            ("memory", "storage"),
            "dirty pages are counted by memory, their way to the disk by storage: either is right",
            burst_writeback,
        ),
    )
}


def main() -> None:
    """Acts out one fault."""
    name, seconds, directory = sys.argv[1:]
    FAULTS[name].act(float(seconds), Path(directory))


if __name__ == "__main__":
    main()
