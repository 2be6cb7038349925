"""Rows a second into ClickHouse: the whole path of the sink, its steps, and the latency of a small batch.

    python -m tests.benchmarks.warehouse_rows [--json] [--url HOST:PORT]

Starts an embedded engine in a temporary directory unless given a server. The telemetry is that of a busy host with 24
cores: some 200 metrics, some 1,500 channels, 10 samples a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from schemas.catalogue import subsystem_metrics
from schemas.codec import encode
from schemas.records import Telemetry
from schemas.settings import ClickHouseSettings
from schemas.topics import TELEMETRY
from sinks.warehouse.messages import Accepted, Message, process_message
from sinks.warehouse.migrate import Layout, apply, migrations
from sinks.warehouse.rows import Insert, inserts, telemetry_inserts
from sinks.warehouse.samples import sample_inserts
from sinks.warehouse.store import Store
from tests.clickhouse_fixture import ClickHouseProcess
from tests.unit.sinks.examples import episode, event, letter, verdict

BATCH_ROWS = 50_000
WIDTHS = {"host": 1, "core": 24, "node": 2, "interface": 4, "disk": 4}
BUDGET = 300_000


def host_second(host: str, subsystem: str, index: int, rng: np.random.Generator) -> Telemetry:
    """Telemetry of one second of a busy host, values rounded as counters and gauges are."""
    metrics = {}
    instances = {}
    for metric in subsystem_metrics(subsystem).values():
        width = WIDTHS.get(metric.dimension, 1)
        instances[metric.dimension] = ("",) if width == 1 else tuple(str(number) for number in range(width))
        metrics[metric.name] = rng.normal(1000, 50, (10, width)).round(1).astype(np.float32)
    return Telemetry(subsystem, host, "s", index, (1_790_000_000 + index) * 10**9, 100, 10, instances, metrics)


def messages(rows: int, subsystems: Sequence[str] = ("cpu", "memory", "network", "storage")) -> list[Message]:
    """So many rows' worth of telemetry messages, one host after another."""
    rng = np.random.default_rng(1)
    made: list[Message] = []
    # Encoding is not what is measured: a few seconds of one host, sent under many names and times.
    templates = [host_second("h", subsystem, 0, rng) for subsystem in subsystems]
    have = 0
    while have < rows:
        for template in templates:
            number = len(made)
            start_ns = template.start_ns + number // 400 * 10**9
            record = replace(template, host=f"host-{number // 4 % 100}", sequence=number, start_ns=start_ns)
            made.append(Message(TELEMETRY[record.subsystem], 0, number, 0, None, encode(record)))
            have += len(record.metrics)
    return made


def timed(work: Callable[[], object], repeat: int) -> float:
    """Seconds of one run, the median of `repeat`."""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(store: Store, repeat: int = 7) -> dict[str, float]:
    """Rows a second of each step and of all, and ms from a batch of 200 verdicts to its being readable."""
    apply(store, migrations(), Layout(store.database))
    batch = messages(BATCH_ROWS)
    accepted = [process_message(message) for message in batch]
    shaped = telemetry_inserts(accepted)
    rows = sum(insert.rows.num_rows for insert in shaped)

    def write(parts: list[Insert]) -> None:
        for part in parts:
            store.insert(part.table, part.rows)

    write(shaped)
    decode = timed(lambda: [process_message(message) for message in batch], repeat)
    shape = timed(lambda: inserts(accepted), repeat)
    insert = timed(lambda: write(shaped), repeat)
    path = timed(lambda: write(inserts([process_message(message) for message in batch])), repeat)
    window = [
        process_message(Message("reveal.verdicts", 0, n, 0, None, encode(verdict(f"h{n}", 0)))) for n in range(200)
    ]
    small = timed(lambda: write(inserts(window)), 20)
    return {
        "messages_in_batch": len(batch),
        "rows_in_batch": rows,
        "decode_rows_per_s": rows / decode,
        "shape_rows_per_s": rows / shape,
        "insert_rows_per_s": rows / insert,
        "path_rows_per_s": rows / path,
        "verdicts_200_ms": small * 1000,
    }


def measure_tables(store: Store, repeat: int = 5) -> dict[str, tuple[int, float, float]]:
    """By table: rows of a batch, rows a second of the insert alone, and with the shaping."""
    telemetry = [process_message(message) for message in messages(BATCH_ROWS)]
    groups: list[list[Accepted]] = [
        telemetry,
        [Accepted(verdict(f"h{n % 500}", n // 500), 0, n, 0) for n in range(10_000)],
        [Accepted(episode(f"h{n}", 1), 0, n, 0) for n in range(5_000)],
        [Accepted(event(f"h{n % 500}", n // 500), 0, n, 0) for n in range(10_000)],
        [Accepted(letter(n), 0, n, 0) for n in range(10_000)],
    ]
    found = {}
    for group in groups:
        parts = inserts(group)
        shape = timed(partial(inserts, group), repeat) / sum(part.rows.num_rows for part in parts)
        for part in parts:
            rows = part.rows.num_rows
            took = timed(partial(store.insert, part.table, part.rows), repeat)
            found[part.table] = (rows, rows / took, rows / (took + shape * rows))
    samples = sample_inserts("e1", [item.record for item in telemetry[:400] if isinstance(item.record, Telemetry)])
    for part in samples:
        took = timed(partial(store.insert, part.table, part.rows), repeat)
        found[part.table] = (part.rows.num_rows, part.rows.num_rows / took, part.rows.num_rows / took)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; status 1 when inserts are slower than the budget."""
    parser = argparse.ArgumentParser(prog="warehouse_rows", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--url", help="HOST:PORT of a running ClickHouse")
    args = parser.parse_args(argv)
    name = f"bench_{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as directory:
        server = None if args.url else ClickHouseProcess(Path(directory) / "clickhouse").start()
        host, _, port = (args.url or f"127.0.0.1:{server.port if server else 0}").partition(":")
        store = Store(ClickHouseSettings(host=host, port=int(port), database=name))
        try:
            figures = measure(store)
            tables = measure_tables(store)
            store.command(f"DROP DATABASE `{name}`")
        finally:
            store.close()
            if server is not None:
                server.stop()
    if args.json:
        print(json.dumps({key: round(value, 2) for key, value in figures.items()}))
    else:
        for key, value in figures.items():
            print(f"{key:<20} {value:>14,.2f}")
        for table, (rows, alone, shaped) in tables.items():
            print(f"{table:<20} {alone:>14,.0f} rows/s, {shaped:,.0f} with shaping, batches of {rows:,}")
        print(f"budget: insert at least {BUDGET:,} rows/s")
    return 0 if figures["insert_rows_per_s"] >= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
