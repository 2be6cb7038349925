"""Plots of the metrics of the evidence: means of seconds, and single samples as far as these were kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from schemas.catalogue import catalogue
from schemas.units import humane
from sinks.warehouse.report import statements as sql
from sinks.warehouse.report.choice import Ask
from sinks.warehouse.report.content import Incident, Plot, Proof, Series, Span

MOST_SAMPLES: Final = 6000
"""Points of single samples in a plot, ten minutes of ten a second: more than can be told apart, less than a browser
minds. Of more there are means and extremes.
"""
PERIOD_MS: Final = 100
"""Samples lie so close, or less so."""


@dataclass(frozen=True, slots=True)
class _Point:
    """Over the instances, from `at` on, s: mean, extremes and spread, and the value of the one that matters."""

    at: float
    mean: float
    low: float
    high: float
    spread: float
    own: float = math.nan


def read_plots(ask: Ask, incident: Incident, span: Span, evidence: Sequence[Proof]) -> tuple[Plot, ...]:
    """A plot for each metric of `evidence` of which anything is stored, strongest first. Raises StoreError."""
    instances: dict[str, str] = {}
    for proof in evidence:
        if not proof.happened:
            instances.setdefault(proof.metric, proof.instance)
    if not instances:
        return ()
    wanted = {**sql.bounds(incident.host, span), "metrics": list(instances)}
    means = _points(ask(sql.TELEMETRY, wanted).rows)
    length_ms = 1000 * (span.end - span.begin)
    fine_ms = 1 if length_ms <= MOST_SAMPLES * PERIOD_MS else math.ceil(length_ms / MOST_SAMPLES)
    fine = {"id": incident.id, "instances": list(instances.values()), "fine": fine_ms}
    samples = _points(ask(sql.SAMPLES, {**wanted, **fine}).rows)
    plots: dict[tuple[str, bool], Plot] = {}
    for proof in evidence:
        # Where instances drift apart, their mean does not show it, and their spread does.
        apart = "spread" in proof.feature and proof.instance_observed is None
        if (proof.metric, apart) not in plots:
            near = samples.get(proof.metric, [])
            points = _completed(means.get(proof.metric, []), near, span)
            if points:
                plots[proof.metric, apart] = _plot(incident, proof, points, near, apart)
    return tuple(plots.values())


def _points(rows: Sequence[Sequence[Any]]) -> Mapping[str, list[_Point]]:
    found: dict[str, list[_Point]] = {}
    for metric, at, *values in rows:
        point = _Point(at / 1000, *values)
        if all(map(math.isfinite, (point.mean, point.low, point.high, point.spread))):
            found.setdefault(metric, []).append(point)
    return found


def _completed(means: Sequence[_Point], samples: Sequence[_Point], span: Span) -> list[_Point]:
    """`means`, and for steps that have none those of `samples`, which are kept for longer; in order of time."""
    steps: dict[int, list[_Point]] = {}
    for point in samples:
        steps.setdefault(_step(point, span), []).append(point)
    there = {_step(point, span) for point in means}
    return sorted(
        [*means, *(_summed(points) for step, points in steps.items() if step not in there)], key=lambda each: each.at
    )


def _step(point: _Point, span: Span) -> int:
    return int((point.at - span.begin) / span.step_s)


def _summed(points: Sequence[_Point]) -> _Point:
    return _Point(
        points[0].at,
        fmean(point.mean for point in points),
        min(point.low for point in points),
        max(point.high for point in points),
        fmean(point.spread for point in points),
    )


def _plot(incident: Incident, proof: Proof, points: Sequence[_Point], samples: Sequence[_Point], apart: bool) -> Plot:
    known = catalogue().get(proof.metric)
    factor, _ = humane(proof.unit if known is None else known.unit)
    series = _series(points, factor, apart)
    expected, usual = _expected(incident, proof, series, apart)
    dimension = known.dimension if known is not None else "instance"
    over = "spread over" if apart else "mean over"
    own = [] if apart or not proof.instance else [point for point in samples if math.isfinite(point.own)]
    return Plot(
        metric=proof.metric,
        subsystem=proof.subsystem,
        unit=proof.unit,
        what=f"{over} {dimension}s" if dimension != "host" else "mean",
        series=series,
        expected=expected,
        expected_words=usual,
        since=incident.start if proof.since is None else proof.since,
        seen=proof.instance_observed if proof.instance_observed is not None and not apart else math.nan,
        instance=proof.instance,
        samples=_series(samples, factor, apart) if samples else None,
        own=Series(tuple(point.at for point in own), tuple(factor * point.own for point in own)) if own else None,
    )


def _series(points: Sequence[_Point], factor: float, apart: bool) -> Series:
    return Series(
        at=tuple(point.at for point in points),
        line=tuple(factor * (point.spread if apart else point.mean) for point in points),
        low=() if apart else tuple(factor * point.low for point in points),
        high=() if apart else tuple(factor * point.high for point in points),
    )


def _expected(incident: Incident, proof: Proof, series: Series, apart: bool) -> tuple[float, str]:
    """What the line is to be compared with. A variability or trend is no level, so there the time before has to do."""
    same = proof.feature == "level" or proof.feature.startswith(f"level of the {'spread' if apart else 'mean'} ")
    if same and math.isfinite(proof.expected):
        return proof.expected, "usual level"
    if proof.instance_expected is not None and math.isfinite(proof.instance_expected):
        return proof.instance_expected, f"usual for {proof.instance}"
    before = sorted(value for when, value in zip(series.at, series.line, strict=True) if when < incident.start)
    return (before[len(before) // 2], "median before") if before else (math.nan, "")
