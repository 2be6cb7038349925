"""Telemetry a minute and an hour, computed in ClickHouse from what is there once: see migration 0007 for why.

What has come since the last time is known from `batches_log`, whose rows are written after those of their telemetry;
so nothing has to be remembered but until when, and a sink that dies in between costs a repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sinks.warehouse.migrate import Layout
from sinks.warehouse.store import Store

OVERLAP_S: Final = 30
"""An insert is dated when it begins, and seen when it ends."""

SUMS: Final = """
       sum(toFloat64(mean) * samples) / sum(samples), min(min), max(max),
       sum(toFloat64(spread) * samples) / sum(samples), sum(samples)"""


@dataclass(frozen=True, slots=True)
class Rollup:
    """One size of interval.

    bounds  query for the two moments between which batches were stored that are to be summed up
    chunk   expression over `start` of batches: what is summed up by one statement
    fill    the statement
    """

    name: str
    bounds: str
    chunk: str
    fill: str


MINUTE: Final = Rollup(
    "minute",
    "SELECT toUnixTimestamp(max(through)), toUnixTimestamp(now()) FROM ${database}.rollups_log WHERE name = 'minute'",
    "toStartOfHour(start)",
    """
INSERT INTO ${database}.telemetry_minute_log
    (host, subsystem, metric, minute, mean, min, max, spread, samples, batches)
SELECT host, any(subsystem), metric, toStartOfMinute(ts) AS minute,${sums}, count()
FROM ${database}.telemetry_log FINAL
WHERE ts >= fromUnixTimestamp({chunk:Int64}) AND ts < fromUnixTimestamp({chunk:Int64}) + INTERVAL 1 HOUR
  AND (host, toStartOfMinute(ts)) IN (
      SELECT host, toStartOfMinute(start) FROM ${database}.batches_log
      WHERE stored >= fromUnixTimestamp({since:Int64}) AND stored < fromUnixTimestamp({until:Int64})
        AND start >= fromUnixTimestamp({chunk:Int64})
        AND start < fromUnixTimestamp({chunk:Int64}) + INTERVAL 1 HOUR)
GROUP BY host, metric, minute
SETTINGS optimize_aggregation_in_order = 1""",
)
HOUR: Final = Rollup(
    "hour",
    # An hour is made of its minutes: no further than these are.
    """SELECT toUnixTimestamp(maxIf(through, name = 'hour')), toUnixTimestamp(maxIf(through, name = 'minute'))
FROM ${database}.rollups_log""",
    "toStartOfDay(start)",
    """
INSERT INTO ${database}.telemetry_hour_log
    (host, subsystem, metric, hour, mean, min, max, spread, samples, batches)
SELECT host, any(subsystem), metric, toStartOfHour(minute) AS hour,${sums}, sum(batches)
FROM ${database}.telemetry_minute_log FINAL
WHERE minute >= fromUnixTimestamp({chunk:Int64}) AND minute < fromUnixTimestamp({chunk:Int64}) + INTERVAL 1 DAY
  AND (host, toStartOfHour(minute)) IN (
      SELECT host, toStartOfHour(start) FROM ${database}.batches_log
      WHERE stored >= fromUnixTimestamp({since:Int64}) AND stored < fromUnixTimestamp({until:Int64})
        AND start >= fromUnixTimestamp({chunk:Int64})
        AND start < fromUnixTimestamp({chunk:Int64}) + INTERVAL 1 DAY)
GROUP BY host, metric, hour
SETTINGS optimize_aggregation_in_order = 1""",
)
CHUNKS: Final = """
SELECT DISTINCT toUnixTimestamp(${chunk}) AS chunk FROM ${database}.batches_log
WHERE stored >= fromUnixTimestamp({since:Int64}) AND stored < fromUnixTimestamp({until:Int64})
ORDER BY chunk
"""
RECORD: Final = "INSERT INTO ${database}.rollups_log SELECT {name:String}, fromUnixTimestamp({until:Int64})"


def roll_up(store: Store, rollup: Rollup, stopped: Callable[[], bool] = lambda: False) -> int:
    """Sum up what came since the last time, a chunk a statement; how many chunks. Raises StoreError.

    When stopped, or when it fails, all of it is done again.
    """
    layout = Layout(store.database, store.cluster)
    since, until = store.query(layout.render(rollup.bounds)).rows[0]
    # What is stored in this second may still grow; it is told from then on.
    bounds = {"since": max(0, int(since) - OVERLAP_S), "until": int(until)}
    chunks = store.query(layout.render(CHUNKS, chunk=rollup.chunk), bounds)
    for done, (chunk,) in enumerate(chunks.rows):
        if stopped():
            return done
        store.query(layout.render(rollup.fill, sums=SUMS), {**bounds, "chunk": int(chunk)})
    store.query(layout.render(RECORD), {"name": rollup.name, "until": int(until)})
    return len(chunks.rows)
