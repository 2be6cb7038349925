"""Which features the detectors see: of features of one metric that say the same, one is enough."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_processors.features import FEATURES

Singles = NDArray[np.float32]


def prune(standard: Singles, metric_of: NDArray[Any], preference: NDArray[Any], limit: float) -> NDArray[np.intp]:
    """Columns of the standardised rows (n, features) to keep: of the features of one metric that correlate with |r| >=
    `limit` only the most preferred; of a metric that never moves only level and maximum.

    Metrics are not pruned against each other: a fault often shows as one metric that leaves the company it kept, and
    the one that was dropped may be the one. What metrics have in common is left to the principal components.

    metric_of   (features,), which metric a column is of
    preference  (features,), ranks of the kinds of features, from 0 as in FEATURES
    """
    spread = standard.std(axis=0)
    constant = spread < 1e-6
    unit = (standard - standard.mean(axis=0)) / np.where(constant, 1.0, spread)
    kept = constant & (preference <= FEATURES.index("maximum"))
    order = np.lexsort((preference, metric_of))
    groups = np.split(order, np.flatnonzero(np.diff(metric_of[order])) + 1)
    for group in groups:
        moving = group[~constant[group]]
        related = np.abs(unit[:, moving].T @ unit[:, moving]) >= limit * len(standard)
        alive = np.ones(len(moving), dtype=bool)
        for i in range(len(moving)):
            if alive[i]:
                kept[moving[i]] = True
                alive &= ~related[i]
    return np.flatnonzero(kept)
