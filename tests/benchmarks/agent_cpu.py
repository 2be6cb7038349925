"""What the agent costs: processor time, memory and bytes, beside psutil and prometheus-node-exporter.

    python -m tests.benchmarks.agent_cpu [--seconds N] [--cores N,N] [--json]

At 100, 300 and 600 ms on this machine, and on made-up machines with many cores (tests.benchmarks.machine, which moves
in a process of its own). Each measurement has a process of its own; those of one line run at the same time, so that all
see the same machine. The agent runs its whole loop, encoding included, without Kafka; psutil reads CPU times, CPU
statistics, memory, disk and network counters, for fewer values; the exporter reads the same sources where it knows
them, and is asked over HTTP at the same pace, of which only its own processor time counts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

PERIODS: Final = (100, 300, 600)
CORES: Final = (24, 96)
WARM_S: Final = 12.0
BUDGET_PERCENT: Final = {100: (0.6, 2), 300: (0.6, 2), 600: (0.25, 2)}
"""Share of the host, and for how many cores it is meant."""
LARGE_BUDGET_PERCENT: Final = 0.1
BUDGET_MB: Final = 80.0
LEVEL: Final = 3
# What looks at the processors themselves finds this machine's, not those of a tree.
UNLIKE: Final = ("perf",)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures; exit status 1 when a budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each measurement (default: 20)")
    parser.add_argument("--cores", default=",".join(map(str, CORES)), help="made-up machines; empty for none")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=3, metavar=("WHAT", "PERIOD_MS", "ROOT"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.measure:
        what, period_ms, root = args.measure
        measures = {"agent": agent, "psutil": with_psutil, "exporter": with_exporter}
        print(json.dumps(measures[what](int(period_ms), args.seconds, Path(root))))
        return 0
    rows = [measure(period_ms, args.seconds, Path("/"), os.cpu_count() or 1) for period_ms in PERIODS]
    for cores in [int(text) for text in args.cores.split(",") if text]:
        with tempfile.TemporaryDirectory(dir=memory_directory()) as directory, moving(Path(directory), cores):
            rows += [measure(period_ms, args.seconds, Path(directory), cores) for period_ms in PERIODS]
    print(json.dumps(rows, indent=1) if args.json else table(rows))
    return 0 if all(row["met"] for row in rows) else 1


def measure(period_ms: int, seconds: float, root: Path, cores: int) -> dict[str, Any]:
    """All three at the same time."""
    started = {what: start(what, period_ms, seconds, root) for what in ("agent", "psutil", "exporter")}
    found = {what: json.loads(process.communicate(timeout=seconds + 180)[0]) for what, process in started.items()}
    ours = found["agent"]
    percent = ours["core_percent"] / cores
    here = root == Path("/")
    if here:
        budget, per = BUDGET_PERCENT[period_ms]
        met = ours["core_percent"] / per <= budget
    else:
        budget, met = LARGE_BUDGET_PERCENT, percent <= LARGE_BUDGET_PERCENT
    ratios = {
        what: ours["core_percent"] / theirs["core_percent"]
        for what in ("psutil", "exporter")
        if (theirs := found[what]).get("core_percent")
    }
    return {
        "machine": "this one" if here else "made up",
        "cores": cores,
        "period_ms": period_ms,
        **found,
        "host_percent": percent,
        "budget_percent": budget,
        "ratios": ratios,
        "met": met and ours["rss_mb"] <= BUDGET_MB,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Rows for people."""
    lines = [
        f"{'machine':<10}{'cores':>6}{'ms':>5}{'% core':>8}{'% host':>8}{'budget':>8}{'values':>8}{'MB':>5}{'B/s':>7}"
        f"{'missed':>7}   {'psutil % core, values, ratio':<30}exporter % core, values, ratio"
    ]
    for row in rows:
        ours = row["agent"]
        others = []
        for what in ("psutil", "exporter"):
            theirs = row[what]
            if reason := theirs.get("skipped"):
                others.append(f"skipped: {reason}")
            else:
                ratio = row["ratios"].get(what, float("nan"))
                others.append(f"{theirs['core_percent']:6.2f} {theirs['values']:8d} {ratio:8.2f}")
        lines.append(
            f"{row['machine']:<10}{row['cores']:>6}{row['period_ms']:>5}{ours['core_percent']:>8.2f}"
            f"{row['host_percent']:>8.3f}{row['budget_percent']:>8.2f}{ours['values']:>8}{ours['rss_mb']:>5.0f}"
            f"{ours['bytes_per_s']:>7.0f}{ours['missed']:>7}   {others[0]:<30}{others[1]}"
            f"{'' if row['met'] else '  MISSED'}"
        )
    return "\n".join(lines)


def start(what: str, period_ms: int, seconds: float, root: Path) -> subprocess.Popen[bytes]:
    """A process that measures one thing and prints it."""
    command = [sys.executable, "-m", "tests.benchmarks.agent_cpu", "--measure", what, str(period_ms), str(root)]
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "--seconds", str(seconds)], stdout=subprocess.PIPE, env=environ)


