"""Per-second statistics of a telemetry batch: what is kept of the samples.

A metric with several instances is first summarised over them (mean, maximum, spread), sample by sample. Each summary
is then a series of samples, and of a series the statistics of ROWS are kept, which merge: the statistics of three
seconds are those of their samples together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.catalogue import SUBSYSTEMS, Metric, subsystem_metrics
from schemas.matrices import KNOWN, Columns, Matrices
from schemas.records import Telemetry
from stream_processors.compiled import compiled
from stream_processors.retransmits import needed

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Places = NDArray[np.intp]

SUMMARIES: Final = ("mean", "maximum", "spread")
ROWS: Final = ("n", "sum_t", "sum_tt", "sum_tx", "rough", "m2", "mean", "min", "max", "first", "last")
N, SUM_T, SUM_TT, SUM_TX, ROUGH, M2, MEAN, MIN, MAX, FIRST, LAST = range(len(ROWS))
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
    """Order of the series of a subsystem; the same for every host, so that arrays of two hosts or two days compare.

    first  how many series the subsystems before it have
    """

    groups: tuple[Group, ...]
    series: tuple[Series, ...]
    first: int


@dataclass(frozen=True, slots=True, eq=False)
class Lineup:
    """The series that a host has: their positions among those of all subsystems, ascending. Seconds share it."""

    columns: Places


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Statistics of the series that a host has; of those that it lacks nothing is kept or computed.

    values   float64 (len(ROWS), series of the lineup): NaN where the series has no sample, except sums, which are 0.
             Times are seconds since the start of the second.
    """

    lineup: Lineup
    values: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Where the instances of a dimension are: `channels` (metrics that are there, instances) of the metrics in `rows`
    of the `metrics` that there may be.
    """

    metrics: int
    rows: Places
    channels: Places


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What messages of the same metrics and instances hold.

    columns  of the message
    lineup   series that it fills
    places   (len(SUMMARIES), metrics): which of them each summary of each of its metrics is; -1 for none
    levels   by dimension, without host
    """

    columns: Columns
    lineup: Lineup
    places: Places
    levels: Mapping[str, Level]


