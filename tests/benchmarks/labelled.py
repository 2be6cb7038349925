"""How well anomalies of labelled server data are found: our detectors, the paper's vote, the fused severity, and three
detectors of PyOD.

    python -m tests.benchmarks.labelled DIR [--json] [--series NAME...]

DIR holds *.npz files with train (T, D), test (T', D), label (T',) and perhaps interpretation ([start, end, [dimensions
from 1]]). All methods get the same features of the samples (tests/benchmarks/samples.py), standardised by the
product's robust location and scale, learn from the train part alone, and have the same settings for all series. Each
flags above its own 99th percentile on what it has learnt; the vote where two of three do so; the fused severity from
2 on, which is one ordinary sample in a hundred as well. No point adjustment.

auc_pr, vus_pr  areas under precision-recall curves, see tests/benchmarks/curves.py
hit_at_5        in the strangest sample of an event, the true ones among the five metrics that contribute most, as a
                share of the true ones or of five if there are more; mean over the events whose metrics are known
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.settings import PipelineSettings
from stream_processors.detectors import VOTERS
from stream_processors.ensemble import Ensemble
from stream_processors.scaling import location_and_scale, standardise
from tests.benchmarks.curves import Found, average_precision, vus_pr
from tests.benchmarks.samples import Columns, Labelled, features

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Figures = dict[str, float | None]

ROWS: Final = 8192
"""Samples to learn from at most, evenly spread."""
FLOOR: Final = 0.01
"""Smallest scale of a metric's features, as a share of its range in what is learnt."""
PRESENT: Final = 0.8
SEVERE: Final = 2.0
TOP: Final = 5
OURS: Final[Mapping[str, str]] = {
    "z": "zscore",
    "mahalanobis": "mahalanobis",
    "iforest": "iforest",
    "residual": "residual",
}
PYOD: Final = ("knn", "copod", "loda")
MEASURES: Final = ("auc_pr", "vus_pr", "event_recall", "event_precision", "delay", "flagged_normal", "hit_at_5")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a method says of the samples of a series: scores (n,), higher is stranger; which it flags (n,); and how much
    each metric contributes (metrics,) to the strangeness of a sample, if it tells.
    """

    scores: Floats
    flags: NDArray[np.bool_]
    contributions: Callable[[int], Floats] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Standardised features of a series: those to learn from and those to judge, and which metric each is of."""

    learnt: Singles
    judged: Singles
    metric_of: NDArray[np.intp]
    metrics: int

    @classmethod
    def of(cls, series: Labelled) -> Prepared:
        """Robust location and scale as in a baseline. Raises ValueError if no metric is there.

        Nothing is pruned: five features of a metric are few, and each looks at another stretch of time.
        """
        metrics = series.train.shape[1]
        train = features(series.train)
        train = train[np.linspace(0, len(train) - 1, min(ROWS, len(train))).astype(np.intp)]
        test, columns = features(series.test), Columns.of(metrics)
        there = np.flatnonzero((~np.isnan(train)).mean(axis=0) >= PRESENT)
        if not len(there):
            raise ValueError(f"{series.name}: no metric is there in {PRESENT:.0%} of the samples")
        floors = _floors(series.train)[columns.metric_of[there]]
        center, scale = location_and_scale(train[:, there], floors)
        learnt = standardise(train[:, there], center, scale)
        judged = standardise(test[:, there], center, scale)
        return cls(learnt, judged, columns.metric_of[there], metrics)

    def by_metric(self, contributions: Floats) -> Floats:
        """Contributions (metrics,) of metrics from those of features."""
        return np.asarray(np.bincount(self.metric_of, contributions, minlength=self.metrics), dtype=np.float64)


def ours(prepared: Prepared) -> Mapping[str, Outcome]:
    """Outcome of each detector alone, of the vote and of the fused severity."""
    settings = PipelineSettings()
    ensemble = Ensemble.learn(prepared.learnt, 1 - settings.threshold_percentile / 100, settings.seed)
    judgement = ensemble.judge(prepared.judged)
    outcomes: dict[str, Outcome] = {}
    for name, detector in OURS.items():
        fitted, threshold = ensemble.detectors[detector], ensemble.calibrations[detector].threshold
        scores = judgement.scores[detector]
        outcomes[name] = Outcome(scores, scores > threshold, _contributions(prepared, fitted.contributions))
    votes = np.sum([judgement.scores[each] > ensemble.calibrations[each].threshold for each in VOTERS], axis=0)
    # Two of three are beyond any level that the second strangest is beyond.
    second = np.sort([-np.log10(judgement.tails[each]) for each in VOTERS], axis=0)[-2]
    severity = -np.log10(judgement.fused)
    together = _contributions(prepared, ensemble.contributions)
    outcomes["vote"] = Outcome(second, votes >= 2, together)
    outcomes["fused"] = Outcome(severity, severity >= SEVERE, together)
    return outcomes