def memory_directory() -> str | None:
    """Where files cost least, so that the tree's and not the disk's reading is measured."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextmanager
def moving(root: Path, cores: int) -> Iterator[None]:
    """A made-up machine below `root`."""
    command = [sys.executable, "-m", "tests.benchmarks.machine", str(root), "--cores", str(cores)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def agent(period_ms: int, seconds: float, root: Path) -> dict[str, Any]:
    """The agent's loop with encoding."""
    import cramjam

    from producers.agent import Agent
    from producers.clock import SystemClock
    from producers.wiring import new_frame
    from schemas.codec import encode
    from schemas.records import Telemetry
    from schemas.settings import AgentSettings

    # As in the real agent, so that its memory counts.
    __import__("confluent_kafka")
    clock = SystemClock()
    settings = AgentSettings(
        period_ms=period_ms,
        procfs=str(root / "proc"),
        sysfs=str(root / "sys"),
        disable=() if root == Path("/") else UNLIKE,
    )
    frame = new_frame(settings, clock)
    channels = 0
    sent: list[int] = []
    apart_s = 0.0

    def emit(records: Sequence[Telemetry]) -> None:
        nonlocal channels, apart_s
        messages = [encode(record) for record in records]
        # Compressing is the Kafka client's work, and done here for the figure alone.
        began = time.thread_time()
        packed = sum(len(cramjam.zstd.compress(message, LEVEL)) for message in messages)
        sent.append(round(packed * 1000 / (records[0].count * records[0].period_ms)) if records else 0)
        channels = sum(matrix.shape[1] for record in records for matrix in record.metrics.values())
        apart_s += time.thread_time() - began

    loop = Agent(frame, clock, emit)
    run_for(loop, WARM_S + period_ms / 200)
    sent.clear()
    apart_s = 0.0
    missed = frame.missed
    percent = cost(lambda: run_for(loop, seconds), seconds)
    result = {
        "core_percent": percent - 100 * apart_s / seconds,
        "values": channels,
        "rss_mb": resident_mb(),
        "bytes_per_s": sum(sent) / max(len(sent), 1),
        "missed": frame.missed - missed,
        "costs_ms_per_s": {
            name: round(1000 * spent / (seconds + WARM_S), 3)
            for name, spent in sorted(frame.costs().items(), key=lambda item: -item[1])
        },
    }
    frame.close()
    return result


def run_for(loop: object, seconds: float) -> None:
    """Run the agent's loop for a while."""
    from producers.agent import Agent

    assert isinstance(loop, Agent)
    end = time.monotonic() + seconds
    loop.run(lambda: time.monotonic() >= end)


def with_psutil(period_ms: int, seconds: float, root: Path) -> dict[str, Any]:
    """psutil at the same pace."""
    import psutil

    psutil.PROCFS_PATH = str(root / "proc")
    values = 0

    def sample() -> None:
        nonlocal values
        per_cpu = psutil.cpu_times(percpu=True)
        disks = psutil.disk_io_counters(perdisk=True)
        interfaces = psutil.net_io_counters(pernic=True)
        flat = [psutil.cpu_stats(), psutil.virtual_memory(), psutil.swap_memory(), psutil.getloadavg()]
        rows = [*per_cpu, *disks.values(), *interfaces.values(), *flat]
        values = sum(len(row) for row in rows)

    sample()
    return {"core_percent": cost(lambda: paced(sample, period_ms, seconds), seconds), "values": values}


def with_exporter(period_ms: int, seconds: float, root: Path) -> dict[str, Any]:
    """prometheus-node-exporter at the same pace."""
    import psutil

    from tests.benchmarks.exporter import NoExporterError, binary, running, scrape

    values = 0

    def sample() -> None:
        nonlocal values
        values = scrape(port)

    try:
        with running(binary(), root) as (pid, port):
            process = psutil.Process(pid)
            paced(sample, period_ms, 1.0)
            before = process.cpu_times()
            paced(sample, period_ms, seconds)
            after = process.cpu_times()
            rss_mb = process.memory_info().rss / 1e6
    except (NoExporterError, OSError, IndexError) as error:
        return {"skipped": str(error) or type(error).__name__}
    spent = after.user + after.system - before.user - before.system
    return {"core_percent": 100 * spent / seconds, "values": values, "rss_mb": rss_mb}


def paced(sample: Callable[[], None], period_ms: int, seconds: float) -> None:
    """`sample` every `period_ms`; one that comes late is not made up for."""
    due = time.monotonic()
    end = due + seconds
    while due < end:
        sample()
        due = max(due + period_ms / 1000, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def cost(work: Callable[[], None], seconds: float) -> float:
    """Processor time of `work`, its threads and its children, % of one core."""

    def spent() -> float:
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    before = spent()
    work()
    return 100 * (spent() - before) / seconds


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    sys.exit(main())