@dataclass(slots=True, eq=False)
class Second:
    """One second of one subsystem.

    second     seconds since 1970-01-01 UTC
    instances  names by dimension
    plan       what its channels are
    stats      statistics of its series
    filled     share of the expected samples that hold any value, 0 to 1
    means      mean of every channel, float32 (channels,), NaN where absent
    """

    second: int
    instances: Mapping[str, tuple[str, ...]]
    plan: Plan
    stats: Statistics
    filled: float
    means: Singles

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Dimensions, without host, of which there is any metric."""
        return tuple(self.plan.levels)

    def levels(self, dimension: str) -> Singles:
        """Mean of every instance in the second, float32 (metrics of the dimension, instances), NaN where absent."""
        level = self.plan.levels[dimension]
        found = np.full((level.metrics, level.channels.shape[1]), np.nan, dtype=np.float32)
        found[level.rows] = self.means[level.channels]
        return found


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
    first = sum(len(layout(name).series) for name in SUBSYSTEMS[: SUBSYSTEMS.index(subsystem)])
    return Layout(tuple(groups), tuple(series), first)


@lru_cache(maxsize=KNOWN)
def _plan(subsystem: str, columns: Columns) -> Plan:
    """The plan for messages with these columns; a host sends the same second after second."""
    order = layout(subsystem)
    position = {name: place for place, name in enumerate(columns.names)}
    lineup: list[int] = []
    places = np.full((len(SUMMARIES), len(columns.names)), -1, np.intp)
    levels: dict[str, Level] = {}
    for group in order.groups:
        rows = [row for row, metric in enumerate(group.metrics) if metric.name in position]
        there = [position[group.metrics[row].name] for row in rows]
        for number in range(1 if group.dimension == "host" else len(SUMMARIES)):
            places[number, there] = len(lineup) + np.arange(len(rows))
            lineup += [order.first + group.start + number * len(group.metrics) + row for row in rows]
        if rows and group.dimension != "host":
            channels = np.stack([np.arange(columns.widths[place]) + columns.starts[place] for place in there])
            levels[group.dimension] = Level(len(group.metrics), np.array(rows), channels)
    return Plan(columns, Lineup(np.array(lineup, np.intp)), places, levels)


@compiled("void(float64[:,::1], float64[::1], float64[:,::1])")
def _describe(samples: Floats, offsets: Floats, stats: Floats) -> None:
    """Put the statistics of `samples` (count, series), NaN where absent, which were taken at `offsets` (count,), s into
    the second, into `stats` (len(ROWS), series). Each loop does little, so that a processor does many series at a time.
    """
    count, series = samples.shape
    total, squares = np.zeros(series), np.zeros(series)
    stats[:M2] = 0.0
    stats[M2:] = np.nan
    stats[MIN], stats[MAX] = np.inf, -np.inf
    for sample in range(count):
        now, offset = samples[sample], offsets[sample]
        for place in range(series):
            there = not np.isnan(now[place])
            stats[N, place] += 1.0 if there else 0.0
            stats[SUM_T, place] += offset if there else 0.0
            stats[SUM_TT, place] += offset * offset if there else 0.0
        for place in range(series):
            value = 0.0 if np.isnan(now[place]) else now[place]
            total[place] += value
            stats[SUM_TX, place] += offset * value
        for place in range(series):
            value, first, last = now[place], stats[FIRST, place], stats[LAST, place]
            step = abs(value - last)
            stats[ROUGH, place] += 0.0 if np.isnan(step) else step
            stats[FIRST, place] = value if np.isnan(first) else first
            stats[LAST, place] = last if np.isnan(value) else value
        for place in range(series):
            value = now[place]
            stats[MIN, place] = value if value < stats[MIN, place] else stats[MIN, place]
            stats[MAX, place] = value if value > stats[MAX, place] else stats[MAX, place]
    for place in range(series):
        stats[MEAN, place] = total[place] / stats[N, place]
    for sample in range(count):
        now = samples[sample]
        for place in range(series):
            gap = now[place] - stats[MEAN, place]
            squares[place] += 0.0 if np.isnan(gap) else gap * gap
    for place in range(series):
        absent = stats[N, place] == 0
        stats[M2, place] = np.nan if absent else squares[place]
        stats[MIN, place] = np.nan if absent else stats[MIN, place]
        stats[MAX, place] = np.nan if absent else stats[MAX, place]


@compiled("int64(float32[:,::1], float64[::1], int64[::1], int64[::1], int64[:,::1], float64[:,::1], float32[::1])")
def _reduce(  # noqa: PLR0917 - compiled code takes what it is given by position
    cells: Singles,
    offsets: Floats,
    starts: Places,
    widths: Places,
    places: Places,
    stats: Floats,
    means: Singles,
) -> int:
    """Reduce samples (count, channels) taken at `offsets` (count,), s into the second, to the statistics (len(ROWS),
    series) of the series at `places` (len(SUMMARIES), metrics), and to the mean of each channel (channels,). A metric
    has `widths` channels from `starts` on. Returns how many samples hold any value.
    """
    count, channels = cells.shape
    total, number = np.zeros(channels), np.zeros(channels)
    samples = np.empty((count, stats.shape[1]))
    taken = 0
    for sample in range(count):
        row, summaries, some = cells[sample], samples[sample], False
        for channel in range(channels):
            total[channel] += 0.0 if np.isnan(row[channel]) else row[channel]
            number[channel] += 0.0 if np.isnan(row[channel]) else 1.0
        for metric in range(len(starts)):
            place, largest, apart = places[0, metric], places[1, metric], places[2, metric]
            first, end = starts[metric], starts[metric] + widths[metric]
            if place < 0:
                continue
            if widths[metric] == 1:
                value = np.float64(row[first])
                summaries[place] = value
                some |= not np.isnan(value)
                if largest >= 0:
                    summaries[largest], summaries[apart] = value, value - value
                continue
            together, there, squares, most = 0.0, 0.0, 0.0, -np.inf
            for channel in range(first, end):
                value = np.float64(row[channel])
                together += 0.0 if np.isnan(value) else value
                there += 0.0 if np.isnan(value) else 1.0
                most = value if value > most else most
            average = together / there
            summaries[place] = average
            some |= there > 0
            if largest < 0:
                continue
            for channel in range(first, end):
                gap = np.float64(row[channel]) - average
                squares += 0.0 if np.isnan(gap) else gap * gap
            summaries[largest] = most if there else np.nan
            summaries[apart] = np.sqrt(squares / there)
        taken += some
    for channel in range(channels):
        means[channel] = total[channel] / number[channel]
    _describe(samples, offsets, stats)
    return taken


@lru_cache(maxsize=KNOWN)
def _offsets(count: int, into_ns: int, period_ns: int) -> Floats:
    """When samples are taken, s into their second."""
    return np.asarray((into_ns + period_ns * np.arange(count)) / SECOND_NS, np.float64)


def reduce_batch(batch: Telemetry) -> list[Second]:
    """The seconds that `batch` touches, oldest first; usually one."""
    matrices = Matrices.of(batch.metrics)
    columns = matrices.columns
    plan = _plan(batch.subsystem, columns)
    cells = np.ascontiguousarray(needed(columns, matrices.cells))
    period_ns = batch.period_ms * 1_000_000
    seconds: list[Second] = []
    start = 0
    while start < batch.count:
        second, into_ns = divmod(batch.start_ns + start * period_ns, SECOND_NS)
        stop = min(batch.count, start - (into_ns - SECOND_NS) // period_ns)
        offsets = _offsets(stop - start, into_ns, period_ns)
        values = np.empty((len(ROWS), len(plan.lineup.columns)))
        means = np.empty(cells.shape[1], np.float32)
        taken = _reduce(cells[start:stop], offsets, columns.starts, columns.widths, plan.places, values, means)
        filled = taken / max(stop - start, SECOND_NS // period_ns)
        seconds.append(Second(second, batch.instances, plan, Statistics(plan.lineup, values), filled, means))
        start = stop
    return seconds


def mean_of_present(values: NDArray[Any], axis: int) -> NDArray[Any]:
    """Mean over `axis` of what is there; NaN where nothing is."""
    missing = np.isnan(values)
    if not missing.any():
        return np.asarray(values.mean(axis=axis))
    count = values.shape[axis] - missing.sum(axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(missing, 0, values).sum(axis=axis) / count, dtype=values.dtype)


def together(seconds: Sequence[Second]) -> Statistics:
    """Statistics of subsystems of one second, which are in the order of SUBSYSTEMS and at least one, as one. Theirs
    become parts of it, so that they are kept once.
    """
    parts = [each.stats for each in seconds]
    values = np.concatenate([part.values for part in parts], axis=1)
    start = 0
    for each, part in zip(seconds, parts, strict=True):
        end = start + part.values.shape[1]
        each.stats = Statistics(part.lineup, values[:, start:end])
        start = end
    return Statistics(_lineup(tuple(part.lineup for part in parts)), values)


@lru_cache(maxsize=KNOWN)
def _lineup(lineups: tuple[Lineup, ...]) -> Lineup:
    return Lineup(np.concatenate([lineup.columns for lineup in lineups]))


def merge(earlier: Statistics, later: Statistics, shift: float) -> Statistics:
    """Statistics of both together; `shift` is the time from the start of `earlier` to the start of `later`, s."""
    one, other = earlier.lineup.columns, later.lineup.columns
    if one is other or np.array_equal(one, other):
        return Statistics(earlier.lineup, merge_values(earlier.values, later.values, shift))
    columns = np.union1d(one, other)
    values = merge_values(_widened(earlier, columns), _widened(later, columns), shift)
    return Statistics(Lineup(columns), values)


def _widened(stats: Statistics, columns: Places) -> Floats:
    """Values of `stats` in `columns`, which hold all of its own."""
    wide = np.full((len(ROWS), len(columns)), np.nan)
    wide[N:M2] = 0
    wide[:, np.searchsorted(columns, stats.lineup.columns)] = stats.values
    return wide


@compiled("float64[:,::1](float64[:,::1], float64[:,::1], float64)")
def merge_values(earlier: Floats, later: Floats, shift: float) -> Floats:
    """As `merge`, of values (len(ROWS), series) of the same series.

    Mean and sum of squared differences merge as in Chan, Golub and LeVeque, Updating formulae and a pairwise
    algorithm for computing sample variances (1979).
    """
    merged = np.empty_like(earlier)
    for place in range(earlier.shape[1]):
        n, others = earlier[N, place], later[N, place]
        if others == 0:
            for row in range(len(ROWS)):
                merged[row, place] = earlier[row, place]
            continue
        mean, other = earlier[MEAN, place], later[MEAN, place]
        moved, sum_t = shift * others, later[SUM_T, place]
        merged[N, place] = n + others
        merged[SUM_T, place] = earlier[SUM_T, place] + sum_t + moved
        merged[SUM_TT, place] = earlier[SUM_TT, place] + later[SUM_TT, place] + shift * (2 * sum_t + moved)
        merged[SUM_TX, place] = earlier[SUM_TX, place] + later[SUM_TX, place] + moved * other
        merged[LAST, place] = later[LAST, place]
        if n == 0:
            for row in range(ROUGH, LAST):
                merged[row, place] = later[row, place]
            continue
        delta, share = other - mean, others / (n + others)
        step = abs(later[FIRST, place] - earlier[LAST, place])
        merged[ROUGH, place] = earlier[ROUGH, place] + later[ROUGH, place] + step
        merged[M2, place] = earlier[M2, place] + later[M2, place] + delta * delta * n * share
        merged[MEAN, place] = mean + delta * share
        merged[MIN, place] = min(earlier[MIN, place], later[MIN, place])
        merged[MAX, place] = max(earlier[MAX, place], later[MAX, place])
        merged[FIRST, place] = earlier[FIRST, place]
    return merged
