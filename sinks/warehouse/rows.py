"""Records to Arrow tables, one a ClickHouse table and day: pure, and the same for the same records.

The columns are those of the `_log` tables in `migrations/`; the identity of each row is in the package's docstring.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.catalogue import SUBSYSTEMS, catalogue
from schemas.records import Alert, DeadLetter, Delivery, Episode, Event, Feedback, StateRecord, Telemetry, Verdict
from sinks.warehouse.messages import LATEST_NS, Accepted
from sinks.warehouse.seconds import summarise

DAY_MS: Final = 86_400_000
UNUSABLE: Final = (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException)

UTC_MS: Final = pa.timestamp("ms", tz="UTC")
UTC_S: Final = pa.timestamp("s", tz="UTC")
WORD: Final = pa.dictionary(pa.int32(), pa.string())


def _map(values: Any) -> Any:
    return pa.map_(pa.string(), values)


BATCHES: Final = pa.schema(
    {
        "host": WORD,
        "subsystem": WORD,
        "session": WORD,
        "sequence": pa.uint64(),
        "start": UTC_MS,
        "period_ms": pa.uint32(),
        "samples": pa.uint32(),
        "metrics": pa.uint32(),
        "dropped": pa.uint64(),
        "agent": WORD,
        "flaws": pa.list_(pa.string()),
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.uint64(),
    }
)
HOSTS: Final = pa.schema(
    {
        "host": WORD,
        "subsystem": WORD,
        "seen": UTC_MS,
        "agent": WORD,
        "session": pa.string(),
        "sequence": pa.uint64(),
        "dropped": pa.uint64(),
        "period_ms": pa.uint32(),
        "instances": _map(pa.list_(pa.string())),
    }
)
VERDICTS: Final = pa.schema(
    {
        "host": WORD,
        "window_start": UTC_MS,
        "window_end": UTC_MS,
        "state": WORD,
        "reason": pa.string(),
        "coverage": pa.float64(),
        "model_version": pa.int64(),
        "votes": pa.int32(),
        "voters": pa.list_(pa.string()),
        "scores": _map(pa.float64()),
        "thresholds": _map(pa.float64()),
        "tail_probabilities": _map(pa.float64()),
        "severity": pa.float64(),
        "anomalous": pa.bool_(),
        "subsystem": WORD,
        "shares": _map(pa.float64()),
        "episode": pa.string(),
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.uint64(),
    }
)
EPISODES: Final = pa.schema(
    {
        "id": pa.string(),
        "revision": pa.int32(),
        "host": WORD,
        "state": WORD,
        "start": UTC_MS,
        "opened": UTC_MS,
        "updated": UTC_MS,
        "closed": UTC_MS,
        "subsystem": WORD,
        "shares": _map(pa.float64()),
        "windows": pa.int32(),
        "votes": _map(pa.int32()),
        "severity": pa.float64(),
        "peak_severity": pa.float64(),
        "peak": UTC_MS,
        "model_version": pa.int64(),
        "cause": WORD,
        "confidence": pa.float64(),
        "candidates": _map(pa.float64()),
        "explanation": pa.string(),
        "checks": pa.list_(pa.string()),
        "remedy": pa.string(),
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.uint64(),
    }
)
EVIDENCE: Final = pa.schema(
    {
        "episode": pa.string(),
        "revision": pa.int32(),
        "rank": pa.uint32(),
        "host": WORD,
        "start": UTC_MS,
        "metric": WORD,
        "subsystem": WORD,
        "instance": pa.string(),
        "feature": WORD,
        "unit": WORD,
        "observed": pa.float64(),
        "expected": pa.float64(),
        "deviation": pa.float64(),
        "instance_observed": pa.float64(),
        "instance_expected": pa.float64(),
        "direction": WORD,
        "since": UTC_MS,
        "contribution": pa.float64(),
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.uint64(),
    }
)
EVENTS: Final = pa.schema(
    {
        "host": WORD,
        "session": WORD,
        "sequence": pa.uint64(),
        "ts": UTC_MS,
        "kind": WORD,
        "subsystem": WORD,
        "severity": WORD,
        "instance": pa.string(),
        "code": pa.int64(),
        "message": pa.string(),
        "source": WORD,
        "agent": WORD,
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.uint64(),
    }
)
MODELS: Final = pa.schema(
    {
        "host": WORD,
        "version": pa.int64(),
        "learnt_from": UTC_S,
        "learnt_to": UTC_S,
        "learnt_windows": pa.uint32(),
        "features": pa.uint32(),
        "kept": pa.uint32(),
        "kept_by": _map(pa.uint32()),
        "bytes": pa.uint32(),
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.uint64(),
    }
)
ALERTS: Final = pa.schema(
    {
        "key": pa.string(),
        "id": pa.string(),
        "revision": pa.int64(),
        "state": WORD,
        "scope": WORD,
        "group": pa.string(),
        "parent": pa.string(),
        "host": WORD,
        "hosts": pa.list_(pa.string()),
        "host_count": pa.uint32(),
        "labels": _map(pa.string()),
        "subsystem": WORD,
        "cause": WORD,
        "severity": WORD,
        "peak_severity": pa.float64(),
        "since": UTC_MS,
        "updated": UTC_MS,
        "resolved": UTC_MS,
        "time": UTC_MS,
        "episodes": pa.list_(pa.string()),
        "summary": pa.string(),
        "receivers": pa.list_(pa.string()),
        "reason": pa.string(),
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.uint64(),
    }
)
DELIVERIES: Final = pa.schema(
    {
        "id": pa.string(),
        "attempt": pa.int32(),
        "time": UTC_MS,
        "receiver": WORD,
        "channel": WORD,
        "status": WORD,
        "code": pa.int32(),
        "latency_ms": pa.float64(),
        "error": pa.string(),
        "alert": pa.string(),
        "state": WORD,
        "revision": pa.int64(),
        "alerts": pa.list_(pa.string()),
        "count": pa.uint32(),
        "digest": pa.bool_(),
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.uint64(),
    }
)
FEEDBACK: Final = pa.schema(
    {
        "id": pa.string(),
        "time": UTC_MS,
        "alert": pa.string(),
        "host": WORD,
        "subsystem": WORD,
        "cause": WORD,
        "episode": pa.string(),
        "verdict": WORD,
        "until": UTC_MS,
        "by": pa.string(),
        "note": pa.string(),
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.uint64(),
    }
)
DEAD_LETTERS: Final = pa.schema(
    {
        "received": UTC_MS,
        "topic": WORD,
        "partition": pa.int32(),
        "offset": pa.int64(),
        "service": WORD,
        "reason": WORD,
        "detail": pa.string(),
        "key": pa.binary(),
        "value": pa.binary(),
        "kafka_partition": pa.int32(),
        "kafka_offset": pa.uint64(),
    }
)


@dataclass(frozen=True, slots=True)
class Insert:
    """One insert: rows of one day of one table (of all time, for a table without days)."""

    table: str
    rows: pa.Table


def inserts(accepted: Sequence[Accepted]) -> list[Insert]:
    """All inserts that store `accepted`, evidence before its episodes: who sees an episode also sees its evidence."""
    by_kind: dict[type, list[Accepted]] = {}
    for item in accepted:
        by_kind.setdefault(type(item.record), []).append(item)
    done: list[Insert] = []
    if telemetry := by_kind.get(Telemetry):
        done += telemetry_inserts(telemetry)
        done += _dated("batches_log", BATCHES, "start", map(_batch, telemetry))
        done.append(Insert("hosts_log", _table(HOSTS, _hosts(telemetry))))
    done += _dated("verdicts_log", VERDICTS, "window_start", map(_verdict, by_kind.get(Verdict, ())))
    episodes = by_kind.get(Episode, ())
    done += _dated("evidence_log", EVIDENCE, "start", chain.from_iterable(map(_evidence, episodes)))
    done += _dated("episodes_log", EPISODES, "start", map(_episode, episodes))
    done += _dated("events_log", EVENTS, "ts", map(_event, by_kind.get(Event, ())))
    if models := by_kind.get(StateRecord):
        done.append(Insert("models_log", _table(MODELS, map(_model, models))))
    done += _dated("alerts_log", ALERTS, "time", map(_alert, by_kind.get(Alert, ())))
    done += _dated("deliveries_log", DELIVERIES, "time", map(_delivery, by_kind.get(Delivery, ())))
    if feedback := by_kind.get(Feedback):
        done.append(Insert("feedback_log", _table(FEEDBACK, map(_feedback, feedback))))
    if dead := by_kind.get(DeadLetter):
        done.append(Insert("dead_letters_log", _table(DEAD_LETTERS, map(_dead_letter, dead))))
    return done


def split_unusable(accepted: Sequence[Accepted]) -> tuple[list[Insert], list[tuple[Accepted, str]]]:
    """Inserts of what can be stored, and what cannot with the reason: a record that passed every check and still has
    no row must not stop those beside it.
    """
    try:
        return inserts(accepted), []
    except UNUSABLE:
        good, bad = [], []
        for item in accepted:
            try:
                inserts([item])
            except UNUSABLE as error:
                bad.append((item, f"{type(error).__name__}: {error}"))
            else:
                good.append(item)
        return inserts(good), bad


def count_rows(item: Accepted) -> int:
    """Rows that `item` will roughly become: to bound batches by."""
    return max(1, len(item.record.metrics)) if isinstance(item.record, Telemetry) else 1


def telemetry_inserts(accepted: Sequence[Accepted]) -> list[Insert]:
    """Rows of telemetry_log: one a batch and metric that has a value, vectorised over all of them."""
    records = [item.record for item in accepted if isinstance(item.record, Telemetry) and item.record.metrics]
    if not records:
        return []
    summaries = summarise([matrix for record in records for matrix in record.metrics.values()])
    codes = _metric_codes()
    sizes = np.fromiter((len(record.metrics) for record in records), np.int64, len(records))
    metric = np.fromiter((codes[name] for record in records for name in record.metrics), np.int32, int(sizes.sum()))
    hosts: dict[str, int] = {}
    host = np.fromiter((hosts.setdefault(record.host, len(hosts)) for record in records), np.int32, len(records))
    subsystem = np.fromiter((SUBSYSTEMS.index(record.subsystem) for record in records), np.int32, len(records))
    start_ms = np.fromiter((record.start_ns // 1_000_000 for record in records), np.int64, len(records))
    columns: dict[str, NDArray[Any]] = {
        "host": np.repeat(host, sizes),
        "subsystem": np.repeat(subsystem, sizes),
        "metric": metric,
        "ts": np.repeat((start_ms // 1000).astype(np.uint32), sizes),
        "offset_ms": np.repeat((start_ms % 1000).astype(np.uint16), sizes),
        "mean": summaries.mean,
        "min": summaries.min,
        "max": summaries.max,
        "spread": summaries.spread,
        "samples": summaries.samples,
    }
    present = summaries.samples > 0
    days = np.repeat(start_ms // DAY_MS, sizes)
    dictionaries = {"host": list(hosts), "subsystem": SUBSYSTEMS, "metric": tuple(codes)}
    done = []
    for day in np.unique(days[present]).tolist():
        chosen = present & (days == day)
        part = columns if chosen.all() else {name: column[chosen] for name, column in columns.items()}
        done.append(Insert("telemetry_log", _arrow(part, dictionaries)))
    return done


def _arrow(columns: Mapping[str, NDArray[Any]], dictionaries: Mapping[str, Sequence[str]]) -> pa.Table:
    return pa.table(
        {
            name: pa.DictionaryArray.from_arrays(column, pa.array(dictionaries[name], pa.string()))
            if name in dictionaries
            else pa.array(column)
            for name, column in columns.items()
        }
    )


@cache
def _metric_codes() -> Mapping[str, int]:
    return {name: code for code, name in enumerate(catalogue())}


Row = dict[str, Any]


def _batch(item: Accepted) -> Row:
    record = item.record
    assert isinstance(record, Telemetry)
    return {
        "host": record.host,
        "subsystem": record.subsystem,
        "session": record.session,
        "sequence": record.sequence,
        "start": record.start_ns // 1_000_000,
        "period_ms": record.period_ms,
        "samples": record.count,
        "metrics": len(record.metrics),
        "dropped": max(0, record.dropped),
        "agent": record.agent,
        "flaws": record.flaws,
        "kafka_partition": item.partition,
        "kafka_offset": item.offset,
    }


def _hosts(accepted: Iterable[Accepted]) -> list[Row]:
    """The latest of each host and subsystem."""
    latest: dict[tuple[str, str], Row] = {}
    for item in accepted:
        record = item.record
        assert isinstance(record, Telemetry)
        # A period of years is nonsense that the codec lets pass, and that no DateTime64 holds.
        seen = min(record.start_ns // 1_000_000 + record.count * record.period_ms, LATEST_NS // 1_000_000)
        known = latest.get((record.host, record.subsystem))
        if known is None or known["seen"] <= seen:
            latest[record.host, record.subsystem] = {
                "host": record.host,
                "subsystem": record.subsystem,
                "seen": seen,
                "agent": record.agent,
                "session": record.session,
                "sequence": record.sequence,
                "dropped": max(0, record.dropped),
                "period_ms": record.period_ms,
                "instances": [(name, names) for name, names in record.instances.items() if name != "host"],
            }
    return list(latest.values())


def _verdict(item: Accepted) -> Row:
    record = item.record
    assert isinstance(record, Verdict)
    return {
        "host": record.host,
        "window_start": record.window_start_ns // 1_000_000,
        "window_end": record.window_end_ns // 1_000_000,
        "state": record.state,
        "reason": record.reason,
        "coverage": record.coverage,
        "model_version": record.model_version,
        "votes": record.votes,
        "voters": [score.detector for score in record.scores if score.vote],
        "scores": [(score.detector, score.score) for score in record.scores],
        "thresholds": [(score.detector, score.threshold) for score in record.scores],
        "tail_probabilities": [(score.detector, score.tail_probability) for score in record.scores],
        "severity": record.severity,
        "anomalous": record.anomalous,
        "subsystem": record.subsystem,
        "shares": list(record.shares.items()),
        "episode": record.episode,
        "kafka_partition": item.partition,
        "kafka_offset": item.offset,
    }


def _episode(item: Accepted) -> Row:
    record = item.record
    assert isinstance(record, Episode)
    return {
        "id": record.id,
        "revision": record.revision,
        "host": record.host,
        "state": record.state,
        "start": record.start_ns // 1_000_000,
        "opened": record.opened_ns // 1_000_000,
        "updated": record.updated_ns // 1_000_000,
        "closed": None if record.closed_ns is None else record.closed_ns // 1_000_000,
        "subsystem": record.subsystem,
        "shares": list(record.shares.items()),
        "windows": record.windows,
        "votes": list(record.votes.items()),
        "severity": record.severity,
        "peak_severity": record.peak_severity,
        "peak": record.peak_ns // 1_000_000,
        "model_version": record.model_version,
        "cause": record.cause,
        "confidence": record.confidence,
        "candidates": list(record.candidates.items()),
        "explanation": record.explanation,
        "checks": record.checks,
        "remedy": record.remedy,
        "kafka_partition": item.partition,
        "kafka_offset": item.offset,
    }


def _evidence(item: Accepted) -> Iterable[Row]:
    record = item.record
    assert isinstance(record, Episode)
    for rank, row in enumerate(record.evidence, 1):
        yield {
            "episode": record.id,
            "revision": record.revision,
            "rank": rank,
            "host": record.host,
            "start": record.start_ns // 1_000_000,
            **{name: getattr(row, name) for name in row.__slots__ if name != "since_ns"},
            "since": None if row.since_ns is None else row.since_ns // 1_000_000,
            "kafka_partition": item.partition,
            "kafka_offset": item.offset,
        }


def _event(item: Accepted) -> Row:
    record = item.record
    assert isinstance(record, Event)
    return {
        "ts": record.time_ns // 1_000_000,
        **{name: getattr(record, name) for name in record.__slots__ if name != "time_ns"},
        "kafka_partition": item.partition,
        "kafka_offset": item.offset,
    }


def _model(item: Accepted) -> Row:
    """What the record of a model says of itself. Raises what a manifest of another form trips over."""
    record = item.record
    assert isinstance(record, StateRecord)
    manifest = json.loads(record.manifest)
    kept = {name: len(record.arrays[f"kept {name}"]) for name in manifest["blocks"]}
    for name in ("learnt_from", "learnt_to"):
        if not 0 <= manifest.get(name, 0) < LATEST_NS // 1_000_000_000:
            raise ValueError(f"{name} {manifest[name]} is not between the years 1970 and 2100")
    return {
        "host": record.host,
        "version": manifest["version"],
        "learnt_from": manifest.get("learnt_from", 0),
        "learnt_to": manifest.get("learnt_to", 0),
        "learnt_windows": manifest.get("learnt_rows", 0),
        "features": manifest["candidates"],
        "kept": sum(kept.values()),
        "kept_by": list(kept.items()),
        "bytes": sum(array.nbytes for array in record.arrays.values()),
        "kafka_partition": item.partition,
        "kafka_offset": item.offset,
    }


def _alert(item: Accepted) -> Row:
    record = item.record
    assert isinstance(record, Alert)
    return {
        **{name: getattr(record, name) for name in ALERTS.names if name in Alert.__slots__},
        "labels": list(record.labels.items()),
        **_times(record, "since", "updated", "resolved", "time"),
        "kafka_partition": item.partition,
        "kafka_offset": item.offset,
    }


def _delivery(item: Accepted) -> Row:
    record = item.record
    assert isinstance(record, Delivery)
    return {
        **{name: getattr(record, name) for name in DELIVERIES.names if name in Delivery.__slots__},
        **_times(record, "time"),
        "kafka_partition": item.partition,
        "kafka_offset": item.offset,
    }


def _feedback(item: Accepted) -> Row:
    record = item.record
    assert isinstance(record, Feedback)
    return {
        **{name: getattr(record, name) for name in FEEDBACK.names if name in Feedback.__slots__},
        **_times(record, "time", "until"),
        "kafka_partition": item.partition,
        "kafka_offset": item.offset,
    }


def _times(record: object, *names: str) -> Row:
    """Times of a record in ms, by the names that columns have."""
    values = {name: getattr(record, f"{name}_ns") for name in names}
    return {name: None if value is None else value // 1_000_000 for name, value in values.items()}


def _dead_letter(item: Accepted) -> Row:
    record = item.record
    assert isinstance(record, DeadLetter)
    return {
        "received": max(0, item.time_ms),
        **{name: getattr(record, name) for name in record.__slots__},
        "kafka_partition": item.partition,
        "kafka_offset": item.offset,
    }


def _dated(table: str, schema: Any, day_column: str, rows: Iterable[Row]) -> list[Insert]:
    days: dict[int, list[Row]] = {}
    for row in rows:
        days.setdefault(row[day_column] // DAY_MS, []).append(row)
    return [Insert(table, _table(schema, days[day])) for day in sorted(days)]


def _table(schema: Any, rows: Iterable[Row]) -> pa.Table:
    listed = list(rows)
    columns: list[Any] = []
    for field in schema:
        values = [row[field.name] for row in listed]
        # Arrow fills a dictionary type only by encoding.
        columns.append(dictionary(values) if field.type == WORD else pa.array(values, field.type))
    return pa.table(columns, schema=schema)


def dictionary(values: Sequence[str | None]) -> Any:
    """Words as an Arrow column of type WORD."""
    return pa.array(values, pa.string()).dictionary_encode()
