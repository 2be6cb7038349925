"""A small made-up /proc and /sys, and a clock that a test moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from producers.clock import Clock
from producers.collector import Collector
from producers.collectors import COLLECTORS
from producers.frame import Frame, Identity
from producers.reading import Host
from schemas.settings import AgentSettings

SECOND_NS = 1_000_000_000
START_NS = 1_700_000_000 * SECOND_NS


def rewrite(path: Path, text: str) -> None:
    """Give a file other text in place. One that is cut to nothing first is written to the disk when it is closed."""
    with path.open("r+" if path.exists() else "w") as file:
        file.write(text)
        file.truncate()


class Machine:
    """Files below `root`/proc and `root`/sys; `tick` numbers make counters grow."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cpus = [0, 1]

    def write(self, path: str, text: str) -> Path:
        """Put a file there, new or changed in place."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        rewrite(file, text)
        return file

    def advance(self, tick: int) -> None:
        """State of the machine after `tick` tenths of a second: every rate is constant."""
        rows = "".join(f"cpu{cpu} {4 * tick} 0 {tick} {5 * tick} 0 0 0 0 0 0\n" for cpu in self.cpus)
        self.write(
            "proc/stat", f"cpu  1 0 0 0 0 0 0 0 0 0\n{rows}intr {30 * tick} 1 2\nctxt {50 * tick}\nprocesses 3\n"
        )
        self.write("proc/loadavg", "0.50 0.25 0.10 1/100 12345\n")
        self.write("proc/meminfo", f"MemTotal: 1000 kB\nMemFree: {500 + tick} kB\n")
        self.write("proc/vmstat", f"pgfault {7 * tick}\npgpgin {8 * tick}\n")
        # Lists all possible CPUs, not only those that are there.
        self.write("proc/softirqs", f"  CPU0 CPU1 CPU2 CPU3\n NET_RX: {tick} {2 * tick} 0 0\n")
        self.write("proc/diskstats", f"8 0 sda {2 * tick} 0 9 {6 * tick} 0 0 0 0 1 3 4\n")
        node = "sys/devices/system/node/node0"
        self.write(f"{node}/meminfo", f"Node 0 MemFree: {900 - tick} kB\n")
        self.write(f"{node}/numastat", f"numa_hit {11 * tick}\n")

    def frame(
        self,
        clock: Clock,
        *,
        period_ms: int = 100,
        more: tuple[Collector, ...] = (),
        lost: Callable[[str], int] = int,
        settings: AgentSettings | None = None,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
    ) -> Frame:
        """A frame over this machine with all collectors and `more`."""
        return Frame(
            (*COLLECTORS, *more),
            Host(
                {"proc": str(self.root / "proc"), "sys": str(self.root / "sys")},
                clock.monotonic_ns,
                settings=settings or AgentSettings(),
            ),
            period_ms,
            Identity("host-1", "session-1", "1.0"),
            lost=(lambda subsystem: 0) if lost is int else lost,
            cpu_clock=cpu_clock,
        )


class FakeClock:
    """A clock that moves only when it is slept on, or by hand. `on_sleep` is told before it wakes."""

    def __init__(self, wall_ns: int = START_NS) -> None:
        self.wall = wall_ns
        self.monotonic = 5_000 * SECOND_NS
        self.suspended = 0
        self.on_sleep: Callable[[], None] = lambda: None
        self.slept: list[float] = []

    def wall_ns(self) -> int:
        """As in Clock."""
        return self.wall

    def monotonic_ns(self) -> int:
        """As in Clock."""
        return self.monotonic

    def boot_ns(self) -> int:
        """As in Clock."""
        return self.monotonic + self.suspended

    def sleep(self, seconds: float) -> None:
        """As in Clock."""
        self.slept.append(seconds)
        self.pass_ns(round(seconds * SECOND_NS))
        self.on_sleep()

    def pass_ns(self, nanoseconds: int) -> None:
        """All clocks go on."""
        self.wall += nanoseconds
        self.monotonic += nanoseconds

    def suspend_ns(self, nanoseconds: int) -> None:
        """The machine sleeps: the monotonic clock stands still."""
        self.wall += nanoseconds
        self.suspended += nanoseconds
