"""Moves: what each metric does in a window, as an operator would say it. It rises or falls, its instances drift apart,
it swings; on one instance or on many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream_processors.baseline import Baseline
from stream_processors.features import feature_table
from stream_processors.seconds import Singles, layout
from stream_processors.windows import Window

Flags = NDArray[np.bool_]

PEAK_SHARE: Final = 0.5
"""A single sample that is strange says half as much as a level that is."""
COMPANION: Final = 0.5
"""Instances that change at least this much of what the strongest does move with it."""
STILL: Final = 2.0
"""Instances of a metric whose levels are nowhere stranger are not looked at."""
FEW: Final = 0.25
MANY: Final = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """By position of the metric in `feature_table().metrics`, (metrics,) each.

    rise, fall, apart, swing  robust standard deviations by which it does so, not below 0; NaN where it is absent
    level, usual              mean over instances in the window, and on the baseline
    high, low                 level of the highest and of the lowest instance; NaN without instances or while still
    few, many                 whether at most a quarter of the instances, or one, move with the strongest; whether more
                              than half do, or the only one. Both where that is unknown
    strongest                 name of the instance that is furthest from what it usually is, "" where that is unknown
    seen, used                level of that instance in the window, and on the baseline
    """

    rise: Singles
    fall: Singles
    apart: Singles
    swing: Singles
    level: Singles
    usual: Singles
    high: Singles
    low: Singles
    few: Flags
    many: Flags
    strongest: tuple[str, ...]
    seen: Singles
    used: Singles


@cache
def metric_index() -> Mapping[str, int]:
    """Position of each scored metric in `feature_table().metrics`."""
    return {metric.name: index for index, metric in enumerate(feature_table().metrics)}


@cache
def _positions() -> Mapping[tuple[str, str], NDArray[np.intp]]:
    """Positions (metrics,) of the features of a kind of a summary; one past the end where a metric has none."""
    table = feature_table()
    found: dict[tuple[str, str], NDArray[np.intp]] = {}
    for position, feature in enumerate(table.features):
        key = (feature.kind, feature.summary)
        if key not in found:
            found[key] = np.full(len(table.metrics), len(table), np.intp)
        found[key][table.metric_of[position]] = position
    return found


@cache
def _rows_of(subsystem: str, dimension: str) -> NDArray[np.intp]:
    """Positions of the metrics of a dimension."""
    group = next(group for group in layout(subsystem).groups if group.dimension == dimension)
    return np.array([metric_index()[metric.name] for metric in group.metrics])


def moves(features: Singles, deviations: Singles, baseline: Baseline, window: Window) -> Moves:
    """What the metrics do in `window`, whose features and deviations are (len(feature_table()),).

    An instance is compared with its own past, and counts as no stranger than the levels of its metric over all
    instances, whose deviations the baseline knows better.
    """
    table = feature_table()
    positions = _positions()
    wide = np.append(deviations, np.float32(np.nan))

    def of(kind: str, summary: str) -> Singles:
        return wide[positions[kind, summary]]

    mean, highest, apart = of("level", "mean"), of("level", "maximum"), of("level", "spread")
    peak = PEAK_SHARE * np.fmax(of("maximum", "mean"), of("maximum", "maximum"))
    rise = np.fmax(np.fmax(mean, highest), peak)
    fall = np.fmax(np.fmax(-mean, -highest), -PEAK_SHARE * of("minimum", "mean"))
    most = np.fmax(np.fmax(np.abs(mean), np.abs(highest)), np.abs(apart))
    swing = np.fmax(of("variability", "mean"), of("roughness", "mean"))
    levels = positions["level", "mean"]
    count = len(table.metrics)
    high, low, seen, used = (np.full(count, np.nan, np.float32) for _ in range(4))
    few, many = np.ones(count, bool), np.ones(count, bool)
    strongest = [""] * count
    for subsystem, dimension, names in window.places():
        before = baseline.levels.get((subsystem, dimension))
        if before is None or before.names != names:
            continue
        rows = _rows_of(subsystem, dimension)
        # What does not move over all instances does not move on one.
        there = most[rows] > STILL
        if not there.any():
            continue
        observed = window.levels(subsystem, dimension)
        there &= ~np.isnan(observed + before.center).all(axis=1)
        rows, observed = rows[there], observed[there]
        center, scale = before.center[there], before.scale[there]
        change = observed - center
        floors = table.floors[levels[rows]].astype(np.float32)[:, None]
        z = np.nan_to_num(change / np.fmax(np.fmax(scale, floors), 1e-3 * np.abs(center)), nan=0.0)
        rise[rows] = np.fmax(rise[rows], np.fmin(z.max(axis=1), most[rows]))
        fall[rows] = np.fmax(fall[rows], np.fmin(-z.min(axis=1), most[rows]))
        high[rows], low[rows] = np.fmax.reduce(observed, axis=1), np.fmin.reduce(observed, axis=1)
        columns = np.abs(z).argmax(axis=1)
        each = np.arange(len(rows))
        furthest = change[each, columns]
        with np.errstate(invalid="ignore", divide="ignore"):
            moved = (change / furthest[:, None] >= COMPANION).sum(axis=1)
        few[rows] = moved <= max(1, FEW * len(names))
        many[rows] = (moved > MANY * len(names)) | (len(names) == 1)
        seen[rows], used[rows] = observed[each, columns], center[each, columns]
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            strongest[row] = names[column]
    return Moves(
        rise=np.maximum(rise, 0),
        fall=np.maximum(fall, 0),
        apart=np.maximum(apart, 0),
        swing=np.maximum(swing, 0),
        level=np.append(features, np.float32(np.nan))[levels],
        usual=np.append(baseline.center, np.float32(np.nan))[levels],
        high=high,
        low=low,
        few=few,
        many=many,
        strongest=tuple(strongest),
        seen=seen,
        used=used,
    )
