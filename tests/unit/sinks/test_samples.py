"""Samples around episodes: their rows, and which part of an episode is copied when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from schemas.records import Telemetry
from schemas.settings import ClickHouseSettings
from sinks.warehouse import samples
from sinks.warehouse.samples import PATIENCE_S, Due, Stretch, copy, sample_inserts
from sinks.warehouse.store import Result, Store
from tests.synthetic import START, second

BEGIN = START * 1000


def test_a_row_is_a_metric_of_an_instance_with_its_samples_in_order() -> None:
    record = second("h1", "cpu", 0)
    name, matrix = next((name, matrix) for name, matrix in record.metrics.items() if matrix.shape[1] == 2)
    holes = matrix.copy()
    holes[3, 1] = np.nan
    holes[:, 0] = np.nan
    (insert,) = sample_inserts("e1", [replace(record, metrics={name: holes})])
    assert insert.table == "episode_samples_log"
    (row,) = insert.rows.to_pylist()
    assert (row["episode"], row["host"], row["metric"], row["instance"]) == ("e1", "h1", name, "1")
    assert row["period_ms"] == 100
    assert row["samples"] == pytest.approx(holes[:, 1].tolist(), nan_ok=True)


def test_midnight_makes_two_inserts_and_nothing_makes_none() -> None:
    record = second("h1", "storage", 0)
    later = replace(record, start_ns=record.start_ns + 86_400 * 10**9)
    assert len(sample_inserts("e1", [record, later])) == 2
    assert sample_inserts("e1", []) == []
    gone = {name: np.full_like(matrix, np.nan) for name, matrix in record.metrics.items()}
    assert sample_inserts("e1", [replace(record, metrics=gone)]) == []


def test_an_insert_is_bounded_however_large_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MOST_SAMPLES", 1_000)
    records = [second("h1", "cpu", index) for index in range(20)]
    made = sample_inserts("e1", records)
    sizes = [sum(map(len, insert.rows.column("samples").to_pylist())) for insert in made]
    one = sum(matrix.size for matrix in records[0].metrics.values())
    assert sum(sizes) == 20 * one
    assert max(sizes) < 1_000 + one


class Shelf(Store):
    """A store that knows which seconds of a host came, and keeps what is inserted."""

    def __init__(self, seconds: int, subsystems: Mapping[str, int]) -> None:
        super().__init__(ClickHouseSettings())
        self.newest = {name: min(seconds, last) for name, last in subsystems.items()}
        self.spans: list[dict[str, Any]] = []
        self.rows = 0

    def insert(self, table: str, rows: pa.Table) -> None:
        if table == "episode_spans_log":
            self.spans += rows.to_pylist()
        else:
            self.rows += rows.num_rows

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None, *, database: str = "") -> Result:
        assert parameters is not None
        begin, end = parameters["begin"], parameters["end"]
        rows = []
        for subsystem, last in self.newest.items():
            there = [index for index in range(last) if begin <= BEGIN + 1000 * index < end]
            if there:
                rows.append((subsystem, 0, there[0], there[-1], len(there), BEGIN + 1000 * there[-1]))
        return Result((), rows)


def fetch(stretches: Sequence[Stretch], host: str) -> Iterable[Telemetry]:
    for stretch in stretches:
        for index in range(stretch.first, stretch.last + 1):
            yield second(host, stretch.topic.rpartition(".")[2], index)


ITEM = Due("e1", "h1", BEGIN, BEGIN + 50_000, settled=False, copied=0, batches=0, gone=0, age=1)


def test_an_open_episode_is_copied_in_steps_as_far_as_all_subsystems_are_there() -> None:
    shelf = Shelf(60, {"cpu": 30, "memory": 26})
    assert copy(shelf, fetch, ITEM) == 2 * 26
    (span,) = shelf.spans
    assert (span["whole"], span["batches"], span["gone"]) == (False, 52, 0)
    reached = int(span["until"].timestamp() * 1000)
    # A few seconds more are no reason for another look into the topics.
    shelf.newest = {"cpu": 35, "memory": 35}
    assert copy(shelf, fetch, replace(ITEM, copied=reached)) == 0
    shelf.newest = {"cpu": 60, "memory": 60}
    assert copy(shelf, fetch, replace(ITEM, copied=reached, settled=True, batches=52)) == 2 * 24
    assert (shelf.spans[-1]["whole"], shelf.spans[-1]["batches"]) == (True, 100)


def test_what_does_not_come_is_waited_for_only_so_long() -> None:
    shelf = Shelf(60, {"cpu": 60, "memory": 20})
    settled = replace(ITEM, settled=True)
    assert copy(shelf, fetch, replace(settled, copied=BEGIN + 20_001)) == 0
    assert copy(shelf, fetch, replace(settled, copied=BEGIN + 20_001, age=PATIENCE_S + 1)) == 29
    assert shelf.spans[-1]["whole"]


def test_what_the_topics_no_longer_hold_is_counted() -> None:
    def half(stretches: Sequence[Stretch], host: str) -> Iterable[Telemetry]:
        return [record for record in fetch(stretches, host) if record.sequence >= 30]

    shelf = Shelf(60, {"cpu": 60})
    assert copy(shelf, half, replace(ITEM, settled=True)) == 20
    assert (shelf.spans[-1]["batches"], shelf.spans[-1]["gone"]) == (50, 30)


def test_nothing_is_begun_when_told_to_stop() -> None:
    shelf = Shelf(60, {"cpu": 60})
    assert copy(shelf, fetch, replace(ITEM, settled=True), lambda: True) == 0
    assert shelf.spans == []
