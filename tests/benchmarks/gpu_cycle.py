"""What reading GPUs costs on our side, over the fake library: `python -m tests.benchmarks.gpu_cycle`.

The library's own time, which on real GPUs is far more, is not in it: each of its answers here takes a microsecond.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from producers.gpu.child import Child
from producers.gpu.wire import HEADER, VALUES, Orders
from tests.nvml import profiles
from tests.nvml.driven import driven

CYCLES: Final = 200
PERIOD_S: Final = 0.1
RUN_S: Final = 10.0


def cycles(send: Callable[[bytes], None], library: Path) -> list[float]:
    """Time of each paced cycle, ms."""
    child = Child(Orders(str(library), {}, (), 0), send)
    assert child.start()
    found = []
    for _ in range(CYCLES):
        began = time.perf_counter()
        child.cycle()
        found.append(1e3 * (time.perf_counter() - began))
        time.sleep(PERIOD_S / 5)
    return found


def inside(library: str) -> None:
    """Run in a process of its own, so that the binding is loaded there alone."""
    frames: list[bytes] = []
    found = cycles(frames.append, Path(library))
    values = [frame for frame in frames if HEADER.unpack_from(frame)[1] == VALUES]
    found.sort()
    print(
        f"a cycle: median {statistics.median(found):.2f} ms, 90 % {found[int(0.9 * len(found))]:.2f} ms; "
        f"{len(values[-1])} bytes a frame, {len(frames[0])} bytes of names at the start"
    )


def main() -> None:
    """Print the cost of a cycle, and that of both processes over some seconds."""
    if len(sys.argv) > 1:
        inside(sys.argv[1])
        return
    with tempfile.TemporaryDirectory() as directory:
        nvml = profiles.h100(Path(directory, "h100"))
        subprocess.run([sys.executable, "-m", "tests.benchmarks.gpu_cycle", str(nvml.path)], check=True, timeout=120)
        with driven(nvml) as source:
            source.until(lambda found: True, "values")
            child, own = psutil.Process(source.pid), psutil.Process()
            before = child.cpu_times(), own.cpu_times()
            began = time.monotonic()
            while time.monotonic() - began < RUN_S:
                source.step()
                time.sleep(PERIOD_S)
            spent = [
                100 * (after.user + after.system - first.user - first.system) / (time.monotonic() - began)
                for after, first in zip((child.cpu_times(), own.cpu_times()), before, strict=True)
            ]
            memory = child.memory_info().rss / 1e6
            print(
                f"at 10 Hz: {spent[0]:.2f} % of a core in the process that reads, {spent[1]:.2f} % in this one; "
                f"{memory:.1f} MB resident"
            )


if __name__ == "__main__":
    main()
