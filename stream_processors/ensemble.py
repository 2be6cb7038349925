"""The ensemble of one group of features: its detectors, their calibrations, and the two ways in which they are heard
together.

The paper lets ZScore, Mahalanobis and IsolationForest vote, each above its 99th percentile on the baseline. Beyond it
the tail probabilities of all detectors are combined as Fisher does (Statistical methods for research workers, 1925):
by the mean of their -log10. Fisher's chi-square law does not hold for detectors that look at the same window, so the
mean is calibrated on the baseline like any score; its tail probability is that of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log10
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stream_processors.calibration import Calibration
from stream_processors.detectors import DETECTORS, Detector, Floats, Lesson, Singles

Told = Mapping[str, tuple[float, float]]


class Judgement(NamedTuple):
    """What the ensemble says of rows.

    scores  by detector, (n,)
    tails   by detector, tail probabilities (n,)
    fused   tail probabilities (n,) of all detectors together
    """

    scores: Mapping[str, Floats]
    tails: Mapping[str, Floats]
    fused: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """Fitted detectors and their calibrations, by name, and the calibration of their mean -log10 tail probability."""

    detectors: Mapping[str, Detector]
    calibrations: Mapping[str, Calibration]
    fusion: Calibration

    @classmethod
    def learn(cls, rows: Singles, chance: float, seed: int) -> Self:
        """From standardised rows as in Lesson; each detector votes against `chance` of ordinary windows."""
        lesson = Lesson.of(rows, seed)
        learnt = {name: _kept(*kind.learn(lesson)) for name, kind in DETECTORS.items()}
        calibrations = {
            name: Calibration.fit(scores, chance, DETECTORS[name].RESOLUTION) for name, (_, scores) in learnt.items()
        }
        fused = _fuse([calibrations[name].tail_probabilities(scores) for name, (_, scores) in learnt.items()])
        return cls(
            {name: detector for name, (detector, _) in learnt.items()},
            calibrations,
            Calibration.fit_means(fused.astype(np.float32), chance, len(learnt)),
        )

    def judge(self, rows: Singles) -> Judgement:
        """Judge standardised rows (n, features)."""
        scores = {name: detector.scores(rows) for name, detector in self.detectors.items()}
        tails = {name: self.calibrations[name].tail_probabilities(each) for name, each in scores.items()}
        return Judgement(scores, tails, self.fusion.tail_probabilities(_fuse(list(tails.values()))))

    def tails(self, scores: Mapping[str, float]) -> tuple[Told, float]:
        """Of one row with these scores: score and tail probability by detector, and that of all together."""
        told = {name: (score, self.calibrations[name].tail_probability(score)) for name, score in scores.items()}
        strangeness = -sum(log10(tail) for _, tail in told.values()) / len(told)
        return told, self.fusion.tail_probability(strangeness)

    def contributions(self, row: Singles) -> Floats:
        """Share of each feature (features,) in the strangeness of a row: the mean over detectors of its share in each,
        weighted by -log10 of the tail probability. They sum to 1, or are all 0.
        """
        judgement = self.judge(row[None])
        total = np.zeros(len(row))
        for name, detector in self.detectors.items():
            parts = detector.contributions(row)
            whole = float(parts.sum())
            if whole > 0:
                total -= parts / whole * np.log10(judgement.tails[name][0])
        return total / max(float(total.sum()), 1e-300)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Everything learnt."""
        found: dict[str, NDArray[Any]] = {"scores.fused": self.fusion.scores.astype(np.float32)}
        for name, detector in self.detectors.items():
            found |= detector.arrays()
            found[f"scores.{name}"] = self.calibrations[name].scores.astype(np.float32)
        return found

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]], chance: float) -> Self:
        """The ensemble that `arrays` came from. Raises KeyError or ValueError for others."""

        return cls(
            {name: kind.restore(arrays) for name, kind in DETECTORS.items()},
            {
                name: Calibration.fit(arrays[f"scores.{name}"], chance, kind.RESOLUTION)
                for name, kind in DETECTORS.items()
            },
            Calibration.fit_means(arrays["scores.fused"], chance, len(DETECTORS)),
        )


def _kept(detector: Detector, scores: Floats) -> tuple[Detector, Floats]:
    """Scores as a record holds them, so that a model that is restored is the same."""
    return detector, scores.astype(np.float32).astype(np.float64)


def _fuse(tails: list[Floats]) -> Floats:
    """Mean of -log10 of tail probabilities, each (n,)."""
    return np.asarray(-np.mean(np.log10(tails), axis=0))
