"""Bytes a row of telemetry by codec and by sorting key, on recordings.

    python -m tests.benchmarks.warehouse_codecs RECORDING... [--copies N] [--json]

Each recording (`reveal record DIR --seconds 60`, or `reveal fleet --record DIR --no-kafka --speed 0 --seconds 300`)
is reduced to rows a second as the sink does it, and stored in one table that holds every column once a codec, sorted as
`telemetry_log` is. `--copies` stores it under so many host names, so that there is enough to take times of.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from schemas.recording import read_recording
from schemas.settings import ClickHouseSettings
from sinks.warehouse.messages import Accepted
from sinks.warehouse.rows import telemetry_inserts
from sinks.warehouse.store import Store, StoreError
from tests.clickhouse_fixture import ClickHouseProcess

TYPES: Final[Mapping[str, str]] = {
    "host": "LowCardinality(String)",
    "subsystem": "LowCardinality(String)",
    "metric": "LowCardinality(String)",
    "ts": "DateTime('UTC')",
    "offset_ms": "UInt16",
    "mean": "Float32",
    "min": "Float32",
    "max": "Float32",
    "spread": "Float32",
    "samples": "UInt32",
    "stored": "DateTime('UTC')",
}
WORDS: Final = ("LZ4", "ZSTD(1)")
NUMBERS: Final = ("LZ4", "ZSTD(1)", "ZSTD(3)", "Delta, ZSTD(1)", "DoubleDelta, ZSTD(1)", "T64, ZSTD(1)")
VALUES: Final = (
    *("LZ4", "ZSTD(1)", "ZSTD(3)", "Delta, ZSTD(1)", "Gorilla", "Gorilla, ZSTD(1)"),
    *("FPC(12)", "FPC(12), ZSTD(1)", "ALP", "ALP, ZSTD(1)"),
)
CODECS: Final[Mapping[str, Sequence[str]]] = {
    "host": WORDS,
    "subsystem": WORDS,
    "metric": WORDS,
    **dict.fromkeys(("ts", "offset_ms", "samples", "stored"), NUMBERS),
    **dict.fromkeys(("mean", "min", "max", "spread"), VALUES),
}
KEYS: Final = ("host, metric, ts, offset_ms", "metric, host, ts, offset_ms", "host, ts, metric, offset_ms")
CHUNK: Final = 2_000


@dataclass(frozen=True)
class Figure:
    """One codec of one column: bytes a row, and ms to read a million rows of it."""

    column: str
    codec: str
    bytes_row: float
    read_ms: float


def load(store: Store, directory: Path, copies: int) -> int:
    """Rows of the recording, into the table `source` of the store's database; how many."""
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items() if name != "stored")
    store.command(f"CREATE OR REPLACE TABLE {store.database}.source ({columns}) ENGINE = MergeTree ORDER BY ()")
    accepted = (Accepted(record, 0, number, 0) for number, record in enumerate(read_recording(directory)))
    while part := list(islice(accepted, CHUNK)):
        for insert in telemetry_inserts(part):
            store.insert("source", insert.rows)
    store.command(
        f"CREATE OR REPLACE TABLE {store.database}.many ENGINE = MergeTree ORDER BY () AS "
        f"SELECT * REPLACE concat(host, '-', toString(copy)) AS host, ts + 1 + rand() % 2 AS stored "
        f"FROM {store.database}.source, (SELECT number AS copy FROM numbers({copies})) AS copies"
    )
    return int(store.query(f"SELECT count() FROM {store.database}.many").rows[0][0])


def known_codecs(store: Store) -> Iterator[tuple[str, str, str]]:
    """Column, codec and the name of the column that has it, of those that this engine has."""
    for column, codecs in CODECS.items():
        for number, codec in enumerate(codecs):
            try:
                store.command(
                    f"CREATE OR REPLACE TABLE {store.database}.trial (x {TYPES[column]} CODEC({codec})) "
                    "ENGINE = MergeTree ORDER BY () SETTINGS allow_experimental_codecs = 1"
                )
            except StoreError:
                continue
            yield column, codec, f"{column}_{number}"


