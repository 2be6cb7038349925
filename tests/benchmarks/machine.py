"""A made-up large machine: trees of /proc and /sys whose counters move, for measuring what reading them costs.

    python -m tests.benchmarks.machine DIRECTORY --cores N [--period-ms N]

writes them, says "ready", and keeps them moving until its input ends. It is a process of its own, so that its work is
not counted as a reader's. Of files that no core, node, disk or interface multiplies (meminfo, vmstat, netstat, ...) the
text is that of the machine at hand, with its numbers moved. What the kernel itself does to make a text is not part of a
made-up file: on a real machine that comes on top, for every reader alike.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import select
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

NUMBER: Final = re.compile(r"(?<![\w.])\d+(?![\w.])")
ARCHITECTURE: Final = {
    "NMI": "Non-maskable interrupts",
    "LOC": "Local timer interrupts",
    "SPU": "Spurious interrupts",
    "PMI": "Performance monitoring interrupts",
    "IWI": "IRQ work interrupts",
    "RTR": "APIC ICR read retries",
    "RES": "Rescheduling interrupts",
    "CAL": "Function call interrupts",
    "TLB": "TLB shootdowns",
    "TRM": "Thermal event interrupts",
    "THR": "Threshold APIC interrupts",
    "DFR": "Deferred Error APIC interrupts",
    "MCE": "Machine check exceptions",
    "MCP": "Machine check polls",
}
MOVING: Final = ("LOC", "RES", "CAL", "TLB")
SOFTIRQS: Final = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
STATES: Final = ("POLL", "C1", "C2")
ALIKE: Final = (
    "proc/loadavg",
    "proc/meminfo",
    "proc/vmstat",
    "proc/net/snmp",
    "proc/net/netstat",
    "proc/net/sockstat",
)
NICS: Final = 4
DISKS: Final = 8


class Machine:
    """The tree below `root` of a machine with `cores`, 4 interfaces with a queue a core and 8 NVMe disks."""

    def __init__(self, root: Path, cores: int, seed: int = 0) -> None:
        self._root = root
        self._cores = cores
        self._random = random.Random(seed)
        self._descriptors: dict[str, int] = {}
        self._tick = 0
        self._alike = {path: (Path("/") / path).read_text() for path in ALIKE if (Path("/") / path).exists()}
        # Counters start so high that their texts keep their lengths: files are overwritten in place.
        self._cpu = [[10**9 + 10**6 * column for column in range(8)] + [0, 0] for _ in range(cores)]
        self._soft = [[10**9] * cores for _ in SOFTIRQS]
        self._queues = [
            f"PCI-MSIX-0000:{0x10 + card:02x}:00.0 {queue:4d}-edge      {kind}{card}-{queue}"
            for kind, cards, queues in (("mlx5_comp", NICS, min(cores, 63)), ("nvme", DISKS, min(cores, 32)))
            for card in range(cards)
            for queue in range(queues)
        ]
        self._interrupts = [[0] * cores for _ in (*self._queues, *ARCHITECTURE)]
        for row, counts in enumerate(self._interrupts[: len(self._queues)]):
            counts[row % cores] = 10**8
        for counts in self._interrupts[len(self._queues) :]:
            counts[:] = [10**8] * cores
        self._rows = [self._interrupt(row) for row in range(len(self._interrupts))]
        self._bytes = [[10**12, 10**9] for _ in range(NICS)]
        self._still()
        self.move()

    def move(self) -> None:
        """A tenth of a second passes."""
        self._tick += 1
        self._processors()
        self._interrupt_table()
        self._devices()
        self._memory()
        for path, text in self._alike.items():
            self._write(path, NUMBER.sub(self._moved, text) if path != "proc/loadavg" else text)

    def _moved(self, found: re.Match[str]) -> str:
        """A number of the machine at hand: what is not zero moves, at a length that stays."""
        number = int(found[0])
        return str(10 ** len(found[0]) + number + self._tick * (1 + number % 97)) if number else "0"

    def _processors(self) -> None:
        pick = self._random.randrange
        for times in self._cpu:
            busy = pick(11)
            times[0] += busy
            times[2] += pick(2)
            times[3] += 10 - busy
        rows = "".join(f"cpu{core} {' '.join(map(str, times))}\n" for core, times in enumerate(self._cpu))
        total = " ".join(str(sum(column)) for column in zip(*self._cpu, strict=True))
        single = " 0" * (len(self._interrupts) + 100)
        self._write(
            "proc/stat",
            f"cpu  {total}\n{rows}intr {10**11 + 5000 * self._tick}{single}\nctxt {10**11 + 9000 * self._tick}\n"
            f"btime 1700000000\nprocesses {10**7 + self._tick}\nprocs_running {10 + pick(10)}\nprocs_blocked 0\n"
            f"softirq {10**11 + 4000 * self._tick} 0 0 0 0 0 0 0 0 0 0\n",
        )
        for counts in self._soft:
            counts[:] = [count + pick(40) for count in counts]
        head = "".join(f"{f'CPU{core}':>11}" for core in range(self._cores))
        body = "".join(
            f"{name:>12}:{''.join(f'{count:>11}' for count in counts)}\n"
            for name, counts in zip(SOFTIRQS, self._soft, strict=True)
        )
        self._write("proc/softirqs", f"          {head}\n{body}")
        some = f"avg10=0.00 avg60=0.00 avg300=0.00 total={10**10 + 900 * self._tick}\n"
        for name in ("cpu", "memory", "io"):
            self._write(f"proc/pressure/{name}", f"some {some}full {some}")
        now = 10**14 + 10**8 * self._tick
        schedstat = "".join(
            f"cpu{core} 0 0 0 0 0 0 {now + core} {now // 10 + core} {10**9 + 50 * self._tick}\n"
            for core in range(self._cores)
        )
        self._write("proc/schedstat", f"version 17\ntimestamp {now}\n{schedstat}")
        softnet = "".join(
            f"{0x10000000 + 30 * self._tick:08x}{' 00000000' * 11} {core:08x}\n" for core in range(self._cores)
        )
        self._write("proc/net/softnet_stat", softnet)
        for core in range(self._cores):
            frequency = 2_000_000 + 1000 * pick(1500)
            self._write(f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", f"{frequency}\n")
            for state in range(len(STATES)):
                idle_us = 10**12 + 30_000 * self._tick
                self._write(f"sys/devices/system/cpu/cpu{core}/cpuidle/state{state}/time", f"{idle_us}\n")

    def _interrupt_table(self) -> None:
        pick = self._random.randrange
        queues = len(self._queues)
        # Of the queues a third has traffic, each on the one core that it is bound to.
        for row in range(self._tick % 3, queues, 3):
            self._interrupts[row][row % self._cores] += pick(1, 200)
            self._rows[row] = self._interrupt(row)
        for row, name in enumerate(ARCHITECTURE, queues):
            if name in MOVING:
                self._interrupts[row] = [count + pick(30) for count in self._interrupts[row]]
                self._rows[row] = self._interrupt(row)
        head = "".join(f"{f'CPU{core}':<11}" for core in range(self._cores))
        self._write("proc/interrupts", f"           {head}\n{''.join(self._rows)}")

    def _interrupt(self, row: int) -> str:
        names = list(ARCHITECTURE.items())
        queues = len(self._queues)
        label, text = (f"{row + 24}", self._queues[row]) if row < queues else names[row - queues]
        counts = "".join(f"{count:>11}" for count in self._interrupts[row])
        return f"{label:>4}:{counts}  {text}\n"

    def _devices(self) -> None:
        pick = self._random.randrange
        rows = ""
        for card, totals in enumerate(self._bytes):
            totals[0] += pick(10**8)
            totals[1] += pick(10**5)
            rows += f"  eth{card}: {totals[0]} {totals[1]} 0 0 0 0 0 0 {totals[0]} {totals[1]} 0 0 0 0 0 0\n"
        self._write(
            "proc/net/dev",
            "Inter-|   Receive                            |  Transmit\n"
            " face |bytes packets errs drop fifo frame compressed multicast|"
            f"bytes packets errs drop fifo colls carrier compressed\n{rows}",
        )
        moved = 10**9 + 100 * self._tick
        disks = "".join(
            f" 259 {disk} nvme{disk}n1 {moved} 0 {8 * moved} {moved} {moved} 0 {8 * moved} {moved} 3 {moved} {moved}"
            " 0 0 0 0 1000 1000\n"
            for disk in range(DISKS)
        )
        self._write("proc/diskstats", disks)

    def _memory(self) -> None:
        for node in range(2):
            base = f"sys/devices/system/node/node{node}"
            free = 50_000_000 + self._random.randrange(10**6)
            self._write(
                f"{base}/meminfo",
                "".join(
                    f"Node {node} {name + ':':<16}{value:>12} kB\n"
                    for name, value in (("MemTotal", 130_000_000), ("MemFree", free), ("MemUsed", 130_000_000 - free))
                )
                + f"Node {node} FilePages: 20000000 kB\nNode {node} AnonPages: 30000000 kB\n",
            )
            moved = 10**12 + 4000 * self._tick
            names = ("numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node")
            self._write(f"{base}/numastat", "".join(f"{name} {moved}\n" for name in names))

    def _still(self) -> None:
        """What does not move."""
        online = f"0-{self._cores - 1}\n"
        for name in ("online", "present", "possible"):
            self._write(f"sys/devices/system/cpu/{name}", online)
        for core in range(self._cores):
            for state, name in enumerate(STATES):
                self._write(f"sys/devices/system/cpu/cpu{core}/cpuidle/state{state}/name", f"{name}\n")
        for card in range(NICS):
            for name, text in (
                ("operstate", "up"),
                ("speed", "100000"),
                ("carrier", "1"),
                ("carrier_changes", "1"),
                ("type", "1"),
                ("mtu", "9000"),
            ):
                self._write(f"sys/class/net/eth{card}/{name}", f"{text}\n")
        for disk in range(DISKS):
            self._write(f"sys/block/nvme{disk}n1/size", "7501476528\n")
        for zone in range(2):
            self._write(f"sys/class/thermal/thermal_zone{zone}/type", "x86_pkg_temp\n")
            self._write(f"sys/class/thermal/thermal_zone{zone}/temp", "56000\n")

    def _write(self, path: str, text: str) -> None:
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            file = self._root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = self._descriptors[path] = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        os.pwrite(descriptor, text.encode(), 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the tree, and keeps it moving until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--period-ms", type=int, default=100, help="time between two moves (default: 100)")
    args = parser.parse_args(argv)
    machine = Machine(args.directory, args.cores)
    print("ready", flush=True)
    due = time.monotonic()
    while True:
        due = max(due + args.period_ms / 1000, time.monotonic())
        if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0] and not sys.stdin.read(1):
            return 0
        machine.move()


if __name__ == "__main__":
    sys.exit(main())
