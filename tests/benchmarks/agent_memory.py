"""Memory of a real agent over time: whether it stays flat.

    python -m tests.benchmarks.agent_memory [--minutes N] [--kafka HOST:PORT] [--json]

Runs `reveal agent` in a process of its own, as an operator would, against a Kafka that is named or, without a name,
that the benchmark starts; and looks at the resident memory of it and its children every 10 s, after a minute of
settling. The slope is that of the least-squares line through the second half.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import psutil

from deploy.kafka.topics import create_topics
from schemas.topics import topic_table
from tests.kafka_fixture import local_kafka

EVERY_S: Final = 10.0
SETTLE_S: Final = 60.0
BUDGET_MB: Final = 80.0
BUDGET_MB_PER_HOUR: Final = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures; exit status 1 when the budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the measurement (default: 30)")
    parser.add_argument("--kafka", default="", help="host:port of a Kafka to publish to (default: start one)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as directory, kafka(args.kafka, Path(directory)) as bootstrap:
        times_s, sizes_mb = watch(bootstrap, Path(directory), 60 * args.minutes)
    # Caches fill in the first minutes; what goes on growing after them is a leak.
    half = len(sizes_mb) // 2
    slope = float(np.polyfit(times_s[half:], sizes_mb[half:], 1)[0]) * 3600 if half > 1 else float("nan")
    result = {
        "minutes": args.minutes,
        "looks": len(sizes_mb),
        "first_mb": sizes_mb[0],
        "half_mb": sizes_mb[half],
        "last_mb": sizes_mb[-1],
        "max_mb": max(sizes_mb),
        "mb_per_hour": slope,
        "each_minute_mb": sizes_mb[:: round(60 / EVERY_S)],
    }
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print(
            f"{result['looks']} looks in {args.minutes:g} min: {result['first_mb']:.1f} MB at first,"
            f" {result['half_mb']:.1f} half-way, {result['last_mb']:.1f} at last, {result['max_mb']:.1f} at most;"
            f" {slope:+.2f} MB/h in the second half;"
            f" budget {BUDGET_MB:.0f} MB, flat (below {BUDGET_MB_PER_HOUR:g} MB/h, judged from half an hour on)"
        )
    flat = args.minutes < 30 or slope <= BUDGET_MB_PER_HOUR
    return 0 if result["max_mb"] <= BUDGET_MB and flat else 1


@contextmanager
def kafka(bootstrap: str, directory: Path) -> Iterator[str]:
    """Where Kafka is, with Reveal's topics: the one that is named, or a new one."""
    if bootstrap:
        yield bootstrap
        return
    with local_kafka(directory / "kafka") as broker:
        create_topics({"bootstrap.servers": broker.bootstrap}, topic_table(4))
        yield broker.bootstrap


def watch(bootstrap: str, directory: Path, seconds: float) -> tuple[list[float], list[float]]:
    """Times since the start, s, and resident memory of a running agent, MB."""
    environ = {
        **os.environ,
        "REVEAL_KAFKA_BOOTSTRAP": bootstrap,
        "REVEAL_AGENT_HOST": "memory",
        "REVEAL_AGENT_SPOOL": str(directory / "spool"),
        "REVEAL_AGENT_HTTP_PORT": "0",
    }
    log = directory / "agent.log"
    with log.open("wb") as out:
        agent = subprocess.Popen(
            [sys.executable, "-m", "deploy.cli", "agent"], env=environ, stdout=out, stderr=subprocess.STDOUT
        )
    times_s: list[float] = []
    sizes_mb: list[float] = []
    try:
        began = time.monotonic()
        process = psutil.Process(agent.pid)
        while (elapsed := time.monotonic() - began) <= SETTLE_S + seconds:
            if agent.poll() is not None:
                raise SystemExit(f"the agent ended:\n{log.read_text()[-2000:]}")
            if elapsed >= SETTLE_S:
                times_s.append(elapsed)
                sizes_mb.append(sum(each.memory_info().rss for each in family(process)) / 1e6)
            time.sleep(EVERY_S - (time.monotonic() - began) % EVERY_S)
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(30)
    return times_s, sizes_mb


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and what it started."""
    return [process, *process.children(recursive=True)]


if __name__ == "__main__":
    sys.exit(main())