def measure_codecs(store: Store) -> list[Figure]:
    """Figures of every column and codec over the table `many`."""
    chosen = list(known_codecs(store))
    columns = ", ".join(f"{name} {TYPES[column]} CODEC({codec})" for column, codec, name in chosen)
    store.command(
        f"CREATE OR REPLACE TABLE {store.database}.codecs ({columns}) ENGINE = MergeTree "
        "ORDER BY (host_0, metric_0, ts_0, offset_ms_0) "
        "SETTINGS allow_experimental_codecs = 1, min_bytes_for_wide_part = 0"
    )
    names = ", ".join(f"{column} AS {name}" for column, _, name in chosen)
    store.command(f"INSERT INTO {store.database}.codecs SELECT {names} FROM {store.database}.many")
    store.command(f"OPTIMIZE TABLE {store.database}.codecs FINAL")
    answer = store.query(
        "SELECT column, sum(column_data_compressed_bytes), sum(rows) FROM system.parts_columns "
        "WHERE database = {database:String} AND table = 'codecs' AND active GROUP BY column",
        {"database": store.database},
    )
    size = {name: (int(total), int(rows)) for name, total, rows in answer.rows}
    figures = []
    for column, codec, name in chosen:
        total, rows = size[name]
        times = []
        for _ in range(5):
            began = time.perf_counter()
            store.query(f"SELECT max(cityHash64({name})) FROM {store.database}.codecs SETTINGS max_threads = 1")
            times.append(time.perf_counter() - began)
        figures.append(Figure(column, codec, total / rows, statistics.median(times) * 1e9 / rows))
    return figures


def measure_keys(store: Store) -> dict[str, dict[str, float]]:
    """By sorting key: bytes a row with ZSTD(1) throughout, and rows read by three ordinary queries."""
    one = store.query(f"SELECT any(host), any(metric), max(ts) FROM {store.database}.many").rows[0]
    bound = dict(zip(("host", "metric", "end"), one, strict=True))
    found: dict[str, dict[str, float]] = {}
    for key in KEYS:
        columns = ", ".join(
            f"{name} {kind} CODEC({'DoubleDelta, ZSTD(1)' if kind.startswith('Date') else 'ZSTD(1)'})"
            for name, kind in TYPES.items()
        )
        store.command(
            f"CREATE OR REPLACE TABLE {store.database}.keyed ({columns}) ENGINE = MergeTree ORDER BY ({key}) "
            "SETTINGS min_bytes_for_wide_part = 0"
        )
        store.command(f"INSERT INTO {store.database}.keyed SELECT {', '.join(TYPES)} FROM {store.database}.many")
        store.command(f"OPTIMIZE TABLE {store.database}.keyed FINAL")
        total, rows = store.query(
            "SELECT sum(data_compressed_bytes), sum(rows) FROM system.parts "
            "WHERE database = {database:String} AND table = 'keyed' AND active",
            {"database": store.database},
        ).rows[0]
        figures = {"bytes a row": total / rows}
        for name, where in (
            ("a metric of a host", "host = {host:String} AND metric = {metric:String}"),
            ("a metric of all", "metric = {metric:String}"),
            ("a host's last minute", "host = {host:String} AND ts > {end:DateTime} - 60"),
        ):
            explained = store.query(
                f"EXPLAIN ESTIMATE SELECT sum(mean) FROM {store.database}.keyed WHERE {where}", bound
            ).rows
            figures[f"rows read for {name}"] = sum(int(row[3]) for row in explained)
        found[key] = figures
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="warehouse_codecs", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recording", type=Path, nargs="+")
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    everything = {}
    with tempfile.TemporaryDirectory() as directory:
        server = ClickHouseProcess(Path(directory) / "clickhouse").start()
        store = Store(ClickHouseSettings(port=server.port, database=f"bench_{uuid.uuid4().hex[:8]}"), timeout_s=300)
        try:
            store.command(f"CREATE DATABASE {store.database}")
            for recording in args.recording:
                rows = load(store, recording, args.copies)
                everything[recording.name] = (rows, measure_codecs(store), measure_keys(store))
        finally:
            store.close()
            server.stop()
    if args.json:
        print(
            json.dumps(
                {
                    name: {"rows": rows, "codecs": [[f.column, f.codec, f.bytes_row, f.read_ms] for f in figures]}
                    | {"keys": keys}
                    for name, (rows, figures, keys) in everything.items()
                }
            )
        )
        return 0
    for name, (rows, figures, keys) in everything.items():
        print(f"{name}: {rows:,} rows")
        for figure in figures:
            print(f"  {figure.column:<10} {figure.codec:<22} {figure.bytes_row:8.3f} B {figure.read_ms:8.1f} ms")
        for key, found in keys.items():
            print(f"  ORDER BY {key}: " + ", ".join(f"{what} {value:,.2f}" for what, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
