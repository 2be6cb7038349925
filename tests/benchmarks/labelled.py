"""How well anomalies of labelled server data are found: our detectors, the paper's vote, the fused severity, and three
detectors of PyOD.

    python -m tests.benchmarks.labelled DIR [--json] [--series NAME...]

DIR holds *.npz files with train (T, D), test (T', D), label (T',) and perhaps interpretation ([start, end, [dimensions
from 1]]). All methods get the same features of the samples (tests/benchmarks/samples.py), standardised by the
product's robust location and scale and less what has drifted, learn from the train part, and have the same settings for
all series. The test part is judged in order of time (tests/benchmarks/course.py). Each method's scores are made tail
probabilities by the product's calibration; it flags what is beyond a level that is moved so that some 0.5 % of the
samples are, and the vote where two of three are. As in the product a sample has to be strange itself, too, by the mean
|z| of its levels and steps: windows go on for some samples after what was strange about them. No point adjustment.

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
from stream_processors.calibration import Calibration
from stream_processors.detectors import VOTERS, ZScore
from stream_processors.ensemble import Ensemble
from stream_processors.host import ANOMALOUS_VOTES
from stream_processors.scaling import location_and_scale, standardise
from tests.benchmarks.course import flagged, followed
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
TOP: Final = 5
OURS: Final[Mapping[str, str]] = {
    "z": "zscore",
    "mahalanobis": "mahalanobis",
    "iforest": "iforest",
    "residual": "residual",
}
PYOD: Final = ("knn", "copod", "loda")
NO_RESOLUTION: Final = 1e-9
"""What differences of the scores of PyOD's detectors mean is not known; their tails need a scale above 0."""
ITSELF: Final = 1.5
"""A sample is strange itself when -log10 of the tail probability of its mean |z| is so large: one in thirty."""
ITS_LENGTH: Final = 2
"""Features of windows of at most so many samples are the sample's own: its level, and its step from the one before."""
MINUTES: Final[Mapping[str, float]] = {"asd": 5.0}
"""Between two samples of a series, by what its name begins with; others have a sample a minute."""
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
    """Standardised features of a series: those to learn from and those to judge, what our ensemble has learnt of the
    former, which of those to judge are strange themselves, which metric each feature is of, and the minutes between two
    samples.
    """

    learnt: Singles
    judged: Singles
    ensemble: Ensemble
    themselves: NDArray[np.bool_]
    metric_of: NDArray[np.intp]
    metrics: int
    minutes: float

    @classmethod
    def of(cls, series: Labelled) -> Prepared:
        """Robust location and scale as in a baseline, and drift as in a learner. Raises ValueError if no metric is
        there.

        Nothing is pruned: five features of a metric are few, and each looks at another stretch of time.
        """
        settings = PipelineSettings()
        metrics = series.train.shape[1]
        before = features(series.train)
        train = before[np.linspace(0, len(before) - 1, min(ROWS, len(before))).astype(np.intp)]
        there = np.flatnonzero((~np.isnan(train)).mean(axis=0) >= PRESENT)
        if not len(there):
            raise ValueError(f"{series.name}: no metric is there in {PRESENT:.0%} of the samples")
        columns = Columns.of(metrics)
        metric_of, own = columns.metric_of[there], columns.length[there] <= ITS_LENGTH
        center, scale = location_and_scale(train[:, there], _floors(series.train)[metric_of])
        learnt = standardise(train[:, there], center, scale)
        ensemble = Ensemble.learn(learnt, 1 - settings.threshold_percentile / 100, settings.seed)
        earlier, later = (
            np.asarray((each[:, there] - center) / scale, np.float32) for each in (before, features(series.test))
        )
        pace = max(1, len(before) // settings.rows)
        judged = followed(earlier, later, pace, lambda rows: _anomalous(ensemble, rows, settings))
        themselves = _themselves(learnt[:, own], judged[:, own])
        return cls(learnt, judged, ensemble, themselves, metric_of, metrics, MINUTES.get(_group(series.name), 1.0))

    def flagged(self, tails: Floats) -> NDArray[np.bool_]:
        """Which samples are flagged that have these tail probabilities (n,)."""
        return flagged(tails, self.themselves, self.minutes)

    def by_metric(self, contributions: Floats) -> Floats:
        """Contributions (metrics,) of metrics from those of features."""
        return np.asarray(np.bincount(self.metric_of, contributions, minlength=self.metrics), dtype=np.float64)


def ours(prepared: Prepared) -> Mapping[str, Outcome]:
    """Outcome of each detector alone, of the vote and of the fused severity."""
    ensemble = prepared.ensemble
    judgement = ensemble.judge(prepared.judged)
    outcomes: dict[str, Outcome] = {}
    for name, detector in OURS.items():
        alone = _contributions(prepared, ensemble.detectors[detector].contributions)
        outcomes[name] = Outcome(judgement.scores[detector], prepared.flagged(judgement.tails[detector]), alone)
    together = _contributions(prepared, ensemble.contributions)
    # Two of three are beyond any level that the second strangest is beyond.
    second = np.sort([judgement.tails[each] for each in VOTERS], axis=0)[1]
    for name, tails in (("vote", second), ("fused", judgement.fused)):
        outcomes[name] = Outcome(-np.log10(tails), prepared.flagged(tails), together)
    return outcomes


def pyod(prepared: Prepared, name: str) -> Outcome:
    """Outcome of a detector of PyOD with its default settings."""
    settings = PipelineSettings()
    np.random.seed(settings.seed)  # LODA draws from the global generator
    kind: Any = getattr(import_module(f"pyod.models.{name}"), name.upper())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = kind().fit(prepared.learnt)
        scores = np.nan_to_num(np.asarray(model.decision_function(prepared.judged), dtype=np.float64))
    chance = 1 - settings.threshold_percentile / 100
    calibration = Calibration.fit(np.nan_to_num(model.decision_scores_), chance, NO_RESOLUTION)
    return Outcome(scores, prepared.flagged(calibration.tail_probabilities(scores)))


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
        outcomes[f"pyod-{name}"] = pyod(prepared, name)
    return {name: figures(series, outcome) for name, outcome in outcomes.items()}


def means(by_series: Mapping[str, Mapping[str, Figures]]) -> dict[str, dict[str, Figures]]:
    """Mean over the series of each group, which is what their names begin with, of what is known."""
    groups: dict[str, list[Mapping[str, Figures]]] = {}
    for name, methods in by_series.items():
        groups.setdefault(_group(name), []).append(methods)
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


def _group(name: str) -> str:
    """What the name of a series begins with."""
    return name.partition("-")[0]


def _floors(train: Floats) -> Floats:
    """Smallest scale (metrics,). What never moved in what is learnt has the range of a metric like any other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a metric without any value is left out later
        ranges = np.nan_to_num(np.nanmax(train, axis=0) - np.nanmin(train, axis=0))
    moving = ranges[ranges > 0]
    return FLOOR * np.where(ranges > 0, ranges, np.median(moving) if len(moving) else 1.0)


def _themselves(learnt: Singles, judged: Singles) -> NDArray[np.bool_]:
    """Which of the samples `judged` are strange by these features (n, features), given those learnt."""
    deviations = [ZScore().scores(rows) for rows in (learnt, judged)]
    calibration = Calibration.fit(deviations[0], 10**-ITSELF, ZScore.RESOLUTION)
    return calibration.tail_probabilities(deviations[1]) <= 10**-ITSELF


def _anomalous(ensemble: Ensemble, rows: Singles, settings: PipelineSettings) -> NDArray[np.bool_]:
    """Which of standardised rows (n, features) the product does not learn from."""
    judgement = ensemble.judge(rows)
    votes = np.sum([judgement.scores[each] > ensemble.calibrations[each].threshold for each in VOTERS], axis=0)
    return np.asarray((votes >= ANOMALOUS_VOTES) | (-np.log10(judgement.fused) >= settings.open_severity))


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