def pyod(prepared: Prepared, name: str, seed: int) -> Outcome:
    """Outcome of a detector of PyOD with its default settings but for the contamination, which is that of ours."""
    contamination = 1 - PipelineSettings().threshold_percentile / 100
    np.random.seed(seed)  # LODA draws from the global generator
    kind: Any = getattr(import_module(f"pyod.models.{name}"), name.upper())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind(contamination=contamination).fit(prepared.learnt)
        scores = np.nan_to_num(np.asarray(model.decision_function(prepared.judged), dtype=np.float64))
    return Outcome(scores, scores > float(model.threshold_))


def figures(series: Labelled, outcome: Outcome) -> Figures:
    """MEASURES of an outcome."""
    found = Found.of(series.label, outcome.flags)
    return {
        "auc_pr": average_precision(series.label, outcome.scores),
        "vus_pr": vus_pr(series.label, outcome.scores),
        **asdict(found),
        "hit_at_5": _hits(series, outcome),
    }


def measure(series: Labelled) -> dict[str, Figures]:
    """Figures by method."""
    prepared = Prepared.of(series)
    outcomes = dict(ours(prepared))
    for name in PYOD:
        outcomes[f"pyod-{name}"] = pyod(prepared, name, PipelineSettings().seed)
    return {name: figures(series, outcome) for name, outcome in outcomes.items()}


def means(by_series: Mapping[str, Mapping[str, Figures]]) -> dict[str, dict[str, Figures]]:
    """Mean over the series of each group, which is what their names begin with, of what is known."""
    groups: dict[str, list[Mapping[str, Figures]]] = {}
    for name, methods in by_series.items():
        groups.setdefault(name.partition("-")[0], []).append(methods)
    return {
        group: {
            method: {key: _mean(each[method][key] for each in members) for key in MEASURES} for method in members[0]
        }
        for group, members in groups.items()
    }


def table(figures_by: Mapping[str, Mapping[str, Figures]]) -> Iterable[str]:
    """Lines of a table for people."""
    for name, methods in figures_by.items():
        yield f"\n{name:<18}" + "".join(f"{key:>16}" for key in MEASURES)
        for method, values in methods.items():
            cells = ("-" if values[key] is None else f"{values[key]:.4f}" for key in MEASURES)
            yield f"  {method:<16}" + "".join(f"{cell:>16}" for cell in cells)


def main() -> int:
    """Print the figures; exit status 1 if a file could not be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--series", nargs="+", metavar="NAME", help="only these, such as smd-1-2")
    args = parser.parse_args()
    paths = sorted(args.directory.glob("*.npz"))
    if args.series:
        paths = [path for path in paths if path.stem in args.series]
    if not paths:
        parser.error(f"no such .npz file in {args.directory}")
    by_series: dict[str, dict[str, Figures]] = {}
    failed = False
    for path in paths:
        began = time.monotonic()
        try:
            by_series[path.stem] = measure(Labelled.read(path))
        except (KeyError, OSError, ValueError) as error:
            print(f"{path}: {type(error).__name__}: {error}", file=sys.stderr)
            failed = True
            continue
        print(f"{path.stem}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    mean = means(by_series)
    if args.json:
        print(json.dumps({**by_series, "mean": mean}))
    else:
        print("\n".join(table({**by_series, **{f"mean of {group}": methods for group, methods in mean.items()}})))
    return 1 if failed else 0


def _floors(train: Floats) -> Floats:
    """Smallest scale (metrics,). What never moved in what is learnt has the range of a metric like any other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a metric without any value is left out later
        ranges = np.nan_to_num(np.nanmax(train, axis=0) - np.nanmin(train, axis=0))
    moving = ranges[ranges > 0]
    return FLOOR * np.where(ranges > 0, ranges, np.median(moving) if len(moving) else 1.0)


def _contributions(prepared: Prepared, of_row: Callable[[Singles], Floats]) -> Callable[[int], Floats]:
    return lambda sample: prepared.by_metric(of_row(prepared.judged[sample]))


def _hits(series: Labelled, outcome: Outcome) -> float | None:
    """See hit_at_5 above."""
    shares: list[float] = []
    for start, end, about in series.events:
        if outcome.contributions is None or not about:
            continue
        strangest = start + int(outcome.scores[start:end].argmax())
        first = np.argsort(-outcome.contributions(strangest), kind="stable")[:TOP].tolist()
        shares.append(len(about.intersection(first)) / min(TOP, len(about)))
    return fmean(shares) if shares else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
