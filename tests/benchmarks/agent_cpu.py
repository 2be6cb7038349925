"""What the agent costs: processor time and memory, with psutil reading comparable sources beside it.

    python -m tests.benchmarks.agent_cpu [--seconds N] [--json]

Each measurement has a process of its own. The agent runs its whole loop on this machine, encoding included, without
Kafka; psutil reads CPU times, CPU statistics, memory, disk and network counters at the same pace, for fewer values.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

WARM_S: Final = 2.5
BUDGET_PERCENT_OF_HOST: Final = {100: 0.6, 600: 0.25}
BUDGET_MB: Final = 80.0


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures; exit status 1 when a budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each measurement (default: 20)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "PERIOD_MS"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.measure:
        what, period_ms = args.measure[0], int(args.measure[1])
        print(json.dumps({"agent": agent, "psutil": with_psutil}[what](period_ms, args.seconds)))
        return 0
    rows = []
    for period_ms in (100, 600):
        # At the same time, so that both see the same machine.
        started = [start(what, period_ms, args.seconds) for what in ("agent", "psutil")]
        ours, theirs = (json.loads(process.communicate(timeout=args.seconds + 60)[0]) for process in started)
        host_percent = ours["core_percent"] / (os.cpu_count() or 1)
        rows.append(
            {
                "period_ms": period_ms,
                **ours,
                "host_percent": host_percent,
                "budget_percent_of_2_cores": BUDGET_PERCENT_OF_HOST[period_ms],
                "psutil_core_percent": theirs["core_percent"],
                "psutil_values": theirs["values"],
                "ratio_to_psutil": ours["core_percent"] / max(theirs["core_percent"], 1e-9),
                "met": ours["core_percent"] / 2 <= BUDGET_PERCENT_OF_HOST[period_ms] and ours["rss_mb"] <= BUDGET_MB,
            }
        )
    if args.json:
        print(json.dumps(rows, indent=1))
    else:
        for row in rows:
            print(
                f"{row['period_ms']} ms: {row['core_percent']:.2f} % of one core,"
                f" {row['host_percent']:.2f} % of the host"
                f" ({os.cpu_count()} cores), {row['values']} channels, {row['rss_mb']:.0f} MB resident,"
                f" {row['missed']} ticks missed; psutil {row['psutil_core_percent']:.2f} % of one core for"
                f" {row['psutil_values']} values: ratio {row['ratio_to_psutil']:.2f}"
            )
    return 0 if all(row["met"] for row in rows) else 1


def start(what: str, period_ms: int, seconds: float) -> subprocess.Popen[bytes]:
    """A process that measures one thing and prints it."""
    command = [sys.executable, "-m", "tests.benchmarks.agent_cpu", "--measure", what, str(period_ms)]
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "--seconds", str(seconds)], stdout=subprocess.PIPE, env=environ)


def agent(period_ms: int, seconds: float) -> dict[str, float]:
    """The agent's loop with encoding."""
    from producers.agent import Agent
    from producers.clock import SystemClock
    from producers.wiring import new_frame
    from schemas.codec import encode
    from schemas.records import Telemetry
    from schemas.settings import AgentSettings

    # As in the real agent, so that its memory counts.
    __import__("confluent_kafka")
    clock = SystemClock()
    frame = new_frame(AgentSettings(period_ms=period_ms), clock)
    channels = 0
    sent = 0

    def emit(records: Sequence[Telemetry]) -> None:
        nonlocal channels, sent
        sent += sum(len(encode(record)) for record in records)
        channels = sum(matrix.shape[1] for record in records for matrix in record.metrics.values())

    loop = Agent(frame, clock, emit)
    run_for(loop, WARM_S + period_ms / 200)
    percent = cost(lambda: run_for(loop, seconds), seconds)
    frame.close()
    return {"core_percent": percent, "values": channels, "rss_mb": resident_mb(), "missed": frame.missed}


def run_for(loop: object, seconds: float) -> None:
    """Run the agent's loop for a while."""
    from producers.agent import Agent

    assert isinstance(loop, Agent)
    end = time.monotonic() + seconds
    loop.run(lambda: time.monotonic() >= end)


def with_psutil(period_ms: int, seconds: float) -> dict[str, float]:
    """psutil at the same pace."""
    import psutil

    values = 0

    def sample() -> None:
        nonlocal values
        per_cpu = psutil.cpu_times(percpu=True)
        disks = psutil.disk_io_counters(perdisk=True)
        interfaces = psutil.net_io_counters(pernic=True)
        flat = [psutil.cpu_stats(), psutil.virtual_memory(), psutil.swap_memory(), psutil.getloadavg()]
        rows = [*per_cpu, *disks.values(), *interfaces.values(), *flat]
        values = sum(len(row) for row in rows)

    def run() -> None:
        due = time.monotonic()
        end = due + seconds
        while due < end:
            sample()
            due += period_ms / 1000
            time.sleep(max(0.0, due - time.monotonic()))

    sample()
    return {"core_percent": cost(run, seconds), "values": values}


def cost(work: Callable[[], None], seconds: float) -> float:
    """Processor time of `work`, user and system, % of one core."""
    before, began = os.times(), time.process_time()
    work()
    after = os.times()
    # os.times counts ticks of 10 ms: good enough for long runs, and compared with the exact clock of the process.
    ticks = after.user + after.system - before.user - before.system
    exact = time.process_time() - began
    return 100 * max(ticks, exact) / seconds


def resident_mb() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    sys.exit(main())
