"""What one sink of a group does beside its inserts, and when."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from schemas.settings import ClickHouseSettings, WarehouseSettings
from sinks.warehouse.store import Result, Store, StoreError
from sinks.warehouse.upkeep import HOURS_EVERY, Upkeep


class Asked(Store):
    """A store with one hour of one host to sum up and no episode; or one that is away."""

    def __init__(self) -> None:
        super().__init__(ClickHouseSettings())
        self.statements: list[str] = []
        self.away = False
        self.closed = threading.Event()
        self.asked = threading.Event()

    def insert(self, table: str, rows: pa.Table) -> None:
        raise AssertionError("nothing is inserted from here")

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None, *, database: str = "") -> Result:
        self.statements.append(sql)
        self.asked.set()
        if self.away:
            raise StoreError("ClickHouse does not answer", unreachable=True)
        if "max" in sql and "rollups_log" in sql:
            return Result((), [(1_000, 2_000)])
        return Result((), [(900,)] if "DISTINCT" in sql else [])

    def close(self) -> None:
        self.closed.set()

    def filled(self, name: str) -> int:
        return sum(f"INSERT INTO `reveal`.telemetry_{name}_log" in sql for sql in self.statements)


def upkeep(store: Store, time: list[float], **settings: Any) -> Upkeep:
    return Upkeep(
        store,
        WarehouseSettings(**settings),
        lambda stretches, host: [],
        leads=threading.Event(),
        stop=threading.Event(),
        clock=lambda: time[0],
    )


def test_minutes_at_their_pace_and_hours_every_tenth_time() -> None:
    store, time = Asked(), [0.0]
    work = upkeep(store, time, rollup_s=60.0)
    for second in range(0, 60 * HOURS_EVERY + 1, 20):
        time[0] = float(second)
        work.turn()
    assert store.filled("minute") == HOURS_EVERY + 1
    assert store.filled("hour") == 2
    assert (work.counts["minutes"], work.counts["hours"]) == (HOURS_EVERY + 1, 2)


def test_samples_are_looked_for_only_where_they_are_wanted() -> None:
    store = Asked()
    upkeep(store, [0.0], samples_most_s=0).turn()
    assert not any("episode_spans_log" in sql for sql in store.statements)
    upkeep(store, [0.0]).turn()
    assert any("episode_spans_log" in sql for sql in store.statements)


def test_a_failure_is_told_once_a_minute_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    store, time = Asked(), [0.0]
    store.away = True
    work = upkeep(store, time, rollup_s=5.0)
    with caplog.at_level(logging.WARNING):
        for second in (0, 5, 10):
            time[0] = float(second)
            work.turn()
    assert [record.message for record in caplog.records] == [
        f"{name}: trying again: ClickHouse does not answer" for name in ("minutes", "hours", "samples")
    ]
    assert work.counts["failures"] == 3 + 2 + 2
    store.away = False
    time[0] = 15.0
    work.turn()
    assert work.counts["minutes"] == 1


def test_only_who_leads_works_and_all_end_when_told() -> None:
    store, leads, stop = Asked(), threading.Event(), threading.Event()
    work = Upkeep(store, WarehouseSettings(rollup_s=0.01), lambda stretches, host: [], leads=leads, stop=stop)
    work.start()
    assert not store.closed.wait(0.1)
    assert store.statements == []
    leads.set()
    assert store.asked.wait(10)
    stop.set()
    work.join(5)
    assert store.closed.is_set()
