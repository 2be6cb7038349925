"""Per-second statistics of a telemetry batch: what is kept of the samples.

A metric with several instances is first summarised over them (mean, maximum, spread), sample by sample. Each summary
is then a series of samples, and of a series the statistics of ROWS are kept, which merge: the statistics of three
seconds are those of their samples together. All series of a subsystem are reduced in one go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.catalogue import Metric, subsystem_metrics
from schemas.records import Telemetry

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]

SUMMARIES: Final = ("mean", "maximum", "spread")
ROWS: Final = (
    "n",
    "mean",
    "m2",
    "min",
    "max",
    "first",
    "last",
    "sum_t",
    "sum_tt",
    "sum_tx",
    "rough",
    "first_t",
    "last_t",
)
N, MEAN, M2, MIN, MAX, FIRST, LAST, SUM_T, SUM_TT, SUM_TX, ROUGH, FIRST_T, LAST_T = range(len(ROWS))
SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a subsystem: a summary of a metric over its instances. A metric of the host has only the mean,
    which is its value.
    """

    metric: Metric
    summary: str


@dataclass(frozen=True, slots=True)
class Group:
    """Metrics of one dimension, and where their series start: series of summary k, metric i is `start + k *
    len(metrics) + i`.
    """

    dimension: str
    metrics: tuple[Metric, ...]
    start: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Order of the series of a subsystem; the same for every host, so that arrays of two hosts or two days compare."""

    groups: tuple[Group, ...]
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Statistics of the series that a host has; of those that it lacks nothing is kept or computed.

    columns  positions of the series in the layout, ascending
    values   float64 (len(ROWS), len(columns)): NaN where the series has no sample, except n = 0. Times are seconds
             since the start of the second.
    """

    columns: NDArray[np.intp]
    values: Floats


@dataclass(frozen=True, slots=True)
class Second:
    """Statistics of one second of one subsystem.

    second     seconds since 1970-01-01 UTC
    stats      of the samples of the second
    filled     share of the second's expected samples that hold any value, 0 to 1
    instances  names by dimension, without host
    levels     by dimension, mean of every instance in the second, float32 (metrics of the dimension, instances), NaN
    where absent
    """

    second: int
    stats: Statistics
    filled: float
    instances: Mapping[str, tuple[str, ...]]
    levels: Mapping[str, Singles]


@cache
def layout(subsystem: str) -> Layout:
    """Layout of `subsystem`, from the catalogue."""
    by_dimension: dict[str, list[Metric]] = {}
    for metric in subsystem_metrics(subsystem).values():
        if not metric.scored:
            continue
        by_dimension.setdefault(metric.dimension, []).append(metric)
    groups: list[Group] = []
    series: list[Series] = []
    for dimension, metrics in by_dimension.items():
        groups.append(Group(dimension, tuple(metrics), len(series)))
        for summary in SUMMARIES if dimension != "host" else SUMMARIES[:1]:
            series += [Series(metric, summary) for metric in metrics]
    return Layout(tuple(groups), tuple(series))


