"""The table of faults: what each does, what it may be expected to be called, and the metrics that it moves."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

Argv = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """What faults know of where they strike.

    directory  on a disk, of the laboratory's own
    workload   ids of the workload's processes
    cores      that the laboratory may use
    pmu        whether the processors' performance counters can be read
    root       of /proc and /sys
    """

    directory: Path
    workload: tuple[int, ...]
    cores: tuple[int, ...]
    pmu: bool
    root: Path = Path("/")


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the table.

    cause        as in causes.toml, None where no cause fits; `blind_cause` takes its place on a machine without
                 performance counters, where nobody could tell
    moves        shell patterns of metrics, one of which should be in the evidence
    argv         the program that acts it out for some seconds
    extra_s      how long it may need, beyond that, to get to what it is
    unable       why it cannot be acted out here; empty when it can
    """

    name: str
    does: str
    subsystem: str | None
    cause: str | None
    moves: tuple[str, ...]
    argv: Callable[[Place, float], Argv]
    unable: Callable[[Place], str] = lambda _: ""
    blind_cause: str | None = None
    extra_s: float = 0.0

    def expected_cause(self, pmu: bool) -> str | None:
        """The cause that is right on a machine with or without performance counters."""
        return self.cause if pmu or self.blind_cause is None else self.blind_cause

    def moves_metric(self, metric: str) -> bool:
        """Whether `metric` is among those it moves."""
        return any(fnmatchcase(metric, pattern) for pattern in self.moves)


def _act(name: str) -> Callable[[Place, float], Argv]:
    def argv(place: Place, seconds: float) -> Argv:
        own = (sys.executable, "-P", "-m", "tests.laboratory.acts", name, f"{seconds:g}", str(place.directory))
        return (*own, *map(str, place.workload)) if name == "freeze" else own

    return argv


def _wire(*order: str) -> Callable[[Place, float], Argv]:
    def argv(place: Place, seconds: float) -> Argv:
        act = (sys.executable, "-P", "-m", "tests.laboratory.acts", "wire", f"{seconds:g}", str(place.directory))
        return (*act, *order)

    return argv


def _stress(*options: str) -> Callable[[Place, float], Argv]:
    def argv(place: Place, seconds: float) -> Argv:
        bounds = ("--timeout", f"{max(1, round(seconds))}s", "--temp-path", str(place.directory), "--quiet")
        last = str(max(place.cores))
        return ("stress-ng", *(option.replace("LAST", last) for option in options), *bounds)

    return argv


def _writeback(place: Place, seconds: float) -> Argv:
    return (sys.executable, "-P", "-m", "deploy.demo.faults", "writeback", f"{seconds:g}", str(place.directory))


def _fio(place: Place, seconds: float) -> Argv:
    # Writes past the page cache into space that is set aside at once: no pages get dirty, no file is laid out first.
    # In batches, with a pause after each, so that what others ask for meanwhile stands in a queue.
    work = ("--rw=randwrite", "--bs=1m", "--size=512m", "--fallocate=native", "--direct=1", "--ioengine=libaio")
    batches = ("--iodepth=64", "--iodepth_batch=64", "--iodepth_batch_complete_min=64")
    pauses = ("--thinktime=100ms", "--thinktime_blocks=64")
    bounds = ("--time_based", f"--runtime={max(1, round(seconds))}", "--unlink=1", "--minimal", "--output=/dev/null")
    return ("fio", "--name=laboratory", f"--directory={place.directory}", *work, *batches, *pauses, *bounds)


def _no_huge_pages(place: Place) -> str:
    setting = place.root / "proc/sys/vm/nr_hugepages"
    if not setting.exists():
        return "the kernel has no huge pages"
    return "" if os.access(setting, os.W_OK) else f"{setting} cannot be written"


def _no_wire(place: Place) -> str:
    return "" if (place.directory / "wire").exists() else "network namespaces cannot be had here"


CPU_TIME: Final = ("cpu.busy_pct", "cpu.time.*", "cpu.run_delay", "cpu.psi.*", "cpu.procs_running", "cpu.load1")
SWITCHES: Final = (
    *("cpu.context_switches_total", "cpu.perf.context_switches", "cpu.timeslices", "cpu.irq.resched", "cpu.irq.call"),
    "cpu.time.*",
)
RECLAIM: Final = ("vm.scan_*", "vm.pgsteal", "vm.alloc_stall", "vm.refault", "vm.pgmajfault")
TRAFFIC: Final = ("ip.*_octets", "net.*_bytes", "net.*_packets", "tcp.in_segs", "tcp.out_segs")
CONNECTIONS: Final = (
    *("tcp.syn_retrans", "tcp.abort_on_timeout", "tcp.attempt_fails", "tcp.estab_resets", "tcp.out_rsts"),
    *("tcp.curr_estab", "tcp.in_use"),
)
RETRANSMITS: Final = (
    *("tcp.retrans_segs", "tcp.fast_retrans", "tcp.lost_retransmit", "tcp.slow_start_retrans", "tcp.timeouts"),
    *("tcp.ofo_queue", "tcp.dsack_recv"),
)

FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault
    for fault in (
        Fault(
            "cpu-hog",
            "a process in a busy loop, pinned to the last core",
            "cpu",
            "cpu_contention",
            CPU_TIME,
            _stress("--cpu", "1", "--taskset", "LAST"),
        ),
        Fault(
            "cpu-all-cores",
            "a process in a busy loop on each core",
            "cpu",
            "cpu_contention",
            CPU_TIME,
            _stress("--cpu", "0"),
        ),
        Fault(
            "cache-thrash",
            "a process that reads and writes all over the last-level cache",
            "cpu",
            "cache_contention",
            (*CPU_TIME, "cpu.perf.*", "mem.bw.*"),
            _stress("--cache", "1"),
            blind_cause="cpu_contention",
        ),
        Fault(
            "context-switches",
            "two pairs of processes that wake each other through pipes",
            "cpu",
            "context_switch_storm",
            SWITCHES,
            _stress("--switch", "2"),
        ),
        Fault(
            "softirqs",
            "frames that a bridge of its own copies to 32 ports, where nobody wants them",
            "cpu",
            "softirq_overload",
            ("cpu.time.softirq", "cpu.softirq.*", "cpu.softirqs_total", "softnet.*", "cpu.psi.irq_full"),
            _act("softirqs"),
            _no_wire,
        ),
        Fault(
            "memory-pressure",
            "a process that takes all memory but 4 %, then reads files through what is left",
            "memory",
            "memory_pressure",
            ("mem.*", "numa.mem_*", "zone.*", *RECLAIM),
            _act("memory"),
            extra_s=90.0,
        ),
        Fault(
            "huge-pages",
            "a quarter of the free memory set aside as huge pages that nobody uses",
            "memory",
            "huge_pages",
            ("mem.hugetlb", "numa.hugepages_*", "vm.hugetlb_*", "mem.available", "mem.free*", "numa.mem_*"),
            _act("huge-pages"),
            _no_huge_pages,
        ),
        Fault(
            "page-faults",
            "a process that maps, touches and gives back 32 MiB over and over",
            "memory",
            "page_fault_storm",
            ("vm.pgfault", "vm.pgfree", "cpu.perf.minor_faults", "cpu.time.system", "numa.hit"),
            _act("page-faults"),
        ),
        Fault(
            "writeback",
            "a process that dirties page cache faster than usual and has it written back",
            "storage",
            "writeback_storm",
            ("mem.dirty", "mem.writeback", "vm.dirtied", "vm.written", "disk.*", "io.*", "cpu.time.iowait"),
            _writeback,
        ),
        Fault(
            "slow-disk",
            "fio with 64 writes of 1 MiB at a time, past the page cache, so that everybody else waits",
            "storage",
            "disk_latency",
            ("disk.*", "io.*", "cpu.time.iowait", "cpu.procs_blocked"),
            _fio,
        ),
        Fault(
            "packet-loss",
            "one packet in twenty is lost on the wire to the workload's peer, each way",
            "network",
            "packet_loss",
            RETRANSMITS,
            _wire("loss", "5"),
            _no_wire,
        ),
        Fault(
            "packet-delay",
            "packets to and from the workload's peer take 80 ms longer each way",
            "network",
            "network_slow",
            (*TRAFFIC, "tcp.mem_pages", *RETRANSMITS),
            _wire("delay", "80"),
            _no_wire,
        ),
        Fault(
            "packet-flood",
            "small datagrams from the peer, 40,000 a second, to a socket that nobody reads",
            "network",
            "packet_flood",
            ("net.rx_*", "udp.*", "softnet.*", "cpu.softirq.net_rx", "cpu.time.softirq"),
            _wire("flood"),
            _no_wire,
        ),
        Fault(
            "workload-retransmits",
            "a peer of the workload is gone: it neither acknowledges what was sent nor answers connection requests",
            "network",
            "workload_retransmits",
            (*RETRANSMITS, *CONNECTIONS),
            _wire("vanish"),
            _no_wire,
        ),
        Fault(
            "freeze",
            "the workload's processes are stopped (SIGSTOP) and later go on",
            "cpu",
            "stalled",
            ("cpu.*", *TRAFFIC, "disk.*", "io.*", "vm.pgfault", "vm.dirtied", "vm.written"),
            _act("freeze"),
        ),
    )
}
"""By name, in the order of a run. A subsystem is the one its cause belongs to, where several are touched."""
