"""The ensemble of one group of features: its detectors, their calibrations, and the two ways in which they are heard
together.

The paper lets ZScore, Mahalanobis and IsolationForest vote, each above its 99th percentile on the baseline. Beyond it
the tail probabilities of all detectors are combined as Fisher does (Statistical methods for research workers, 1925):
by the mean of their -log10, weighted (Good, On the weighted combination of significance tests, 1955). Fisher's
chi-square law does not hold for detectors that look at the same window, so the mean is calibrated on the baseline like
any score; its tail probability is that of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from stream_processors.calibration import Calibration, tail_probability
from stream_processors.compiled import compiled
from stream_processors.detectors import (
    DETECTORS,
    RANKS,
    WEIGHTS,
    Detector,
    Floats,
    IsolationForest,
    Lesson,
    Residual,
    Singles,
    ranks,
)
from stream_processors.scaling import CLIP

IN_ORDER: Final = tuple(WEIGHTS[name] for name in DETECTORS)
"""WEIGHTS as `_judge` takes them."""


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
    """Fitted detectors and their calibrations, by name, and the calibration of their weighted mean -log10 tail
    probability.

    thresholds  above which detectors vote, in the order of DETECTORS
    plain       everything learnt, as `_judge` takes it
    """

    detectors: Mapping[str, Detector]
    calibrations: Mapping[str, Calibration]
    fusion: Calibration
    thresholds: tuple[float, ...] = field(init=False, repr=False)
    plain: tuple[Any, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        every = [*(self.calibrations[name] for name in DETECTORS), self.fusion]
        scores = np.stack([each.scores for each in every])
        views = [replace(each, scores=view) for each, view in zip(every, scores, strict=True)]
        object.__setattr__(self, "calibrations", dict(zip(DETECTORS, views, strict=False)))
        object.__setattr__(self, "fusion", views[-1])
        residual, iforest = self.detectors["residual"], self.detectors["iforest"]
        assert isinstance(residual, Residual)
        assert isinstance(iforest, IsolationForest)
        space, forest = residual.space, iforest.forest
        if (forest.feature >= len(ranks(len(space.center)))).any():
            raise ValueError(f"the forest asks for more than {len(space.center)} features tell")
        laws = np.stack([each.law for each in every])
        learnt = (
            *(space.center, space.axes, space.scales, residual.rest),
            *(forest.feature, forest.value, forest.step, forest.length, forest.lengths, forest.roots),
            *(forest.depth, forest.norm, scores, laws),
        )
        object.__setattr__(self, "thresholds", tuple(self.calibrations[name].threshold for name in DETECTORS))
        object.__setattr__(self, "plain", learnt)

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.plain[0])

    @classmethod
    def learn(cls, rows: Singles, chance: float, seed: int) -> Self:
        """From standardised rows as in Lesson; each detector votes against `chance` of ordinary windows."""
        lesson = Lesson.of(rows, seed)
        learnt = {name: _kept(*kind.learn(lesson)) for name, kind in DETECTORS.items()}
        calibrations = {
            name: Calibration.fit(scores, chance, DETECTORS[name].RESOLUTION) for name, (_, scores) in learnt.items()
        }
        fused = _fuse({name: calibrations[name].tail_probabilities(scores) for name, (_, scores) in learnt.items()})
        return cls(
            {name: detector for name, (detector, _) in learnt.items()},
            calibrations,
            Calibration.fit_means(fused.astype(np.float32), chance, max(IN_ORDER)),
        )

    def judge(self, rows: Singles) -> Judgement:
        """Judge standardised rows (n, features)."""
        scores = {name: detector.scores(rows) for name, detector in self.detectors.items()}
        tails = {name: self.calibrations[name].tail_probabilities(each) for name, each in scores.items()}
        return Judgement(scores, tails, self.fusion.tail_probabilities(_fuse(tails)))

    def judge_window(self, deviations: Singles, kept: NDArray[np.int16]) -> tuple[list[float], list[float]]:
        """What `judge` says of one row, only much sooner: the scores of DETECTORS, and their tail probabilities with
        that of all together at the end.

        The row is `kept`, the positions (features,) that the ensemble looks at, of the `deviations` of a window, cut at
        CLIP; what is absent counts as expected.
        """
        scores, tails = np.empty(len(DETECTORS)), np.empty(len(DETECTORS) + 1)
        _judge(deviations, kept, scores, tails, *self.plain)
        return scores.tolist(), tails.tolist()

    def contributions(self, row: Singles) -> Floats:
        """Share of each feature (features,) in the strangeness of a row: the mean over detectors of its share in each,
        weighted by WEIGHTS and -log10 of the tail probability. They sum to 1, or are all 0.
        """
        judgement = self.judge(row[None])
        total = np.zeros(len(row))
        for name, detector in self.detectors.items():
            parts = detector.contributions(row)
            whole = float(parts.sum())
            if whole > 0:
                total -= WEIGHTS[name] * parts / whole * np.log10(judgement.tails[name][0])
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
            Calibration.fit_means(arrays["scores.fused"], chance, max(IN_ORDER)),
        )


@compiled(
    "void(float32[::1], int16[::1], float64[::1], float64[::1],"
    "float32[::1], float32[:,::1], float32[::1], float32[::1],"
    "uint8[::1], float32[::1], uint8[::1], uint16[::1], float64[::1], uint16[::1], int64, float64,"
    "float64[:,::1], float64[:,::1])"
)
def _judge(  # noqa: PLR0917 - compiled code takes what it is given by position
    deviations: Singles,
    kept: NDArray[np.int16],
    scores: Floats,
    tails: Floats,
    center: Singles,
    axes: Singles,
    scales: Singles,
    rest: Singles,
    feature: NDArray[np.uint8],
    value: Singles,
    step: NDArray[np.uint8],
    length: NDArray[np.uint16],
    lengths: Floats,
    roots: NDArray[np.uint16],
    depth: int,
    norm: float,
    calibrated: Floats,
    laws: Floats,
) -> None:
    """Put what the detectors say into `scores` and `tails`, see judge_window. From `center` to `scales` they are of
    Subspace, `rest` is of Residual, from `feature` to `norm` of FlatForest; `calibrated` and `laws` are of the
    calibrations.
    """
    width = len(kept)
    gap, left, size = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    total = outside = inside = 0.0
    for place in range(width):
        deviation = deviations[kept[place]]
        if np.isnan(deviation):
            deviation = np.float32(0)
        deviation = max(min(deviation, np.float32(CLIP)), np.float32(-CLIP))
        size[place] = abs(deviation)
        total += size[place]
        gap[place] = deviation - center[place]
        left[place] = gap[place]
    for component in range(len(scales)):
        along = np.float32(0)
        for place in range(width):
            along += axes[component, place] * gap[place]
        for place in range(width):
            left[place] -= along * axes[component, place]
        inside += (np.float64(along) / scales[component]) ** 2
    size.sort()
    path = 0.0
    for root in roots:
        node = np.int64(root)
        for _ in range(depth):
            right = size[width - 1 - RANKS[feature[node]]] > value[node]
            node += step[node] + right
        path += lengths[length[node]]
    scores[0] = total / width
    scores[1] = np.sqrt(inside / len(scales))
    scores[2] = np.exp2(-path / len(roots) / norm)
    for place in range(width):
        outside += np.float64(left[place]) * left[place] / rest[place]
    scores[3] = np.sqrt(outside / width)
    strangeness = 0.0
    count = len(scores)
    for detector in range(count):
        tails[detector] = tail_probability(calibrated[detector], laws[detector], scores[detector])
        strangeness -= IN_ORDER[detector] * np.log10(tails[detector])
    tails[count] = tail_probability(calibrated[count], laws[count], strangeness)


def _kept(detector: Detector, scores: Floats) -> tuple[Detector, Floats]:
    """Scores as a record holds them, so that a model that is restored is the same."""
    return detector, scores.astype(np.float32).astype(np.float64)


def _fuse(tails: Mapping[str, Floats]) -> Floats:
    """Mean of -log10 of the detectors' tail probabilities, each (n,), by WEIGHTS."""
    return np.asarray(-np.sum([WEIGHTS[name] * np.log10(each) for name, each in tails.items()], axis=0))