def reduce_batch(batch: Telemetry) -> list[Second]:
    """The seconds that `batch` touches, oldest first; usually one."""
    columns, samples, levels = _series(batch)
    period_ns = batch.period_ms * 1_000_000
    times = batch.start_ns + period_ns * np.arange(batch.count, dtype=np.int64)
    seconds = times // SECOND_NS
    instances = {name: names for name, names in batch.instances.items() if name != "host"}
    reduced: list[Second] = []
    start = 0
    while start < batch.count:
        second = int(seconds[start])
        stop = int(np.searchsorted(seconds, second, side="right"))
        offsets = (times[start:stop] - second * SECOND_NS) / SECOND_NS
        block = samples[start:stop]
        missing = np.isnan(block)
        # A row without any value is a sample that the agent could not take.
        expected = max(stop - start, 1000 // batch.period_ms)
        filled = float(np.count_nonzero(~missing.all(axis=1))) / expected
        reduced.append(
            Second(
                second=second,
                stats=Statistics(columns, _statistics(block, missing, offsets)),
                filled=filled,
                instances=instances,
                levels={name: mean_of_present(cube[:, start:stop], 1) for name, cube in levels.items()},
            )
        )
        start = stop
    return reduced


def merge(earlier: Statistics, later: Statistics, shift: float) -> Statistics:
    """Statistics of both together; `shift` is the time from the start of `earlier` to the start of `later`, s."""
    if earlier.columns is later.columns or np.array_equal(earlier.columns, later.columns):
        return Statistics(earlier.columns, merge_values(earlier.values, later.values, shift))
    columns = np.union1d(earlier.columns, later.columns)
    return Statistics(columns, merge_values(_widened(earlier, columns), _widened(later, columns), shift))


def _widened(stats: Statistics, columns: NDArray[np.intp]) -> Floats:
    """Values of `stats` in `columns`, which hold all of its own."""
    wide = np.full((len(ROWS), len(columns)), np.nan)
    wide[N] = 0
    wide[:, np.searchsorted(columns, stats.columns)] = stats.values
    return wide


def merge_values(earlier: Floats, later: Floats, shift: float) -> Floats:
    """As `merge`, of values (len(ROWS), series) of the same series.

    Mean and sum of squared differences merge as in Chan, Golub and LeVeque, Updating formulae and a pairwise
    algorithm for computing sample variances (1979).
    """
    merged = np.empty_like(earlier)
    n_a, n_b = earlier[N], later[N]
    n = n_a + n_b
    some_a, some_b = n_a > 0, n_b > 0
    both = some_a & some_b
    with np.errstate(invalid="ignore", divide="ignore"):
        delta = later[MEAN] - earlier[MEAN]
        share = n_b / n
        merged[MEAN] = earlier[MEAN] + delta * share
        merged[M2] = earlier[M2] + later[M2] + delta * delta * n_a * share
    merged[N] = n
    np.fmin(earlier[MIN], later[MIN], out=merged[MIN])
    np.fmax(earlier[MAX], later[MAX], out=merged[MAX])
    merged[FIRST] = earlier[FIRST]
    merged[LAST] = later[LAST]
    merged[SUM_T] = earlier[SUM_T] + later[SUM_T] + shift * n_b
    merged[SUM_TT] = earlier[SUM_TT] + later[SUM_TT] + 2 * shift * later[SUM_T] + shift * shift * n_b
    merged[SUM_TX] = earlier[SUM_TX] + later[SUM_TX] + shift * n_b * later[MEAN]
    merged[ROUGH] = earlier[ROUGH] + later[ROUGH] + np.abs(later[FIRST] - earlier[LAST])
    merged[FIRST_T] = earlier[FIRST_T]
    merged[LAST_T] = later[LAST_T] + shift
    if not both.all():
        only_a = some_a & ~some_b
        merged[:, only_a] = earlier[:, only_a]
        only_b = ~some_a
        moved = later[:, only_b]
        count = moved[N]
        moved[SUM_TX] += np.where(count > 0, shift * count * np.nan_to_num(moved[MEAN]), 0.0)
        moved[SUM_TT] += 2 * shift * moved[SUM_T] + shift * shift * count
        moved[SUM_T] += shift * count
        moved[FIRST_T] += shift
        moved[LAST_T] += shift
        merged[:, only_b] = moved
    return merged


@dataclass(frozen=True, slots=True)
class _Present:
    """Metrics of a group that a batch holds: their names, their places in the group, and where their series start among
    those of the batch.
    """

    group: Group
    names: tuple[str, ...]
    rows: NDArray[np.intp]
    start: int


@lru_cache(maxsize=256)
def _present(subsystem: str, names: tuple[str, ...]) -> tuple[tuple[_Present, ...], NDArray[np.intp]]:
    """What of the layout a batch with metrics `names` fills, and the columns of its series; a host sends the same
    metrics second after second.
    """
    there = frozenset(names)
    found: list[_Present] = []
    columns: list[int] = []
    for group in layout(subsystem).groups:
        rows = [row for row, metric in enumerate(group.metrics) if metric.name in there]
        if rows:
            chosen = tuple(group.metrics[row].name for row in rows)
            found.append(_Present(group, chosen, np.array(rows), len(columns)))
            summaries = 1 if group.dimension == "host" else len(SUMMARIES)
            columns += [group.start + k * len(group.metrics) + row for k in range(summaries) for row in rows]
    return tuple(found), np.array(columns, np.intp)


def _series(batch: Telemetry) -> tuple[NDArray[np.intp], Floats, dict[str, Singles]]:
    """Columns of the series that are there, their samples, (count, columns), and by dimension the instances' samples,
    (metrics, count, instances).
    """
    parts, all_columns = _present(batch.subsystem, tuple(batch.metrics))
    samples = np.full((batch.count, len(all_columns)), np.nan)
    cubes: dict[str, Singles] = {}
    for present in parts:
        group, size = present.group, len(present.names)
        columns = slice(present.start, present.start + size)
        highest = slice(present.start + size, present.start + 2 * size)
        spread = slice(present.start + 2 * size, present.start + 3 * size)
        cube = np.array([batch.metrics[name] for name in present.names])
        if group.dimension == "host":
            samples[:, columns] = cube[:, :, 0].T
            continue
        width = cube.shape[2]
        if width == 1:
            samples[:, columns] = samples[:, highest] = values = cube[:, :, 0].T
            samples[:, spread] = np.where(np.isnan(values), np.nan, 0.0)
        elif np.isnan(cube).any():
            mean = mean_of_present(cube.astype(np.float64), 2)
            deviation = cube - mean[:, :, None]
            samples[:, columns] = mean.T
            samples[:, highest] = np.fmax.reduce(cube, axis=2).T
            samples[:, spread] = np.sqrt(mean_of_present(deviation * deviation, 2)).T
        else:
            mean = np.add.reduce(cube, axis=2, dtype=np.float64) / width
            deviation = cube - mean[:, :, None]
            samples[:, columns] = mean.T
            samples[:, highest] = np.maximum.reduce(cube, axis=2).T
            samples[:, spread] = np.sqrt(np.add.reduce(deviation * deviation, axis=2) / width).T
        if size == len(group.metrics):
            cubes[group.dimension] = cube
        else:
            full = np.full((len(group.metrics), *cube.shape[1:]), np.nan, dtype=np.float32)
            full[present.rows] = cube
            cubes[group.dimension] = full
    return all_columns, samples, cubes


def mean_of_present(values: NDArray[Any], axis: int) -> NDArray[Any]:
    """Mean over `axis` of what is there; NaN where nothing is."""
    missing = np.isnan(values)
    if not missing.any():
        return np.asarray(values.mean(axis=axis))
    count = values.shape[axis] - missing.sum(axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(missing, 0, values).sum(axis=axis) / count, dtype=values.dtype)


def _statistics(block: Floats, missing: NDArray[np.bool_], offsets: Floats) -> Floats:
    """Statistics (len(ROWS), series) of samples (count, series) taken at `offsets` (count), s into the second."""
    stats = np.empty((len(ROWS), block.shape[1]))
    gaps = missing.any(axis=0)
    if not gaps.any():
        return _dense_statistics(block, offsets)
    dense = ~gaps
    if dense.any():
        stats[:, dense] = _dense_statistics(block[:, dense], offsets)
    stats[:, gaps] = _sparse_statistics(block[:, gaps], ~missing[:, gaps], offsets)
    return stats


def _dense_statistics(x: Floats, offsets: Floats) -> Floats:
    """As `_statistics`, of series without a missing sample."""
    part = np.empty((len(ROWS), x.shape[1]))
    mean = np.add.reduce(x) / len(x)
    gap = x - mean
    part[N], part[MEAN] = len(x), mean
    part[M2] = np.add.reduce(gap * gap)
    part[MIN], part[MAX] = np.minimum.reduce(x), np.maximum.reduce(x)
    part[FIRST], part[LAST] = x[0], x[-1]
    part[SUM_T], part[SUM_TT] = offsets.sum(), offsets @ offsets
    part[SUM_TX] = offsets @ x
    part[ROUGH] = np.add.reduce(np.abs(x[1:] - x[:-1]))
    part[FIRST_T], part[LAST_T] = offsets[0], offsets[-1]
    return part


def _sparse_statistics(x: Floats, there: NDArray[np.bool_], offsets: Floats) -> Floats:
    """As `_statistics`, of series with samples missing."""
    part = np.full((len(ROWS), x.shape[1]), np.nan)
    n = there.sum(axis=0)
    zeroed = np.where(there, x, 0.0)
    times = np.where(there, offsets[:, None], 0.0)
    part[N] = n
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = zeroed.sum(axis=0) / n
    part[MEAN] = mean
    part[M2] = np.square(np.where(there, x - mean, 0.0)).sum(axis=0)
    part[MIN], part[MAX] = np.fmin.reduce(x, axis=0), np.fmax.reduce(x, axis=0)
    part[SUM_T], part[SUM_TT] = times.sum(axis=0), np.square(times).sum(axis=0)
    part[SUM_TX] = (times * zeroed).sum(axis=0)
    # The index of the newest sample so far carries values over the gaps, so that steps between neighbours are counted
    # once.
    newest = np.maximum.accumulate(np.where(there, np.arange(len(x))[:, None], -1), axis=0)
    columns = np.arange(x.shape[1])
    carried = np.where(newest >= 0, x[np.maximum(newest, 0), columns], np.nan)
    part[ROUGH] = np.nan_to_num(np.abs(np.diff(carried, axis=0))).sum(axis=0)
    some = n > 0
    first = there.argmax(axis=0)
    part[FIRST], part[FIRST_T] = x[first, columns], np.where(some, offsets[first], np.nan)
    last = np.maximum(newest[-1], 0)
    part[LAST], part[LAST_T] = x[last, columns], np.where(some, offsets[last], np.nan)
    part[M2, ~some] = np.nan
    return part
