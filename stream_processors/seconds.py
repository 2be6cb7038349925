"""Per-second statistics of a telemetry batch: what is kept of the samples.

A metric with several instances is first summarised over them (mean, maximum, spread), sample by sample. Each summary
is then a series of samples, and of a series the statistics of ROWS are kept, which merge: the statistics of three
seconds are those of their samples together. What numpy costs a call is most of the work, so samples wait until those of
the other subsystems are there, and all are reduced in one go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from math import isnan
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.catalogue import SUBSYSTEMS, Metric, subsystem_metrics
from schemas.matrices import KNOWN, Columns, Matrices
from schemas.records import Telemetry
from stream_processors.retransmits import needed

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Places = NDArray[np.intp]

SUMMARIES: Final = ("mean", "maximum", "spread")
ROWS: Final = ("n", "sum_t", "sum_tt", "sum_tx", "rough", "m2", "mean", "min", "max", "first", "last")
N, SUM_T, SUM_TT, SUM_TX, ROUGH, M2, MEAN, MIN, MAX, FIRST, LAST = range(len(ROWS))
ADDED: Final = slice(N, MEAN)
"""Those that are sums: parts add up, but for what their distance adds."""
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
    metrics  (series,): which of its metrics
    summary  (series,): which of SUMMARIES
    levels   by dimension, without host
    """

    columns: Columns
    lineup: Lineup
    metrics: Places
    summary: Places
    levels: Mapping[str, Level]


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """How messages of several plans, side by side, are reduced.

    wide      channels (instances, metrics) of metrics that have as many instances, more than one
    flat      channels of the other metrics, those first that have a spread, although over nothing
    spreads   how many those are
    order     (series,): where they are among the flat channels, the means, maxima and spreads of each in `wide`, and
              the spreads of the flat ones
    lineup    of all
    series    those of each message
    channels  those of each message
    """

    wide: tuple[Places, ...]
    flat: Places
    spreads: int
    order: Places
    lineup: Lineup
    series: tuple[slice, ...]
    channels: tuple[slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples of one second, float32 `cells` (count, channels); the first `into_ns` after it begins."""

    cells: Singles
    into_ns: int
    period_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """What is kept of samples.

    stats   statistics
    filled  share of the second's expected samples that hold any value, 0 to 1
    means   mean of every channel, float32 (channels,), NaN where absent
    """

    stats: Statistics
    filled: float
    means: Singles


@dataclass(slots=True, eq=False)
class Second:
    """One second of one subsystem.

    second     seconds since 1970-01-01 UTC
    instances  names by dimension
    plan       what the channels of the samples are
    samples    or what is kept of them: Samples are reduced when somebody asks, alone or by `reduce_together`
    """

    second: int
    instances: Mapping[str, tuple[str, ...]]
    plan: Plan
    samples: Samples | Reduced

    @property
    def reduced(self) -> Reduced:
        """What is kept of the samples."""
        if isinstance(self.samples, Samples):
            reduce_together([self])
        assert isinstance(self.samples, Reduced)
        return self.samples

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Dimensions, without host, of which there is any metric."""
        return tuple(self.plan.levels)

    def levels(self, dimension: str) -> Singles:
        """Mean of every instance in the second, float32 (metrics of the dimension, instances), NaN where absent."""
        level = self.plan.levels[dimension]
        found = np.full((level.metrics, level.channels.shape[1]), np.nan, dtype=np.float32)
        found[level.rows] = self.reduced.means[level.channels]
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
    metrics: list[int] = []
    summary: list[int] = []
    levels: dict[str, Level] = {}
    for group in order.groups:
        rows = [row for row, metric in enumerate(group.metrics) if metric.name in position]
        there = [position[group.metrics[row].name] for row in rows]
        for number in range(1 if group.dimension == "host" else len(SUMMARIES)):
            lineup += [order.first + group.start + number * len(group.metrics) + row for row in rows]
            metrics += there
            summary += [number] * len(there)
        if rows and group.dimension != "host":
            channels = np.stack([np.arange(columns.widths[place]) + columns.starts[place] for place in there])
            levels[group.dimension] = Level(len(group.metrics), np.array(rows), channels)
    lines = Lineup(np.array(lineup, np.intp))
    return Plan(columns, lines, np.array(metrics, np.intp), np.array(summary, np.intp), levels)


@lru_cache(maxsize=KNOWN)
def _sweep(plans: tuple[Plan, ...]) -> Sweep:
    """The sweep over messages of these plans."""
    widths = np.concatenate([plan.columns.widths for plan in plans])
    first = np.cumsum(widths) - widths
    metrics = _parts([len(plan.columns.widths) for plan in plans])
    spread = np.zeros(len(widths), np.bool_)
    for part, plan in zip(metrics, plans, strict=True):
        spread[part.start + plan.metrics[plan.summary == SUMMARIES.index("spread")]] = True
    alone = [np.flatnonzero((widths == 1) & spread), np.flatnonzero((widths == 1) & ~spread)]
    flat = np.concatenate(alone)
    # Where the mean, the maximum and the spread of each metric are.
    places = np.zeros((len(SUMMARIES), len(widths)), np.intp)
    places[:, flat] = np.arange(len(flat))
    end = len(flat)
    wide: list[Places] = []
    for width in np.unique(widths[widths > 1]):
        alike = np.flatnonzero(widths == width)
        wide.append(first[alike] + np.arange(width)[:, None])
        places[:, alike] = end + np.arange(len(SUMMARIES) * len(alike)).reshape(len(SUMMARIES), -1)
        end += len(SUMMARIES) * len(alike)
    places[SUMMARIES.index("spread"), alone[0]] = end + np.arange(len(alone[0]))
    order = [places[plan.summary, part.start + plan.metrics] for part, plan in zip(metrics, plans, strict=True)]
    return Sweep(
        wide=tuple(wide),
        flat=first[flat],
        spreads=len(alone[0]),
        order=np.concatenate(order),
        lineup=plans[0].lineup if len(plans) == 1 else _lineup(tuple(plan.lineup for plan in plans)),
        series=_parts([len(plan.metrics) for plan in plans]),
        channels=_parts([int(plan.columns.widths.sum()) for plan in plans]),
    )


def _parts(sizes: Sequence[int]) -> tuple[slice, ...]:
    """Parts of these sizes, one after the other."""
    ends = accumulate(sizes)
    return tuple(slice(end - size, end) for end, size in zip(ends, sizes, strict=True))


def reduce_batch(batch: Telemetry) -> list[Second]:
    """The seconds that `batch` touches, oldest first; usually one. They are yet to be reduced."""
    matrices = Matrices.of(batch.metrics)
    plan = _plan(batch.subsystem, matrices.columns)
    cells = needed(matrices.columns, matrices.cells)
    period_ns = batch.period_ms * 1_000_000
    seconds: list[Second] = []
    start = 0
    while start < batch.count:
        second, into_ns = divmod(batch.start_ns + start * period_ns, SECOND_NS)
        stop = min(batch.count, start - (into_ns - SECOND_NS) // period_ns)
        samples = Samples(cells[start:stop], into_ns, period_ns)
        seconds.append(Second(second, batch.instances, plan, samples))
        start = stop
    return seconds


def reduce_together(seconds: Sequence[Second]) -> Statistics:
    """Reduce the samples of subsystems of one second, which are in the order of SUBSYSTEMS and at least one; their
    statistics as one.
    """
    alike: dict[tuple[int, int, int], list[Second]] = {}
    for each in seconds:
        if isinstance(each.samples, Samples):
            key = (len(each.samples.cells), each.samples.into_ns, each.samples.period_ns)
            alike.setdefault(key, []).append(each)
    for some in alike.values():
        stats = _reduce(some)
        if len(some) == len(seconds):
            return stats
    parts = [each.reduced.stats for each in seconds]
    return Statistics(_lineup(tuple(part.lineup for part in parts)), np.concatenate([p.values for p in parts], axis=1))


def _reduce(seconds: Sequence[Second]) -> Statistics:
    """As `reduce_together`, of samples taken at the same times."""
    samples = [each.samples for each in seconds if isinstance(each.samples, Samples)]
    sweep = _sweep(tuple(each.plan for each in seconds))
    cells = samples[0].cells if len(samples) == 1 else np.concatenate([each.cells for each in samples], axis=1)
    count, into_ns, period_ns = len(cells), samples[0].into_ns, samples[0].period_ns
    offsets = (into_ns + period_ns * np.arange(count)) / SECOND_NS
    series, means = _series(cells, sweep)
    stats = _statistics(series, offsets)
    spreads = stats[:, : sweep.spreads].copy()
    spreads[SUM_TX:] *= 0
    values = np.concatenate([stats, spreads], axis=1).take(sweep.order, axis=1)
    for each, mine, channels in zip(seconds, sweep.series, sweep.channels, strict=True):
        own = values[:, mine]
        taken = count
        # A row without any value is a sample that the agent could not take.
        if np.maximum.reduce(own[N], initial=0) < count:
            every = series.take(sweep.order[mine][each.plan.summary == 0], axis=1)
            taken = int(np.count_nonzero(~np.isnan(every).all(axis=1)))
        filled = taken / max(count, SECOND_NS // period_ns)
        each.samples = Reduced(Statistics(each.plan.lineup, own), filled, means[channels])
    return Statistics(sweep.lineup, values)


def _series(cells: Singles, sweep: Sweep) -> tuple[Floats, Singles]:
    """Samples (count, series) of the series of cells (count, channels) but the spreads of the flat ones, and the mean
    of each channel (channels,).
    """
    values = cells.astype(np.float64)
    parts = [values.take(sweep.flat, axis=1)]
    for wide in sweep.wide:
        parts += _summaries(values.take(wide, axis=1))
    return np.concatenate(parts, axis=1), _means(values)


def _means(values: Floats) -> Singles:
    """Mean of what is there of each channel (channels,), of values (count, channels)."""
    means = np.add.reduce(values) / len(values)
    gaps = np.flatnonzero(np.isnan(means))
    if len(gaps):
        some = values.take(gaps, axis=1)
        missing = np.isnan(some)
        some[missing] = 0
        taken = len(some) - np.add.reduce(missing, axis=0, dtype=np.float64)
        taken[taken == 0] = np.nan
        means[gaps] = np.add.reduce(some) / taken
    return np.asarray(means, dtype=np.float32)


def _summaries(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, maximum and spread over the instances that are there, each (count, metrics), of values (count, instances,
    metrics), which are overwritten.
    """
    mean, highest = np.add.reduce(values, axis=1), np.fmax.reduce(values, axis=1)
    there, gaps = np.full_like(mean, values.shape[1]), None
    lacking = np.count_nonzero(np.isnan(mean))
    # Mostly all instances of a metric are there, or none is.
    if lacking and np.count_nonzero(missing := np.isnan(values)) < lacking * values.shape[1]:
        gaps = missing
        values[gaps] = 0
        there -= np.add.reduce(gaps, axis=1, dtype=np.float64)
        there[there == 0] = np.nan
        mean = np.add.reduce(values, axis=1)
    mean /= there
    values -= mean[:, None]
    values *= values
    if gaps is not None:
        values[gaps] = 0
    return mean, highest, np.sqrt(np.add.reduce(values, axis=1) / there)


def mean_of_present(values: NDArray[Any], axis: int) -> NDArray[Any]:
    """Mean over `axis` of what is there; NaN where nothing is."""
    missing = np.isnan(values)
    if not missing.any():
        return np.asarray(values.mean(axis=axis))
    count = values.shape[axis] - missing.sum(axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(missing, 0, values).sum(axis=axis) / count, dtype=values.dtype)


def _statistics(samples: Floats, offsets: Floats) -> Floats:
    """Statistics (len(ROWS), series) of samples (count, series) taken at `offsets` (count,), s into the second."""
    stats = np.empty((len(ROWS), samples.shape[1]))
    mean = np.add.reduce(samples, out=stats[MEAN])
    mean /= len(samples)
    gap = samples - mean
    gap *= gap
    np.add.reduce(gap, out=stats[M2])
    np.minimum.reduce(samples, out=stats[MIN])
    np.maximum.reduce(samples, out=stats[MAX])
    stats[FIRST], stats[LAST] = samples[0], samples[-1]
    stats[N], stats[SUM_T], stats[SUM_TT] = len(samples), offsets.sum(), offsets @ offsets
    stats[SUM_TX] = offsets @ samples
    steps = samples[1:] - samples[:-1]
    np.add.reduce(np.abs(steps, out=steps), out=stats[ROUGH])
    # The mean is NaN where any sample is.
    gaps = np.flatnonzero(np.isnan(mean))
    if len(gaps):
        stats[:, gaps] = _with_gaps(samples.take(gaps, axis=1), offsets)
    return stats


def _with_gaps(samples: Floats, offsets: Floats) -> Floats:
    """As `_statistics`, of series with samples missing: mostly they have one a second, or none."""
    gaps = _gaps(np.isnan(samples).tobytes(), offsets.tobytes())
    stats = gaps.times.copy()
    if not len(gaps.there):
        return stats
    x, start = samples.take(gaps.places), gaps.start
    found = np.empty((len(ROWS), len(start)))
    found[:SUM_TX] = stats[:SUM_TX, gaps.there]
    np.add.reduceat(gaps.offsets * x, start, out=found[SUM_TX])
    mean = np.add.reduceat(x, start, out=found[MEAN])
    mean /= found[N]
    step = np.empty_like(x)
    np.subtract(x[1:], x[:-1], out=step[1:])
    step[start] = 0
    np.add.reduceat(np.abs(step, out=step), start, out=found[ROUGH])
    gap = x - mean.take(gaps.owner)
    gap *= gap
    np.add.reduceat(gap, start, out=found[M2])
    np.minimum.reduceat(x, start, out=found[MIN])
    np.maximum.reduceat(x, start, out=found[MAX])
    found[FIRST], found[LAST] = x.take(start), x.take(gaps.end)
    if len(gaps.there) == stats.shape[1]:
        return found
    stats[:, gaps.there] = found
    return stats


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Which samples of some series are there. Second after second it is the same ones.

    there       series that have any
    places      where those samples are, one series after the other
    offsets     when they were taken, s into the second
    owner       which of `there` they are of
    start, end  (there,): the first and the last of each
    times       statistics (len(ROWS), series) as far as that tells them
    """

    there: Places
    places: Places
    offsets: Floats
    owner: Places
    start: Places
    end: Places
    times: Floats


@lru_cache(maxsize=KNOWN)
def _gaps(missing: bytes, times: bytes) -> Gaps:
    """The gaps of samples (count, series) taken at float64 `times`, of which those are `missing`, a byte each."""
    offsets = np.frombuffer(times)
    absent = np.frombuffer(missing, np.bool_).reshape(len(offsets), -1)
    series, taken = np.nonzero(~absent.T)
    count = np.bincount(series, minlength=absent.shape[1])
    there = np.flatnonzero(count)
    n = count[there]
    start = np.cumsum(n) - n
    stats = np.zeros((len(ROWS), absent.shape[1]))
    stats[M2:] = np.nan
    stats[N] = count
    stats[SUM_T], stats[SUM_TT] = offsets @ ~absent, (offsets * offsets) @ ~absent
    owner = np.repeat(np.arange(len(there)), n)
    return Gaps(there, taken * absent.shape[1] + series, offsets[taken], owner, start, start + n - 1, stats)


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


def merge_values(earlier: Floats, later: Floats, shift: float) -> Floats:
    """As `merge`, of values (len(ROWS), series) of the same series.

    Mean and sum of squared differences merge as in Chan, Golub and LeVeque, Updating formulae and a pairwise
    algorithm for computing sample variances (1979).
    """
    merged = np.empty_like(earlier)
    np.add(earlier[ADDED], later[ADDED], out=merged[ADDED])
    moved = shift * later[N]
    merged[SUM_TX] += moved * later[MEAN]
    merged[SUM_TT] += shift * (2 * later[SUM_T] + moved)
    merged[SUM_T] += moved
    delta = later[MEAN] - earlier[MEAN]
    share = later[N] / np.maximum(merged[N], 1)
    np.add(earlier[MEAN], delta * share, out=merged[MEAN])
    merged[M2] += delta * delta * earlier[N] * share
    merged[ROUGH] += np.abs(later[FIRST] - earlier[LAST])
    np.fmin(earlier[MIN], later[MIN], out=merged[MIN])
    np.fmax(earlier[MAX], later[MAX], out=merged[MAX])
    merged[FIRST], merged[LAST] = earlier[FIRST], later[LAST]
    if isnan(np.add.reduce(merged[MEAN])):  # a part lacks some
        only_a = (later[N] == 0) & (earlier[N] > 0)
        merged[:, only_a] = earlier[:, only_a]
        only_b = earlier[N] == 0
        after = later[:, only_b]
        moved = moved[only_b]
        after[SUM_TX] += np.where(moved > 0, moved * np.nan_to_num(after[MEAN]), 0.0)
        after[SUM_TT] += shift * (2 * after[SUM_T] + moved)
        after[SUM_T] += moved
        merged[:, only_b] = after
    return merged
