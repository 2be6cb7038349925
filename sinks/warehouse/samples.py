"""Every sample of the minutes around an episode, copied out of the topics into `episode_samples_log`.

Telemetry is kept as it came for a day, in Kafka. To keep it a second time for a while, or in memory, would cost every
second of every host; to read the few minutes of the few hosts that have an episode again costs nothing while there is
none. `batches_log` says which messages those are. What is still to be copied follows from `episodes_log` and
`episode_spans_log`, so nothing is forgotten when a sink dies; a row's identity is episode, metric, instance and time,
so nothing is there twice when it copies again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from schemas.catalogue import catalogue
from schemas.records import Telemetry
from schemas.settings import WarehouseSettings
from schemas.topics import TELEMETRY
from sinks.warehouse.migrate import Layout
from sinks.warehouse.rows import DAY_MS, UTC_MS, Insert, dictionary
from sinks.warehouse.store import Store

LOG: Final = logging.getLogger(__name__)
TABLE: Final = "episode_samples_log"
SLICE_MS: Final = 120_000
"""Copied at a time: bounds what is held in memory."""
MOST_SAMPLES: Final = 1 << 19
"""Of an insert: what the engine makes of them on the way takes some ten times their bytes."""
AGAIN_MS: Final = 20_000
"""An open episode is copied on in steps of so much."""
PATIENCE_S: Final = 120
"""So long after an episode's end its telemetry may take to come."""
RECENT_H: Final = 24

DUE: Final = """
SELECT episode.id, episode.host, toUnixTimestamp64Milli(episode.start) - {before:Int64} AS begin,
       least(toUnixTimestamp64Milli(episode.start) + {most:Int64},
             toUnixTimestamp64Milli(ifNull(episode.closed, episode.updated)) + {after:Int64}) AS end,
       (episode.closed IS NOT NULL) OR toUnixTimestamp64Milli(episode.start) + {most:Int64}
            <= toUnixTimestamp64Milli(episode.updated) + {after:Int64} AS settled,
       toUnixTimestamp64Milli(span.until) AS copied,
       span.batches, span.gone,
       dateDiff('second', episode.stored, now64(3)) AS age
FROM
(
    SELECT id, host, start, updated, closed, stored FROM ${database}.episodes_log
    WHERE stored > now64(3) - INTERVAL {recent:Int64} HOUR
    ORDER BY revision DESC, kafka_offset DESC LIMIT 1 BY id
) AS episode
LEFT JOIN ${database}.episode_spans_log AS span FINAL ON span.episode = episode.id
WHERE NOT span.whole
ORDER BY begin
"""
MESSAGES: Final = """
SELECT subsystem, kafka_partition, min(kafka_offset), max(kafka_offset), count(), toUnixTimestamp64Milli(max(start))
FROM ${database}.batches_log FINAL
WHERE host = {host:String} AND start >= fromUnixTimestamp64Milli({begin:Int64}, 'UTC')
  AND start < fromUnixTimestamp64Milli({end:Int64}, 'UTC')
GROUP BY subsystem, kafka_partition
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Messages of one partition: offsets `first` to `last`, both included."""

    topic: str
    partition: int
    first: int
    last: int


Fetch = Callable[[Sequence[Stretch], str], Iterable[Telemetry]]
"""Telemetry of a host in stretches, as far as the topics still hold it. Raises Unavailable."""


class Unavailable(Exception):
    """Kafka does not answer; to be tried again."""


@dataclass(frozen=True, slots=True)
class Due:
    """An episode of which samples are to be copied: from `begin` to before `end`, ms since 1970-01-01 UTC.

    copied          until when that is done; 0 for not at all
    settled         `end` moves no more
    batches, gone   messages so far, and how many of them the topics no longer held
    age             seconds since its last state was stored
    """

    episode: str
    host: str
    begin: int
    end: int
    settled: bool
    copied: int
    batches: int
    gone: int
    age: int


def due(store: Store, settings: WarehouseSettings) -> list[Due]:
    """Episodes whose samples are not all copied. Raises StoreError."""
    parameters = {
        "before": settings.samples_before_s * 1000,
        "after": settings.samples_after_s * 1000,
        "most": settings.samples_most_s * 1000,
        "recent": RECENT_H,
    }
    layout = Layout(store.database, store.cluster)
    return [
        Due(str(row[0]), str(row[1]), int(row[2]), int(row[3]), bool(row[4]), *map(int, row[5:]))
        for row in store.query(layout.render(DUE), parameters).rows
    ]


