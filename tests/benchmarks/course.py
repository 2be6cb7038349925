"""How a series is judged in the course of time: from what came before alone, and without its labels.

The product goes on learning while it judges, and its pace is kept (`learning.py`): drift is asked of its newest
DRIFT_ROWS calm rows, every DRIFT_EVERY rows. A model has `rows` of them, so one stands for as many samples as the train
part has for each; a test part has fewer than a refit waits for. Which metrics speak of a fault, and are not followed in
the product, is not known of these series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log10, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_processors.learning import DRIFT_EVERY, DRIFT_ROWS, drifted
from stream_processors.scaling import standardise

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Flags = NDArray[np.bool_]

SHARE: Final = 0.0055
"""Share of the samples that may be flagged and count in the long run. Some of them are of anomalies, so that less of
the others is flagged.
"""
STEP: Final = 0.25
"""By so many powers of ten the level rises with a sample that is flagged, at first."""
STEADY: Final = 2000
"""After so many samples the step falls as the inverse root of how many there were."""
RUN_MIN: Final = 5
"""Of a run of flagged samples those of so many minutes count, and so many minutes of others do not end it."""


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
        parts.append(standardise(part, drifted(np.median(newest, axis=0))[0], scale))
        newest = np.concatenate([newest, part[~anomalous(parts[-1])]])[-DRIFT_ROWS * pace :]
    return np.concatenate(parts)


@dataclass(slots=True)
class Level:
    """A level that is moved so that SHARE of the samples is above it in the long run (adaptive conformal inference:
    Gibbs and Candès, Adaptive conformal inference under distribution shift, NeurIPS 2021; moving the level itself:
    Angelopoulos, Candès and Tibshirani, Conformal PID control, NeurIPS 2023; by steps that become smaller, since it is
    soon about right: Angelopoulos, Barber and Bates, Online conformal prediction with decaying step sizes, ICML 2024).

    An anomaly that lasts must not raise it out of reach, and is no mistake of the level. So of a run of flagged samples
    only the first `counted` count, and up to `pause` others do not end it, as in the product a few calm windows do not
    end an episode.

    value  -log10 of a tail probability
    seen   samples so far
    run    flagged samples in the run
    calm   others since the last of them
    """

    counted: int
    pause: int
    value: float = -log10(SHARE)
    seen: int = 0
    run: int = 0
    calm: int = 0

    def flags(self, strangeness: float, itself: bool = True) -> bool:
        """Whether a sample is flagged that is so strange, -log10 of its tail probability; not if it is only what came
        before that is, rather than the sample `itself`.
        """
        flagged = itself and strangeness > self.value
        self.seen += 1
        self.calm = 0 if flagged else self.calm + 1
        if flagged or self.calm > self.pause:
            self.run = self.run + 1 if flagged else 0
        if not flagged or self.run <= self.counted:
            self.value += STEP * min(1.0, sqrt(STEADY / self.seen)) * (flagged - SHARE)
        return flagged


def flagged(tails: NDArray[Any], themselves: Flags, minutes: float) -> Flags:
    """Which samples are flagged that have these tail probabilities (n,) and of which it is said whether they are
    strange `themselves` (n,), one after the other, so many minutes apart.
    """
    level = Level(ceil(RUN_MIN / minutes), int(RUN_MIN / minutes))
    each = zip((-np.log10(tails)).tolist(), themselves.tolist(), strict=True)
    return np.array([level.flags(*sample) for sample in each], dtype=bool)
