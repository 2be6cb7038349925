"""Which subsystem an anomalous window points to, and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from schemas.records import Evidence
from stream_processors.baseline import Baseline
from stream_processors.features import Feature, feature_table
from stream_processors.seconds import Singles, layout
from stream_processors.windows import Window

USUAL: Final = 4.0
"""The strangest of a metric's features deviates this much on an ordinary window; only what is beyond counts."""
STRONGEST: Final = 8
"""A subsystem is judged by this many of its strangest metrics, so that having many metrics is no advantage."""
EVIDENCE_ROWS: Final = 10
PLAIN: Final = np.array([1.0, 0.8, 0.5, 0.5, 0.3, 0.8])
"""How readily a kind of FEATURES speaks for its metric: a level says at once what is wrong, a trend hardly does."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Shares of the subsystems that the window holds; they sum to 1. `subsystem` has the largest."""

    subsystem: str
    shares: Mapping[str, float]


def stands_out(deviations: Singles) -> bool:
    """Whether any metric is beyond USUAL. Without one there is nothing to show an operator, however many small
    deviations add up.
    """
    return bool((np.abs(np.nan_to_num(deviations, nan=0.0)) > USUAL).any())


def attribute(deviations: Singles, strangeness: Mapping[str, float]) -> Attribution:
    """Attribution of a window with these `deviations` (len(feature_table()),) whose subsystems are so strange.

    A metric weighs ln(1 + excess of its strangest feature over USUAL); a subsystem its strangeness, as its ensemble
    sees it, times the sum of its STRONGEST heaviest metrics. So a subsystem counts by what is new in it, not by what
    has been a little off for long.
    """
    table = feature_table()
    weights = np.log1p(np.maximum(_by_metric(deviations) - USUAL, 0.0))
    totals: dict[str, float] = {}
    for subsystem, strange in strangeness.items():
        mine = weights[[metric.subsystem == subsystem for metric in table.metrics]]
        totals[subsystem] = strange * float(np.sort(mine)[-STRONGEST:].sum())
    whole = sum(totals.values())
    if whole <= 0:
        totals, whole = dict(strangeness), sum(strangeness.values())
    shares = {name: total / whole for name, total in totals.items()}
    return Attribution(max(shares, key=lambda name: shares[name]), shares)


def evidence(features: Singles, deviations: Singles, baseline: Baseline, window: Window) -> tuple[Evidence, ...]:
    """Strangest feature of each of the EVIDENCE_ROWS strangest metrics, strongest first."""
    table = feature_table()
    size = np.abs(np.nan_to_num(deviations, nan=0.0))
    by_metric = _by_metric(deviations)
    rows: list[Evidence] = []
    for metric in np.argsort(-by_metric, kind="stable")[:EVIDENCE_ROWS]:
        if by_metric[metric] <= USUAL:
            break
        positions = np.flatnonzero(table.metric_of == metric)
        position = int(positions[(size[positions] * PLAIN[table.preference[positions]]).argmax()])
        feature = table.features[position]
        instance, seen, usual = _instance(feature, baseline, window)
        rows.append(
            Evidence(
                metric=feature.metric.name,
                subsystem=feature.subsystem,
                instance=instance,
                feature=feature.words,
                unit=feature.metric.unit,
                observed=float(features[position]),
                expected=float(baseline.center[position]),
                deviation=float(deviations[position]),
                instance_observed=seen,
                instance_expected=usual,
            )
        )
    return tuple(rows)


def explain(host: str, attribution: Attribution, rows: tuple[Evidence, ...]) -> str:
    """What happened, in one sentence an operator can read aloud."""
    share = attribution.shares[attribution.subsystem]
    lead = [row for row in rows if row.subsystem == attribution.subsystem][:3] or list(rows[:3])
    told = "; ".join(_told(row) for row in lead)
    told = told or "many small deviations, none of them leading"
    return f"{host}: {attribution.subsystem} ({share:.0%} of the deviation): {told}"


def _told(row: Evidence) -> str:
    if row.instance_observed is not None and row.instance_expected is not None:
        where = f"{row.metric} on {row.instance}"
        return f"{where} at {row.instance_observed:.4g} {row.unit}, usually {row.instance_expected:.4g}"
    what = row.metric if row.feature == "level" else f"{row.feature} of {row.metric}"
    return f"{what} at {row.observed:.4g} {row.unit}, usually {row.expected:.4g}"


def _by_metric(deviations: Singles) -> Singles:
    """Largest absolute deviation over the features of each metric, (metrics,)."""
    table = feature_table()
    largest = np.zeros(len(table.metrics), dtype=np.float32)
    np.maximum.at(largest, table.metric_of, np.abs(np.nan_to_num(deviations, nan=0.0)))
    return largest


def _instance(feature: Feature, baseline: Baseline, window: Window) -> tuple[str, float | None, float | None]:
    """Instance whose level deviates most from its own baseline: name, its level now, its usual level."""
    dimension = feature.metric.dimension
    usual = baseline.levels.get((feature.subsystem, dimension))
    names = next((names for *place, names in window.places() if place == [feature.subsystem, dimension]), None)
    if usual is None or names != usual.names:
        return "", None, None
    group = next(group for group in layout(feature.subsystem).groups if group.dimension == dimension)
    row = group.metrics.index(feature.metric)
    observed, expected = window.levels(feature.subsystem, dimension)[row], usual.center[row]
    difference = np.abs(np.nan_to_num(observed - expected, nan=0.0))
    column = int(difference.argmax())
    if np.isnan(observed[column]) or np.isnan(expected[column]):
        return "", None, None
    return usual.names[column], float(observed[column]), float(expected[column])