def copy(store: Store, fetch: Fetch, item: Due, stopped: Callable[[], bool] = lambda: False) -> int:
    """Copy what has come of `item`; how many messages that was. Raises StoreError and Unavailable.

    A slice is recorded when its rows are stored.
    """
    position, batches, gone = max(item.begin, item.copied), item.batches, item.gone
    done = 0
    while position < item.end and not stopped():
        end = min(item.end, position + SLICE_MS)
        # Nothing more is waited for.
        late = item.settled and item.age > PATIENCE_S
        reached = end if late else min(end, _arrived(store, item))
        if reached < min(end, position + AGAIN_MS):
            break
        found = _messages(store, item.host, position, reached)
        wanted = [Stretch(TELEMETRY[each.subsystem], each.partition, each.first, each.last) for each in found]
        # What was sent twice has two offsets.
        records = {
            (record.subsystem, record.session, record.sequence): record
            for record in (fetch(wanted, item.host) if wanted else ())
            if position <= record.start_ns // 1_000_000 < reached
        }
        for insert in sample_inserts(item.episode, list(records.values())):
            store.insert(insert.table, insert.rows)
        expected = sum(each.count for each in found)
        batches, gone = batches + max(expected, len(records)), gone + max(0, expected - len(records))
        done += len(records)
        position = reached
        _record(store, item, position, batches, gone)
    return done


def sample_inserts(episode: str, records: Sequence[Telemetry]) -> list[Insert]:
    """Rows of `episode_samples_log`: one a batch, metric and instance that has a value; each insert of one day, and of
    no more samples than MOST_SAMPLES and a batch.
    """
    days: dict[int, list[Telemetry]] = {}
    for record in records:
        days.setdefault(record.start_ns // 1_000_000 // DAY_MS, []).append(record)
    done: list[Insert] = []
    for _, batch in sorted(days.items()):
        rows: list[_Part] = []
        samples = 0
        for record in batch:
            parts = list(_parts(record))
            rows += parts
            samples += len(parts) * record.count
            if samples >= MOST_SAMPLES:
                done.append(_insert(episode, rows))
                rows, samples = [], 0
        if rows:
            done.append(_insert(episode, rows))
    return done


_Part = tuple[Telemetry, str, str, Any]


def _insert(episode: str, rows: Sequence[_Part]) -> Insert:
    codes = {name: code for code, name in enumerate(catalogue())}
    offsets = np.concatenate([[0], np.cumsum([len(values) for *_, values in rows])]).astype(np.int32)
    metric = np.array([codes[name] for _, name, *_ in rows], np.int32)
    return Insert(
        TABLE,
        pa.table(
            {
                "episode": dictionary([episode] * len(rows)),
                "host": dictionary([record.host for record, *_ in rows]),
                "subsystem": dictionary([record.subsystem for record, *_ in rows]),
                "metric": pa.DictionaryArray.from_arrays(metric, pa.array(list(codes), pa.string())),
                "instance": dictionary([instance for *_, instance, _ in rows]),
                "begin": pa.array([record.start_ns // 1_000_000 for record, *_ in rows], UTC_MS),
                "period_ms": pa.array([record.period_ms for record, *_ in rows], pa.uint32()),
                "samples": pa.ListArray.from_arrays(offsets, np.concatenate([values for *_, values in rows])),
            }
        ),
    )


def _parts(record: Telemetry) -> Iterator[_Part]:
    """Metric, instance and float32 samples of each column of `record` that has a value."""
    metrics = catalogue()
    for name, matrix in record.metrics.items():
        names = record.instances[metrics[name].dimension]
        present = ~np.isnan(matrix).all(axis=0)
        for column in np.flatnonzero(present).tolist():
            yield record, name, names[column], matrix[:, column]


@dataclass(frozen=True, slots=True)
class _Messages:
    """What `batches_log` knows of one subsystem and partition: offsets, number, and start of the newest, ms."""

    subsystem: str
    partition: int
    first: int
    last: int
    count: int
    newest: int


def _messages(store: Store, host: str, begin: int, end: int) -> list[_Messages]:
    sql = Layout(store.database, store.cluster).render(MESSAGES)
    rows = store.query(sql, {"host": host, "begin": begin, "end": end}).rows
    return [_Messages(str(row[0]), *map(int, row[1:])) for row in rows]


def _arrived(store: Store, item: Due) -> int:
    """Until when all subsystems of the host that are heard around the episode are there, ms; 0 for nothing."""
    newest: dict[str, int] = {}
    for each in _messages(store, item.host, item.begin, item.end + PATIENCE_S * 1000):
        newest[each.subsystem] = max(newest.get(each.subsystem, 0), each.newest)
    return min(newest.values(), default=-1) + 1


def _record(store: Store, item: Due, until: int, batches: int, gone: int) -> None:
    whole = item.settled and until >= item.end
    row = pa.table(
        {
            "episode": pa.array([item.episode], pa.string()),
            "host": dictionary([item.host]),
            "begin": pa.array([item.begin], UTC_MS),
            "until": pa.array([until], UTC_MS),
            "whole": pa.array([whole], pa.bool_()),
            "batches": pa.array([batches], pa.uint32()),
            "gone": pa.array([gone], pa.uint32()),
        }
    )
    store.insert("episode_spans_log", row)
