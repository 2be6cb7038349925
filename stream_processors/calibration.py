"""From raw scores to tail probabilities: how likely is such a score, or a higher one, on the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import Final

import numpy as np
from numpy.typing import NDArray

TAIL_FROM: Final = 0.9
SMALLEST: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Calibration:
    """Empirical up to the 90th percentile of the baseline's scores, exponential beyond, with the mean excess as its
    scale.

    The exponential tail is the generalised Pareto distribution of shape 0 (Pickands, Statistical inference using
    extreme order statistics, 1975).

    scores     sorted scores of the baseline that were not used to learn it, (n,)
    threshold  score above which a detector votes
    start      where the tail starts: the 90th percentile
    scale      mean excess over `start`
    """

    scores: NDArray[np.float64]
    threshold: float
    start: float
    scale: float

    @classmethod
    def fit(cls, scores: NDArray[np.float64], chance: float, resolution: float) -> Calibration:
        """From held-out scores (n,), n >= 10, in any order; `chance` of an ordinary score is above the threshold.

        resolution  smallest scale of the tail: on a host that was idle while it was learnt the scores hardly differ,
                    and the least deviation must not look like a miracle
        """
        ordered = np.sort(scores)
        start = float(np.quantile(ordered, TAIL_FROM))
        excess = ordered[ordered > start] - start
        scale = max(float(excess.mean()) if len(excess) else 0.0, resolution)
        # Few scores say little about a high percentile, so it is read off the fitted tail, not off the largest of them.
        beyond = start + scale * np.log((1 - TAIL_FROM) / chance)
        threshold = beyond if chance < 1 - TAIL_FROM else np.quantile(ordered, 1 - chance)
        return cls(ordered, float(threshold), start, scale)

    def tail_probability(self, score: float) -> float:
        """Chance of `score` or more, from SMALLEST to 1."""
        if score > self.start:
            return max((1 - TAIL_FROM) * exp(-(score - self.start) / self.scale), SMALLEST)
        above = len(self.scores) - int(np.searchsorted(self.scores, score, side="left"))
        return (above + 0.5) / (len(self.scores) + 1)
