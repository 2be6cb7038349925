"""From raw scores to tail probabilities: how likely is such a score, or a higher one, on the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_processors.compiled import compiled

Floats = NDArray[np.float64]

SMALLEST: Final = 1e-12
EXCESSES: Final = 1.5
MOST_IN_TAIL: Final = 0.15
"""The tail holds EXCESSES times the square root of the number of scores, and at most this share of them."""
USUAL_SHAPE: Final = 0.1
WORTH: Final = 30.0
"""What is known of tails before any score is seen counts as much as so many excesses with a tail of USUAL_SHAPE."""
SHAPES: Final = (0.0, 0.5)
SAME: Final = 1 / log(10)
"""Scale of the tail of -log10 of a tail probability."""
FAR: Final = 1e-6
"""A tail probability from which on detectors are taken to say the same: how they go together was seen in a hundred
windows, and is not believed for a million.
"""


@compiled("float64(float64[::1], float64[::1], float64)")
def tail_probability(scores: Floats, law: Floats, score: float) -> float:
    """Chance of `score` or more, from SMALLEST to 1, by a calibration with these sorted `scores` and this `law`."""
    start, share, scale, shape, far = law
    if score > start:
        excess = (score - start) / scale
        if shape == 0:
            near = np.log(share / FAR)
            tail = np.exp(-min(excess, near) - max(excess - near, 0.0) * scale / far)
        else:
            tail = (1 + shape * excess) ** (-1 / shape)
        return float(max(share * tail, SMALLEST))
    below = np.searchsorted(scores, score)
    return float(max(share, (len(scores) - below + 0.5) / (len(scores) + 1)))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Empirical for ordinary scores, generalised Pareto for the highest ones (peaks over threshold: Pickands,
    Statistical inference using extreme order statistics, 1975; for streams: Siffer et al., Anomaly detection in streams
    with extreme value theory, KDD 2017).

    scores     sorted scores of the baseline that were not used to learn it, (n,)
    threshold  score above which a detector votes
    start      where the tail starts
    share      share of the scores that are in the tail
    scale      of the tail, in the unit of the scores
    shape      of the tail: 0 is exponential, higher is heavier
    far        scale of an exponential tail beyond FAR
    """

    scores: Floats
    threshold: float
    start: float
    share: float
    scale: float
    shape: float
    far: float

    @classmethod
    def fit(cls, scores: NDArray[Any], chance: float, resolution: float) -> Calibration:
        """From held-out scores (n,), n >= 10, in any order; `chance` of an ordinary score is above the threshold.

        resolution  smallest scale of the tail: on a host that was idle while it was learnt the scores hardly differ,
                    and the least deviation must not look like a miracle
        """
        ordered, start, share = _split(scores)
        shape, scale = tail_of(ordered[ordered > start] - start)
        scale = max(scale, resolution)
        return cls._of(ordered, chance, start=start, share=share, scale=scale, shape=shape, far=scale)

    @classmethod
    def fit_means(cls, means: NDArray[Any], chance: float, weight: float) -> Calibration:
        """From held-out weighted means (n,) of -log10 of tail probabilities, of which the weightiest has this `weight`.

        Their tail needs no shape: -log10 of a tail probability has an exponential tail, by what a tail probability is.
        So has the mean: with a scale of 1 / ln 10 where all always say the same, and `weight` of it where they
        have nothing in common. The scale that is found is kept between those, and is the former beyond FAR.
        """
        ordered, start, share = _split(means)
        excesses = ordered[ordered > start] - start
        found = float(excesses.mean()) if len(excesses) else 0.0
        scale = min(max(found, SAME * weight), SAME)
        return cls._of(ordered, chance, start=start, share=share, scale=scale, shape=0.0, far=SAME)

    @classmethod
    def _of(
        cls, ordered: Floats, chance: float, *, start: float, share: float, scale: float, shape: float, far: float
    ) -> Calibration:
        # Few scores say little about a high percentile, so it is read off the tail, not off the largest of them.
        threshold = _at(ordered, 1 - chance) if chance >= share else start + scale * _quantile(chance / share, shape)
        return cls(ordered, threshold, start, share, scale, shape, far)

    @property
    def law(self) -> Floats:
        """Start, share, scale, shape of the tail, and its scale from FAR on, (5,)."""
        return np.array([self.start, self.share, self.scale, self.shape, self.far])

    def tail_probabilities(self, scores: Floats) -> Floats:
        """Chances of these `scores` (n,) or more, from SMALLEST to 1."""
        law = self.law
        return np.array([tail_probability(self.scores, law, score) for score in scores], np.float64)


def tail_of(excesses: Floats) -> tuple[float, float]:
    """Shape and scale of the generalised Pareto distribution of `excesses` (m,), sorted, above 0.

    By probability-weighted moments (Hosking and Wallis, Parameter and quantile estimation for the generalized Pareto
    distribution, 1987). A dozen excesses say little about a shape, so it is drawn to USUAL_SHAPE as if WORTH excesses
    had it (after Martins and Stedinger, Generalized maximum-likelihood estimators, 2000) and kept within SHAPES; the
    scale is then the one that gives the mean.
    """
    count = len(excesses)
    if count == 0:
        return USUAL_SHAPE, 0.0
    mean = float(excesses.mean())
    weighted = float((excesses * (1 - (np.arange(1, count + 1) - 0.35) / count)).mean())
    found = 2 - mean / (mean - 2 * weighted) if mean > 2 * weighted else USUAL_SHAPE
    shape = (count * found + WORTH * USUAL_SHAPE) / (count + WORTH)
    shape = min(max(shape, SHAPES[0]), SHAPES[1])
    return shape, mean * (1 - shape)


def _split(scores: NDArray[Any]) -> tuple[Floats, float, float]:
    """Sorted scores, where their tail starts, and the share of them that is in it."""
    ordered = np.sort(scores.astype(np.float64))
    share = min(MOST_IN_TAIL, EXCESSES / sqrt(len(ordered)))
    return ordered, _at(ordered, 1 - share), share


def _at(ordered: Floats, share: float) -> float:
    """Quantile of sorted scores, the same as np.quantile, which takes most of the time in which a model is restored."""
    place = share * (len(ordered) - 1)
    below = int(place)
    part = place - below
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def _quantile(chance: float, shape: float) -> float:
    """Excess, in scales, that is exceeded with this chance."""
    return float(-np.log(chance)) if shape == 0 else float((chance**-shape - 1) / shape)
