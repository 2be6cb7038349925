"""How a series is judged in the course of time: from what came before alone, and without its labels.

The product goes on learning while it judges, and its pace is kept (`learning.py`): drift is asked of its newest
DRIFT_ROWS calm rows, every DRIFT_EVERY rows. A model has `rows` of them, so one stands for as many samples as the train
part has for each; a test part has fewer than a refit waits for. Which metrics speak of a fault, and are not followed in
the product, is not known of these series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log10
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_processors.learning import DRIFT, DRIFT_EVERY, DRIFT_ROWS
from stream_processors.scaling import standardise

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Flags = NDArray[np.bool_]

SHARE: Final = 0.005
"""Share of the samples that may be flagged in the long run."""
STEP: Final = 0.1
"""By so many powers of ten the level rises with a sample that is flagged."""


def followed(before: Singles, deviations: Singles, pace: int, anomalous: Callable[[Singles], Flags]) -> Singles:
    """Standardised rows (n, features) of `deviations`, less what had drifted when each came.

    before      deviations (m, features) of the train part, in scales of what is learnt, NaN where absent
    deviations  the same of the test part, (n, features)
    pace        samples for which a row of the product stands
    anomalous   says which of some standardised rows are
    """
    newest, every, parts = before[-DRIFT_ROWS * pace :], DRIFT_EVERY * pace, []
    scale = np.ones(deviations.shape[1], np.float32)
    for start in range(0, len(deviations), every):
        part = deviations[start : start + every]
        moved = np.median(newest, axis=0)
        drift = np.where(np.abs(moved) > DRIFT, moved, np.float32(0))
        parts.append(standardise(part, drift, scale))
        newest = np.concatenate([newest, part[~anomalous(parts[-1])]])[-DRIFT_ROWS * pace :]
    return np.concatenate(parts)


@dataclass(slots=True)
class Level:
    """A level that is moved so that SHARE of the samples is above it in the long run (adaptive conformal inference:
    Gibbs and Candès, Adaptive conformal inference under distribution shift, NeurIPS 2021; moving the level itself, by a
    tenth of its unit: Angelopoulos, Candès and Tibshirani, Conformal PID control, NeurIPS 2023).

    An anomaly that lasts must not raise it out of reach, and is no mistake of the level. So of a run of flagged samples
    only the first `counted` count, up to where the product opens an episode.

    value  -log10 of a tail probability
    run    flagged samples in a row
    """

    counted: int
    value: float = -log10(SHARE)
    run: int = 0

    def flags(self, strangeness: float) -> bool:
        """Whether a sample is flagged that is so strange, -log10 of its tail probability."""
        flagged = strangeness > self.value
        self.run = self.run + 1 if flagged else 0
        if self.run <= self.counted:
            self.value += STEP * (flagged - SHARE)
        return flagged


def flagged(tails: NDArray[Any], counted: int) -> Flags:
    """Which samples are flagged that have these tail probabilities (n,), one after the other."""
    level = Level(counted)
    return np.array([level.flags(each) for each in (-np.log10(tails)).tolist()], dtype=bool)
