"""Which subsystem an anomalous window points to, the evidence for it, and the causes that would explain it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.catalogue import SUBSYSTEMS
from schemas.records import Evidence
from stream_processors.amounts import settled
from stream_processors.baseline import Baseline
from stream_processors.causes import causes, fits
from stream_processors.families import family
from stream_processors.features import by_metric, feature_table, minima
from stream_processors.looks import costs
from stream_processors.moves import Moves, metric_index, moves
from stream_processors.scaling import CLIP, USUAL
from stream_processors.seconds import Singles
from stream_processors.signs import Happened
from stream_processors.windows import Window

STRONGEST: Final = 8
"""A subsystem is judged by this many of its strangest metrics, so that having many metrics is no advantage."""
EVIDENCE_ROWS: Final = 12
CITED_ROWS: Final = 6
"""So many rows are kept for metrics that the cause cites, strange as others may be."""
LIKELY: Final = 2
"""Evidence is gathered for this many of the causes that fit a window best."""
LEADING: Final = 0.3
"""Detectors are asked for contributions in subsystems at least this strange, as a share of the strangest."""
PLAIN: Final = np.array([1.0, 0.8, 0.5, 0.5, 0.3, 0.8])
"""How readily a kind of FEATURES speaks for its metric: a level says at once what is wrong, a trend hardly does."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Shares of the subsystems that the window holds; they sum to 1. `subsystem` has the largest."""

    subsystem: str
    shares: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a strange window holds.

    strange  names of the metrics beyond USUAL
    rows     evidence, strongest first, without dates
    fits     how well causes fit, by name, of those that fit at all
    settled  whether it is only what is left of something that is over
    unclear  whether it may be the first seconds of a change of work, so that nothing is opened for it yet
    over     whether it was over before the newest second, so that it counts towards no episode
    """

    strange: tuple[str, ...] = ()
    rows: tuple[Evidence, ...] = ()
    fits: Mapping[str, float] = field(default_factory=dict)
    settled: bool = False
    unclear: bool = False
    over: bool = False


def stands_out(deviations: Singles) -> bool:
    """Whether any metric is beyond USUAL, and not only less than usual of what costs time, or a least that is less low.
    Without one there is nothing to show an operator, however many small deviations add up.
    """
    return bool(((deviations > USUAL) & ~minima() | (deviations < -USUAL) & ~costs()).any())


def only_of(deviations: Singles, subsystems: Collection[str]) -> Singles:
    """`deviations` (len(feature_table()),) with those of all but these subsystems absent."""
    part = np.full_like(deviations, np.nan)
    for name, place in feature_table().slices.items():
        if name in subsystems:
            part[place] = deviations[place]
    return part


def attribute(deviations: Singles, strangeness: Mapping[str, float]) -> Attribution:
    """Attribution of a window with these `deviations` (len(feature_table()),) whose subsystems are so strange.

    A metric weighs ln(1 + excess of its strangest feature over USUAL); a subsystem its strangeness, as its ensemble
    sees it, times the sum of its STRONGEST heaviest metrics. So a subsystem counts by what is new in it, not by what
    has been a little off for long.
    """
    weights = _weights(by_metric(deviations))
    totals = {name: strange * _strongest(weights[_of(name)]) for name, strange in strangeness.items()}
    whole = sum(totals.values())
    if whole <= 0:
        totals, whole = dict(strangeness), sum(strangeness.values())
    shares = {name: total / whole for name, total in totals.items()}
    return Attribution(max(shares, key=lambda name: shares[name]), shares)


def contributions(deviations: Singles, baseline: Baseline, strangeness: Mapping[str, float]) -> Singles:
    """Share of each metric (metrics,) in what the detectors find strange in a window with these `deviations`: of its
    features in the scores of its subsystem's ensemble, weighted by how strange the subsystem is. Sums to
    1, or is all 0.
    """
    table = feature_table()
    shares = np.zeros(len(table.metrics), dtype=np.float32)
    leading = LEADING * max(strangeness.values(), default=0.0)
    for name, block in baseline.blocks.items():
        if (strange := strangeness.get(name, 0.0)) > 0 and strange >= leading:
            row = np.clip(np.nan_to_num(deviations[block.kept], nan=0.0), -CLIP, CLIP)
            np.add.at(shares, table.metric_of[block.kept], strange * block.ensemble.contributions(row))
    return np.asarray(shares / max(float(shares.sum()), 1e-30), dtype=np.float32)


def examine(
    features: Singles,
    deviations: Singles,
    baseline: Baseline,
    window: Window,
    *,
    strangeness: Mapping[str, float],
    happened: Happened = frozenset(),
) -> Finding:
    """Finding of a strange window with these features and deviations (len(feature_table()),), whose subsystems are so
    strange; `happened` is what the host's events tell of.
    """
    table = feature_table()
    largest = by_metric(deviations)
    strange = tuple(table.metrics[index].name for index in np.flatnonzero(largest > USUAL).tolist())
    what = moves(features, deviations, baseline, window)
    fit = fits(what, happened)
    likely = sorted(fit, key=lambda name: -fit[name])[:LIKELY]
    index = metric_index()
    cited = [index[name] for cause in likely for name in causes()[cause].metrics]
    shares = contributions(deviations, baseline, strangeness)
    rows = _rows(_chosen(largest, cited), features, deviations, baseline, what=what, shares=shares)
    return Finding(strange, rows, fit, settled(deviations))


def merged(before: Iterable[Evidence], rows: Iterable[Evidence], cause: str | None) -> tuple[Evidence, ...]:
    """Evidence of an episode once a window adds `rows`: of each metric the row in which it was strangest, dated to
    when it first was; EVIDENCE_ROWS at most, strongest first.

    Kept are the strongest of every subsystem, what `cause` cites, and then the strongest of each family.
    """
    by_metric: dict[str, Evidence] = {row.metric: row for row in before}
    for row in rows:
        known = by_metric.get(row.metric)
        if known is None or abs(row.deviation) > abs(known.deviation):
            first = [each.since_ns for each in (row, known) if each is not None and each.since_ns is not None]
            by_metric[row.metric] = replace(row, since_ns=min(first, default=None))
    ranked = sorted(by_metric.values(), key=lambda row: (-abs(row.deviation), row.metric))
    heads = [next(iter(row for row in ranked if row.subsystem == name), None) for name in SUBSYSTEMS]
    cited = [by_metric[name] for name in causes()[cause].metrics if name in by_metric] if cause else []
    families: dict[str, Evidence] = {}
    for row in ranked:
        families.setdefault(family(row.metric), row)
    order = [*(head for head in heads if head is not None), *cited[:CITED_ROWS], *families.values(), *ranked]
    kept = {row.metric for row in list(dict.fromkeys(order))[:EVIDENCE_ROWS]}
    return tuple(row for row in ranked if row.metric in kept)


def _rows(
    chosen: Sequence[int], features: Singles, deviations: Singles, baseline: Baseline, *, what: Moves, shares: Singles
) -> tuple[Evidence, ...]:
    """Evidence of the metrics `chosen`: of each its strangest feature, and its strangest instance."""
    table = feature_table()
    size = np.abs(np.nan_to_num(deviations, nan=0.0))
    rows: list[Evidence] = []
    for metric in chosen:
        positions = _features_of(metric)
        position = int(positions[(size[positions] * PLAIN[table.preference[positions]]).argmax()])
        feature = table.features[position]
        instance = what.strongest[metric]
        seen, used = float(what.seen[metric]), float(what.used[metric])
        known = instance != "" and not np.isnan(seen + used)
        change = seen - used if known and seen != used else float(deviations[position])
        rows.append(
            Evidence(
                metric=feature.metric.name,
                subsystem=feature.subsystem,
                instance=instance if known else "",
                feature=feature.words,
                unit=feature.metric.unit,
                observed=float(features[position]),
                expected=float(baseline.center[position]),
                deviation=float(deviations[position]),
                instance_observed=seen if known else None,
                instance_expected=used if known else None,
                direction="up" if change > 0 else "down",
                contribution=float(shares[metric]),
            )
        )
    return tuple(rows)


def _chosen(by_metric: Singles, cited: Iterable[int]) -> list[int]:
    """Metrics to show, strangest first: beyond USUAL, of each family the strangest, and those that are `cited`."""
    ranked = [int(metric) for metric in np.argsort(-by_metric, kind="stable") if by_metric[metric] > USUAL]
    families = _families()
    first: dict[int, int] = {}
    for metric in ranked:
        first.setdefault(int(families[metric]), metric)
    wanted = {*list(first.values())[: 2 * EVIDENCE_ROWS], *cited}
    heads: dict[str, int] = {}
    for metric in ranked:
        heads.setdefault(feature_table().metrics[metric].subsystem, metric)
    wanted |= set(heads.values())
    return [metric for metric in ranked if metric in wanted]


def _weights(by_metric: Singles) -> Singles:
    return np.asarray(np.log1p(np.maximum(by_metric - USUAL, 0.0)), dtype=np.float32)


def _strongest(weights: Singles) -> float:
    return float(np.sort(weights)[-STRONGEST:].sum())


@cache
def _of(subsystem: str) -> NDArray[np.intp]:
    """Positions of the metrics of a subsystem."""
    return np.flatnonzero([metric.subsystem == subsystem for metric in feature_table().metrics])


@cache
def _features_of(metric: int) -> NDArray[np.intp]:
    """Positions of the features of a metric."""
    return np.flatnonzero(feature_table().metric_of == metric)


@cache
def _families() -> NDArray[np.intp]:
    """A number for the family of each metric."""
    names = [family(metric.name) for metric in feature_table().metrics]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names])
