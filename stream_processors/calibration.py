"""From raw scores to tail probabilities: how likely is such a score, or a higher one, on the baseline."""

from __future__ import annotations

from dataclasses import dataclass
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
    threshold  their percentile above which a detector votes
    """

    scores: NDArray[np.float64]
    threshold: float

    @classmethod
    def fit(cls, scores: NDArray[np.float64], percentile: float) -> Calibration:
        """From held-out scores (n,), n >= 10."""
        ordered = np.sort(scores)
        # With fewer than 100 / (100 - percentile) scores the percentile is read off the fitted tail, not off the
        # largest score.
        calibration = cls(ordered, float(ordered[-1]))
        start, scale = calibration._tail
        chance = 1 - percentile / 100
        threshold = (
            start + scale * np.log((1 - TAIL_FROM) / chance)
            if chance < 1 - TAIL_FROM
            else np.percentile(ordered, percentile)
        )
        return cls(ordered, float(threshold))

    @property
    def _tail(self) -> tuple[float, float]:
        start = float(np.quantile(self.scores, TAIL_FROM))
        excess = self.scores[self.scores > start] - start
        scale = float(excess.mean()) if len(excess) else 0.0
        return start, max(scale, 0.01 * abs(start), 1e-9)

    def tail_probability(self, score: float) -> float:
        """Chance of `score` or more, from SMALLEST to 1."""
        start, scale = self._tail
        if score > start:
            return float(max((1 - TAIL_FROM) * np.exp(-(score - start) / scale), SMALLEST))
        above = len(self.scores) - np.searchsorted(self.scores, score, side="left")
        return float((above + 0.5) / (len(self.scores) + 1))
