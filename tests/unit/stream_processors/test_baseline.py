"""Baselines: what they take for normal, and that they are their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from schemas.catalogue import subsystem_metrics
from schemas.codec import Rejected, decode, decode_telemetry, encode
from schemas.records import StateRecord, Telemetry
from schemas.settings import PipelineSettings
from stream_processors.backtest import backtest
from stream_processors.baseline import Baseline
from stream_processors.features import feature_table, smallest_scales
from stream_processors.rows import Row, feature_matrix
from tests.synthetic import CPU_HOG, START, Fault, run, second

SETTINGS = PipelineSettings(warmup_windows=60, rows=64)


def learnt(seconds: int, *bursts: tuple[int, int]) -> list[Row]:
    """Rows of every window, CPU bursts in the seconds from and to."""
    settings = replace(SETTINGS, warmup_windows=64)
    batches: list[Telemetry] = []
    for index in range(seconds):
        burst = next((Fault(*each, CPU_HOG) for each in bursts if each[0] <= index < each[1]), None)
        batches += run(["a"], index + 1, burst, begin=index)
    told = [each for each in backtest(batches, settings) if isinstance(each, StateRecord)]
    return [Row.restore(each) for each in told if each.slot.startswith("row/")]


@pytest.fixture(scope="module")
def calm() -> Baseline:
    return Baseline.fit(learnt(62), 1, SETTINGS)


def thresholds(baseline: Baseline) -> dict[str, float]:
    return {name: each.threshold for name, each in baseline.blocks["cpu"].ensemble.calibrations.items()}


def burst_strangeness(baseline: Baseline, end: int = 20) -> float:
    """How strange the CPU is to `baseline` in a burst from second 10 to `end`."""
    rows = learnt(20, (10, end))
    [row] = [row for row in rows if row.start == START + end - 3]
    deviations = baseline.deviations(feature_matrix([row])[0])
    return baseline.score(deviations)[1]["cpu"]


def test_what_happened_once_is_not_normal(calm: Baseline) -> None:
    once = Baseline.fit(learnt(62, (20, 24)), 1, SETTINGS)  # reaches into six windows
    for name, threshold in thresholds(once).items():
        assert threshold < 1.5 * thresholds(calm)[name], name
    assert burst_strangeness(once) > 0.7 * burst_strangeness(calm)


@pytest.mark.parametrize("every", [10, 15])
def test_what_keeps_happening_is_normal(calm: Baseline, every: int) -> None:
    often = Baseline.fit(learnt(62, *((begin, begin + 1) for begin in range(5, 60, every))), 1, SETTINGS)
    assert burst_strangeness(often, 11) < 0.6 * burst_strangeness(calm, 11)
    ordinary = [feature_matrix([row])[0] for row in learnt(60, (32, 33))]
    votes = [sum(score.vote for score in often.score(often.deviations(row))[0]) for row in ordinary]
    assert sum(vote >= 2 for vote in votes) == 0
    votes = [sum(score.vote for score in calm.score(calm.deviations(row))[0]) for row in ordinary]
    assert sum(vote >= 2 for vote in votes) == 3


def test_a_share_of_the_memory_is_of_no_interest() -> None:
    table = feature_table()
    rows = np.full((30, len(table)), np.nan, dtype=np.float32)
    assert (smallest_scales(rows) == table.floors).all()
    anon = next(i for i, f in enumerate(table.features) if (f.metric.name, f.kind) == ("mem.anon", "level"))
    dirty = next(i for i, f in enumerate(table.features) if (f.metric.name, f.kind) == ("mem.dirty", "level"))
    for total, wanted in ((64e9 / 1024, 0.004 * 64e9 / 1024), (2e12 / 1024, 0.004 * 2e12 / 1024)):
        rows[:, table.memory_total] = total
        assert smallest_scales(rows)[anon] == pytest.approx(wanted, rel=1e-4)
        assert smallest_scales(rows)[dirty] == table.floors[dirty]
    rows[:, table.memory_total] = 1.0
    assert (smallest_scales(rows) == table.floors).all()


@pytest.mark.parametrize("count", [11, 12])
def test_medians_of_deviations_are_those_of_each_feature(calm: Baseline, count: int) -> None:
    rows = np.random.default_rng(5).standard_normal((count, len(calm.center))).astype(np.float32)
    rows[3, ::7] = np.nan
    expected = np.median(calm.deviations(rows), axis=0)
    np.testing.assert_array_equal(calm.median_deviations(rows), expected)


def test_a_baseline_is_its_record(calm: Baseline) -> None:
    data = encode(calm.record("a", "model/1"))
    assert len(data) < 256 << 10
    record = decode(data)
    assert isinstance(record, StateRecord)
    again = Baseline.restore(record)
    assert (again.version, again.candidates, again.kept) == (calm.version, calm.candidates, calm.kept)
    for row in learnt(90, (50, 60)):
        deviations = calm.deviations(feature_matrix([row])[0])
        np.testing.assert_array_equal(again.deviations(feature_matrix([row])[0]), deviations)
        assert again.score(deviations) == calm.score(deviations)
    for place, levels in calm.levels.items():
        assert again.levels[place].names == levels.names
        np.testing.assert_array_equal(again.levels[place].center, levels.center)
        np.testing.assert_array_equal(again.levels[place].scale, levels.scale)


@pytest.mark.parametrize(
    "damage",
    [
        ("kept cpu", lambda a: a + 30_000),
        ("kept cpu", lambda a: -a - 1),
        ("kept cpu", lambda a: a[1:]),
        ("scale", lambda a: a[1:]),
        ("ensemble cpu subspace.axes", lambda a: a[1:]),
        ("ensemble cpu subspace.axes", lambda a: a[:, 1:]),
        ("ensemble cpu subspace.center", lambda a: a[1:]),
        ("ensemble cpu subspace.scales", lambda a: a[None]),
        ("ensemble cpu subspace.rest", lambda a: a[1:]),
        ("ensemble cpu forest.feature", lambda a: a + 10),
        ("ensemble cpu forest.step", lambda a: np.full_like(a, 255)),
        ("ensemble cpu forest.value", lambda a: np.where(np.isposinf(a), np.float32(0), a)),
        ("ensemble cpu forest.value", lambda a: a[None]),
        ("ensemble cpu forest.length", lambda a: a + 200),
        ("ensemble cpu forest.lengths", lambda a: a[:1]),
        ("ensemble cpu forest.roots", lambda a: a + 60_000),
        ("ensemble cpu forest.constants", lambda a: a * 1e6),
        ("ensemble cpu scores.zscore", lambda a: a[1:]),
    ],
    ids=lambda damage: damage[0],
)
def test_a_record_that_was_damaged_is_refused_before_compiled_code_sees_it(
    calm: Baseline, damage: tuple[str, Callable[[NDArray[Any]], NDArray[Any]]]
) -> None:
    record, (name, change) = calm.record("a", "model/1"), damage
    arrays = {**record.arrays, name: change(record.arrays[name])}
    with pytest.raises((TypeError, ValueError)):
        Baseline.restore(replace(record, arrays=arrays))


@pytest.mark.parametrize(("count", "period_ms", "sound"), [(60, 1000, True), (61, 1000, False), (2, 60_000, False)])
def test_a_message_that_spans_more_than_a_minute_is_rejected(count: int, period_ms: int, sound: bool) -> None:
    batch = second("a", "cpu", 0)
    metric = next(iter(subsystem_metrics("cpu").values()))
    width = len(batch.instances[metric.dimension])
    long = replace(
        batch, count=count, period_ms=period_ms, metrics={metric.name: np.ones((count, width), dtype=np.float32)}
    )
    if sound:
        assert decode_telemetry(encode(long)).count == count
        return
    with pytest.raises(Rejected, match="wrong-dimensions: .* span more than 60000 ms"):
        decode_telemetry(encode(long))
