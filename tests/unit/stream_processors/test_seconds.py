"""Per-second statistics: equal to those of the samples themselves, and they merge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from schemas.records import Telemetry
from stream_processors import seconds
from stream_processors.seconds import FIRST, LAST, M2, MAX, MEAN, MIN, ROUGH, ROWS, SUM_T, SUM_TT, SUM_TX, N
from tests.synthetic import START, second


def direct(samples: NDArray[np.float64], times: NDArray[np.float64]) -> list[float]:
    """Statistics of one series, written out."""
    there = ~np.isnan(samples)
    x, t = samples[there], times[there]
    if not len(x):
        return [0.0] + [np.nan] * 6 + [0.0, 0.0, 0.0, 0.0]
    steps = np.abs(np.diff(x)).sum()
    return [
        len(x), x.mean(), ((x - x.mean()) ** 2).sum(), x.min(), x.max(), x[0], x[-1],
        t.sum(), (t * t).sum(), (t * x).sum(), steps,
    ]  # fmt: skip


ORDER = [N, MEAN, M2, MIN, MAX, FIRST, LAST, SUM_T, SUM_TT, SUM_TX, ROUGH]
samples_of_three_seconds = arrays(
    np.float64, (30, 2), elements=st.one_of(st.just(np.nan), st.floats(-1e6, 1e6, width=32), st.just(0.0))
)


@given(samples_of_three_seconds)
def test_statistics_of_parts_merge_to_those_of_the_whole(samples: NDArray[np.float64]) -> None:
    times = np.arange(30) / 10
    merged = None
    for part in range(3):
        rows = slice(10 * part, 10 * part + 10)
        block = samples[rows]
        stats = np.empty((len(ROWS), 2))
        seconds._describe(block, times[rows] - part, stats)
        merged = stats if merged is None else seconds.merge_values(merged, stats, float(part))
    assert merged is not None
    for column in range(2):
        wanted = direct(samples[:, column], times)
        found = merged[ORDER, column]
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-3)


def cpu(values: NDArray[np.float32], name: str = "cpu.time.user") -> Telemetry:
    return replace(second("h", "cpu", 0), metrics={name: values})


def series(part: seconds.Second | seconds.Statistics, metric: str, summary: str) -> NDArray[np.float64]:
    """Statistics of one series."""
    stats = part.stats if isinstance(part, seconds.Second) else part
    plan = seconds.layout("cpu").series
    [place] = [i for i, each in enumerate(plan) if (each.metric.name, each.summary) == (metric, summary)]
    [index] = np.flatnonzero(stats.lineup.columns == place)
    return stats.values[:, index]


def test_series_that_only_one_part_has_are_in_the_whole() -> None:
    user, load = np.full((10, 2), 3, np.float32), np.full((10, 1), 7, np.float32)
    batch = cpu(user)
    [first] = seconds.reduce_batch(batch)
    [later] = seconds.reduce_batch(replace(batch, metrics={"cpu.load1": load, "cpu.time.user": user}))
    both = seconds.merge(first.stats, later.stats, 1.0)
    assert series(both, "cpu.time.user", "mean")[[N, MEAN, SUM_T]].tolist() == pytest.approx([20, 3, 19.0])
    assert series(both, "cpu.load1", "mean")[[N, MEAN, SUM_T]].tolist() == pytest.approx([10, 7, 14.5])
    assert (np.diff(both.lineup.columns) > 0).all()
    assert len(both.lineup.columns) == 4


def test_instances_are_summarised_sample_by_sample() -> None:
    values = np.array([[1, 3]] * 5 + [[2, 8]] * 5, dtype=np.float32)
    [only] = seconds.reduce_batch(cpu(values))
    assert only.second == START
    assert only.filled == 1.0
    assert series(only, "cpu.time.user", "mean")[MEAN] == pytest.approx(3.5)
    assert series(only, "cpu.time.user", "maximum")[MAX] == 8
    assert series(only, "cpu.time.user", "spread")[MEAN] == pytest.approx(2.0)
    group = next(group for group in seconds.layout("cpu").groups if group.dimension == "core")
    row = [metric.name for metric in group.metrics].index("cpu.time.user")
    assert only.levels("core")[row].tolist() == [1.5, 5.5]
    assert np.isnan(only.levels("core")[row - 1]).all()


def test_an_absent_metric_has_no_statistics_and_an_absent_instance_does_not_spread() -> None:
    values = np.array([[1, np.nan]] * 10, dtype=np.float32)
    [only] = seconds.reduce_batch(cpu(values))
    assert series(only, "cpu.time.user", "mean")[MEAN] == 1
    assert series(only, "cpu.time.user", "spread")[MEAN] == 0
    assert len(only.stats.lineup.columns) == 3, "of what is absent nothing is kept"


def test_missed_samples_lower_the_filled_share() -> None:
    values = np.ones((10, 2), dtype=np.float32)
    values[:4] = np.nan
    assert seconds.reduce_batch(cpu(values))[0].filled == pytest.approx(0.6)


def test_a_batch_of_several_seconds_is_cut() -> None:
    values = np.arange(20, dtype=np.float32).reshape(10, 2)
    batch = replace(cpu(values), period_ms=300)
    parts = seconds.reduce_batch(batch)
    assert [part.second - START for part in parts] == [0, 1, 2]
    assert [part.filled for part in parts] == [1.0, 1.0, 1.0]
    assert [series(part, "cpu.time.user", "mean")[N] for part in parts] == [4, 3, 3]
    assert series(parts[1], "cpu.time.user", "mean")[SUM_T] == pytest.approx(0.2 + 0.5 + 0.8)
