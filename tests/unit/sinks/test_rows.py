"""Records to Arrow: which tables, which days, which values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from schemas.records import Telemetry
from sinks.warehouse import rows
from sinks.warehouse.messages import Accepted, Stored
from sinks.warehouse.rows import Insert, inserts, split_unusable
from tests.synthetic import START, second
from tests.unit.sinks.examples import episode, event, letter, verdict

MIDNIGHT = (START // 86_400 + 1) * 86_400 - START


def accepted(*records: Stored) -> list[Accepted]:
    return [Accepted(record, 1, 100 + place, START * 1000) for place, record in enumerate(records)]


def by_table(found: list[Insert]) -> dict[str, list[list[dict[str, Any]]]]:
    tables: dict[str, list[list[dict[str, Any]]]] = {}
    for insert in found:
        tables.setdefault(insert.table, []).append(insert.rows.to_pylist())
    return tables


def test_telemetry_is_one_row_a_metric_that_has_a_value() -> None:
    record = second("h1", "cpu", 3)
    (name, matrix), (absent, _), *_ = record.metrics.items()
    metrics = {**record.metrics, absent: np.full_like(record.metrics[absent], np.nan)}
    tables = by_table(inserts(accepted(dataclasses.replace(record, metrics=metrics))))
    ((telemetry,), (batches,), (hosts,)) = (tables[name] for name in ("telemetry_log", "batches_log", "hosts_log"))
    assert {row["metric"] for row in telemetry} == set(record.metrics) - {absent}
    row = next(row for row in telemetry if row["metric"] == name)
    assert (row["host"], row["subsystem"], row["ts"], row["offset_ms"]) == ("h1", "cpu", START + 3, 0)
    assert row["mean"] == pytest.approx(float(matrix.mean()), rel=1e-5)
    assert (row["min"], row["max"], row["samples"]) == (matrix.min(), matrix.max(), matrix.size)
    assert (batches[0]["sequence"], batches[0]["metrics"], batches[0]["kafka_offset"]) == (3, len(metrics), 100)
    assert hosts[0]["seen"].timestamp() == START + 4
    assert "host" not in dict(hosts[0]["instances"])


def test_each_insert_is_of_one_day() -> None:
    records = [second("h1", "cpu", index) for index in (MIDNIGHT - 1, MIDNIGHT, MIDNIGHT + 1)]
    tables = by_table(inserts(accepted(*records, verdict("h1", MIDNIGHT - 1), verdict("h1", MIDNIGHT))))
    assert [sorted({row["ts"] for row in part}) for part in tables["telemetry_log"]] == [
        [START + MIDNIGHT - 1],
        [START + MIDNIGHT, START + MIDNIGHT + 1],
    ]
    assert [len(part) for part in tables["batches_log"]] == [1, 2]
    assert [len(part) for part in tables["verdicts_log"]] == [1, 1]
    assert [len(part) for part in tables["hosts_log"]] == [1]


def test_two_batches_of_one_second_keep_their_own_rows() -> None:
    first = second("h1", "cpu", 0)
    later = dataclasses.replace(first, start_ns=first.start_ns + 600_000_000, session="s2", sequence=0)
    ((telemetry,),) = (by_table(inserts(accepted(first, later)))["telemetry_log"],)
    identities = {(row["metric"], row["ts"], row["offset_ms"]) for row in telemetry}
    assert len(identities) == len(telemetry) == 2 * len(first.metrics)
    assert {row["offset_ms"] for row in telemetry} == {0, 600}


def test_hosts_get_the_latest_batch_whatever_the_order() -> None:
    records = [second("h1", "cpu", index) for index in (5, 9, 7)]
    ((hosts,),) = (by_table(inserts(accepted(*records)))["hosts_log"],)
    assert [row["sequence"] for row in hosts] == [9]


def test_a_verdict_keeps_its_scores_by_detector_also_nan() -> None:
    (row,) = by_table(inserts(accepted(verdict("h1", 0))))["verdicts_log"][0]
    assert row["voters"] == ["mahalanobis"]
    scores = dict(row["scores"])
    assert scores["zscore"] == 1.5
    assert np.isnan(scores["forest"])
    assert dict(row["thresholds"])["forest"] == float("inf")
    assert row["subsystem"] is None
    assert (row["kafka_partition"], row["kafka_offset"]) == (1, 100)


def test_evidence_comes_before_its_episode() -> None:
    found = inserts(accepted(episode("h1", 1, "closed"), letter(4)))
    assert [insert.table for insert in found] == ["evidence_log", "episodes_log", "dead_letters_log"]
    tables = by_table(found)
    assert [(row["rank"], row["metric"]) for row in tables["evidence_log"][0]] == [
        (1, "cpu.time.user"),
        (2, "cpu.load1"),
    ]
    assert tables["evidence_log"][0][1]["instance_observed"] is None
    assert tables["dead_letters_log"][0][0]["value"] == b"\x00\xff"


def test_an_event_is_a_row_of_its_day() -> None:
    midnight_ns = (START + MIDNIGHT) * 1_000_000_000
    late = dataclasses.replace(event("h1", 1, "link_up", code=None), time_ns=midnight_ns)
    first, second_day = by_table(inserts(accepted(event("h1", 0), late)))["events_log"]
    [row] = first
    assert (row["host"], row["session"], row["sequence"], row["ts"].timestamp()) == ("h1", "s1", 0, START + 1)
    assert (row["kind"], row["subsystem"], row["severity"]) == ("xid", "gpu", "critical")
    assert (row["instance"], row["code"], row["source"], row["agent"]) == ("gpu3", 79, "kernel log", "test")
    assert (row["message"], row["kafka_partition"], row["kafka_offset"]) == ("GPU has fallen off the bus", 1, 100)
    [row] = second_day
    assert (row["ts"].timestamp(), row["kind"], row["code"]) == (START + MIDNIGHT, "link_up", None)


def test_nothing_and_an_empty_batch() -> None:
    assert inserts([]) == []
    empty = dataclasses.replace(second("h1", "cpu", 0), metrics={})
    assert [insert.table for insert in inserts(accepted(empty))] == ["batches_log", "hosts_log"]


def test_a_record_without_a_row_does_not_stop_those_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = rows.telemetry_inserts

    def fragile(items: list[Accepted]) -> list[Insert]:
        if any(isinstance(item.record, Telemetry) and item.record.host == "poison" for item in items):
            raise OverflowError("too large")
        return real(items)

    monkeypatch.setattr(rows, "telemetry_inserts", fragile)
    items = accepted(second("h1", "cpu", 0), second("poison", "cpu", 0), second("h2", "cpu", 0))
    good, bad = split_unusable(items)
    assert {row["host"] for part in by_table(good)["telemetry_log"] for row in part} == {"h1", "h2"}
    assert [(item.offset, detail) for item, detail in bad] == [(101, "OverflowError: too large")]
