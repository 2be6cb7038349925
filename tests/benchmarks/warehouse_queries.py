"""How long the cookbook's queries take over a large warehouse, at rest and while rows are inserted.

    python -m tests.benchmarks.warehouse_queries [--rows 100000000] [--json]

The engine makes the rows itself: 100 hosts with 200 metrics a second, verdicts every second, and an episode a host and
hour, all within the retention. They take some 400 MB for 100 million rows and are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from schemas.catalogue import catalogue
from schemas.settings import ClickHouseSettings
from sinks.warehouse.messages import Accepted
from sinks.warehouse.migrate import Layout, apply, migrations
from sinks.warehouse.preset import presets
from sinks.warehouse.rollups import HOUR, MINUTE, roll_up
from sinks.warehouse.rows import inserts
from sinks.warehouse.store import Store
from tests.clickhouse_fixture import ClickHouseProcess
from tests.synthetic import SUBSYSTEMS, second

HOSTS: Final = 100
METRICS: Final = 200
START: Final = 1_780_000_000 // 86_400 * 86_400
REPEAT: Final = 5
CHUNK_S: Final = 500
EPISODE_EVERY_S: Final = 600
CAUSES: Final = "['cpu_contention', 'packet_loss', 'writeback_storm', 'thermal_throttling', 'ecc']"
KINDS: Final = "['cpu', 'network', 'storage', 'gpu', 'memory']"


def fill_telemetry(store: Store, rows: int) -> int:
    """So many rows of telemetry; how many seconds of the fleet that is."""
    seconds = max(CHUNK_S, rows // (HOSTS * METRICS))
    names = list(catalogue())[:METRICS]
    listed = "[" + ", ".join(f"'{name}'" for name in names) + "]"
    kinds = "[" + ", ".join(f"'{catalogue()[name].subsystem}'" for name in names) + "]"
    for begin in range(0, seconds, CHUNK_S):
        count = min(CHUNK_S, seconds - begin) * HOSTS * METRICS
        # Values as measured ones are: a level of the metric, slow waves, noise, rounded.
        store.command(
            f"INSERT INTO {store.database}.telemetry_log "
            "(host, subsystem, metric, ts, offset_ms, mean, min, max, spread, samples, stored) "
            f"WITH number % {HOSTS} AS h, intDiv(number, {HOSTS}) % {METRICS} AS m, "
            f"{START + begin} + intDiv(number, {HOSTS * METRICS}) AS t, "
            "round(100 * m + 10 * sin(t / (60 + m)) + (cityHash64(number) % 1000) / 500, 2) AS v "
            f"SELECT concat('host-', leftPad(toString(h), 4, '0')), {kinds}[m + 1], {listed}[m + 1], "
            "toDateTime(t), 0, v, v - 1, v + 1, if(m % 3 = 0, 0, 0.5), 240, toDateTime(t + 1) "
            f"FROM numbers({count})"
        )
    return seconds


def fill_rest(store: Store, seconds: int) -> None:
    """Everything else of so many seconds."""
    names = list(catalogue())[:METRICS]
    listed = "[" + ", ".join(f"'{name}'" for name in names) + "]"
    store.command(
        f"INSERT INTO {store.database}.batches_log "
        "(host, subsystem, session, sequence, start, period_ms, samples, metrics, dropped, agent, flaws, "
        "kafka_partition, kafka_offset, stored) "
        f"WITH number % {HOSTS} AS h, intDiv(number, {HOSTS}) % 5 AS s, intDiv(number, {HOSTS * 5}) AS t "
        f"SELECT concat('host-', leftPad(toString(h), 4, '0')), {KINDS}[s + 1], 's', t, "
        f"toDateTime64({START} + t, 3), 100, 10, {METRICS // 5}, 0, '1.0', [], 0, number, toDateTime({START} + t + 1) "
        f"FROM numbers({HOSTS * 5 * seconds})"
    )
    store.command(
        f"INSERT INTO {store.database}.hosts_log "
        f"SELECT concat('host-', leftPad(toString(number % {HOSTS}), 4, '0')), {KINDS}[intDiv(number, {HOSTS}) + 1], "
        f"toDateTime64({START + seconds}, 3), '1.0', 's', 1, 0, 100, map('core', ['0', '1']), now() "
        f"FROM numbers({HOSTS * 5})"
    )
    store.command(
        f"INSERT INTO {store.database}.verdicts_log "
        "(host, window_start, window_end, state, reason, coverage, model_version, votes, voters, scores, severity, "
        "anomalous, subsystem, shares, kafka_partition, kafka_offset, stored) "
        f"WITH number % {HOSTS} AS h, {START} + intDiv(number, {HOSTS}) AS t, (cityHash64(number) % 100) = 0 AS odd "
        "SELECT concat('host-', leftPad(toString(h), 4, '0')), toDateTime64(t, 3), toDateTime64(t + 3, 3), 'scored', "
        "'', 1, 1, odd, [], map('zscore', 1.5, 'forest', 0.5), odd * 4, odd, if(odd, 'cpu', NULL), map('cpu', 1.), 0, "
        f"number, toDateTime64(t + 3, 3) + 0.4 FROM numbers({HOSTS * seconds})"
    )
    store.command(
        f"INSERT INTO {store.database}.episodes_log "
        "(id, revision, host, state, start, opened, updated, closed, subsystem, shares, windows, votes, severity, "
        "peak_severity, peak, model_version, cause, confidence, explanation, kafka_partition, kafka_offset) "
        f"WITH intDiv(number, 3) AS n, number % 3 AS r, n % {HOSTS} AS h, "
        f"{START} + intDiv(n, {HOSTS}) * {EPISODE_EVERY_S} AS t "
        "SELECT hex(sipHash64(n)), r, concat('host-', leftPad(toString(h), 4, '0')), "
        "['opened', 'updated', 'closed'][r + 1], toDateTime64(t, 3), toDateTime64(t + 3, 3), "
        "toDateTime64(t + 10 * r + 3, 3), if(r = 2, toDateTime64(t + 23, 3), NULL), "
        f"{KINDS}[n % 5 + 1], map({KINDS}[n % 5 + 1], 0.8, {KINDS}[(n + 1) % 5 + 1], 0.2), 20, map('zscore', 20), "
        f"5, 6, toDateTime64(t + 5, 3), 1, {CAUSES}[n % 5 + 1], 0.9, 'made up', 0, number "
        f"FROM numbers({3 * HOSTS * max(1, seconds // EPISODE_EVERY_S)})"
    )
    store.command(
        f"INSERT INTO {store.database}.evidence_log "
        "(episode, revision, rank, host, start, metric, subsystem, instance, feature, unit, observed, expected, "
        "deviation, direction, since, contribution, kafka_partition, kafka_offset) "
        "SELECT id, revision, rank, host, start, "
        f"{listed}[(sipHash64(id) + rank) % {METRICS} + 1], subsystem, '', 'level', '', 2, 1, 9, 'up', "
        f"start + rank % 3, 0.2, 0, kafka_offset FROM {store.database}.episodes_log ARRAY JOIN range(1, 11) AS rank"
    )


def measure_sizes(store: Store) -> dict[str, tuple[int, int]]:
    """Rows and bytes on disk by table."""
    answer = store.query(
        "SELECT table, sum(rows), sum(bytes_on_disk) FROM system.parts "
        "WHERE database = {database:String} AND active GROUP BY table",
        {"database": store.database},
    )
    return {str(table): (int(rows), int(size)) for table, rows, size in answer.rows}


def ask(store: Store, seconds: int) -> dict[str, float]:
    """Milliseconds of each query, the median of some."""
    given = {
        "since": _moment(START),
        "until": _moment(START + seconds),
        "host": "",
        "subsystem": "",
        "limit": "100",
        "at": _moment(START + seconds // 2),
        "minutes": "30",
        "episode": "",
        "metric": next(iter(catalogue())),
    }
    found = {}
    for name, preset in presets().items():
        bound = preset.bind({key: value for key, value in given.items() if key in preset.types})
        if name in ("host-timeline", "before-after", "episodes"):
            bound["host"] = "host-0007"
        times = []
        for _ in range(REPEAT):
            began = time.perf_counter()
            store.query(preset.sql, bound, database=store.database)
            times.append(time.perf_counter() - began)
        found[name] = statistics.median(times) * 1000
    return found


def _moment(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S.000", time.gmtime(second))


class Load:
    """Inserts a second of 40 hosts each quarter of a second, from a thread of its own."""

    def __init__(self, settings: ClickHouseSettings) -> None:
        self._store = Store(settings, timeout_s=60)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rows = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._store.close()

    def _run(self) -> None:
        batches = [
            inserts([Accepted(second(f"new-{h}", kind, 100 * turn), 0, 0, 0) for h in range(40) for kind in SUBSYSTEMS])
            for turn in range(4)
        ]
        turn = 0
        while not self._stop.wait(0.25):
            for insert in batches[turn % len(batches)]:
                self._store.insert(insert.table, insert.rows)
                self.rows += insert.rows.num_rows
            turn += 1


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="warehouse_queries", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as directory:
        server = ClickHouseProcess(Path(directory) / "clickhouse").start()
        settings = ClickHouseSettings(port=server.port, database="bench")
        store = Store(settings, timeout_s=1800)
        try:
            apply(store, migrations(), Layout(store.database))
            began = time.perf_counter()
            seconds = fill_telemetry(store, args.rows)
            fill_rest(store, seconds)
            filled = time.perf_counter() - began
            began = time.perf_counter()
            chunks = roll_up(store, MINUTE) + roll_up(store, HOUR)
            rolled = time.perf_counter() - began
            sizes = measure_sizes(store)
            at_rest = ask(store, seconds)
            began = time.perf_counter()
            with Load(settings) as load:
                inserting = ask(store, seconds)
            rate = load.rows / (time.perf_counter() - began)
        finally:
            store.close()
            server.stop()
    if args.json:
        print(json.dumps({"sizes": sizes, "ms": at_rest, "ms_while_inserting": inserting, "rows_per_s": rate}))
        return 0
    print(f"made in {filled:.0f} s, {seconds} s of {HOSTS} hosts; summed up in {rolled:.1f} s ({chunks} statements)")
    for table, (rows, size) in sorted(sizes.items()):
        print(f"  {table:<24} {rows:>12,} rows {size / 1e6:9.1f} MB {size / rows:6.2f} B a row")
    print(f"  {'query':<24} {'at rest':>12} {'inserting':>12}  ({rate:,.0f} rows/s)")
    for name, ms in at_rest.items():
        print(f"  {name:<24} {ms:9.0f} ms {inserting[name]:9.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
