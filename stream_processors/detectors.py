"""The detectors of the ensemble. Each learns from standardised rows and scores one: higher is stranger.

A detector is a frozen set of plain arrays (`fit` makes it, `arrays`/`restore` carry it through the models topic), so
that a model is data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from stream_processors.forest import FlatForest, fit_forest

Singles = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]

TREES: Final = 50
VARIANCE_KEPT: Final = 0.9
SMALLEST_RESIDUAL: Final = 0.01
CLIP: Final = 30.0
"""Standardised values are cut here: beyond, a metric is as strange as can be, and one of them must not drown the
others.
"""


class Detector(Protocol):
    """What the ensemble asks of a detector."""

    @classmethod
    def fit(cls, rows: Singles, seed: int) -> Self:
        """Learn from `rows` (n, features): standardised, cut at CLIP, without NaN, n >= 2."""

    def score(self, row: Singles) -> float:
        """Strangeness of one such row (features,)."""

    def arrays(self) -> Arrays:
        """Everything learnt, as arrays."""

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """The detector that `arrays` came from."""


@dataclass(frozen=True, slots=True)
class ZScore:
    """Mean absolute z over the features of a window."""

    @classmethod
    def fit(cls, rows: Singles, seed: int) -> Self:
        """Nothing to learn: rows are standardised."""
        return cls()

    def score(self, row: Singles) -> float:
        """Mean of |z|."""
        return float(np.abs(row).mean())

    def arrays(self) -> Arrays:
        """None."""
        return {}

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """As `fit`."""
        return cls()


@dataclass(frozen=True, slots=True)
class Mahalanobis:
    """Mahalanobis distance under a principal component model of the rows.

    Within the subspace of the components that hold VARIANCE_KEPT of the variance (at most a quarter as many as rows)
    it is
    the distance in standard deviations; what lies outside the subspace counts by the residual variance, as in
    probabilistic PCA (Tipping and Bishop, Probabilistic principal component analysis, 1999). Without the second part a
    metric that leaves its usual company would hardly be seen.

    center    (features,) mean of the rows
    axes      (components, features), orthonormal
    scales    (components,) standard deviations along them
    residual  mean square distance of the rows from the subspace
    """

    center: Singles
    axes: Singles
    scales: Singles
    residual: float

    @classmethod
    def fit(cls, rows: Singles, seed: int) -> Self:
        """Principal components by singular value decomposition."""
        center = rows.mean(axis=0)
        _, singular, axes = np.linalg.svd((rows - center).astype(np.float64), full_matrices=False)
        variance = np.square(singular) / (len(rows) - 1)
        total = max(float(variance.sum()), 1e-9)
        kept = int(np.searchsorted(np.cumsum(variance) / total, VARIANCE_KEPT)) + 1
        kept = max(1, min(kept, len(rows) // 4, int((variance > 1e-6 * total).sum())))
        # Rows that hardly vary outside the subspace must not make every rounding error strange.
        residual = max(float(variance[kept:].sum()), SMALLEST_RESIDUAL * rows.shape[1])
        scales = np.sqrt(np.maximum(variance[:kept], SMALLEST_RESIDUAL))
        return cls(center, axes[:kept].astype(np.float32), scales.astype(np.float32), residual)

    def score(self, row: Singles) -> float:
        """Root of the mean of both parts, each 1 on average on the rows."""
        gap = row - self.center
        along = self.axes @ gap
        outside = max(float(gap @ gap - along @ along), 0.0)
        within = along / self.scales
        return float(np.sqrt((within @ within / len(within) + outside / self.residual) / 2))

    def arrays(self) -> Arrays:
        """Center, axes, scales and residual."""
        return {
            "center": self.center,
            "axes": self.axes,
            "scales": self.scales,
            "residual": np.array([self.residual]),
        }

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """From center, axes, scales and residual."""
        return cls(arrays["center"], arrays["axes"], arrays["scales"], float(arrays["residual"][0]))


@dataclass(frozen=True, slots=True)
class IsolationForest:
    """Isolation Forest of TREES trees, evaluated as flat arrays."""

    forest: FlatForest

    @classmethod
    def fit(cls, rows: Singles, seed: int) -> Self:
        """Fit by scikit-learn."""
        return cls(fit_forest(rows, TREES, seed))

    def score(self, row: Singles) -> float:
        """The paper's anomaly score, in (0, 1)."""
        return self.forest.score(row)

    def arrays(self) -> Arrays:
        """The flat arrays."""
        forest = self.forest
        return {
            "feature": forest.feature,
            "value": forest.value,
            "right": forest.right,
            "lengths": forest.lengths,
            "roots": forest.roots,
            "constants": np.array([forest.depth, forest.norm]),
        }

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """From the flat arrays."""
        depth, norm = arrays["constants"].tolist()
        forest = FlatForest(
            feature=arrays["feature"],
            value=arrays["value"],
            right=arrays["right"],
            lengths=arrays["lengths"],
            roots=arrays["roots"],
            depth=int(depth),
            norm=norm,
        )
        return cls(forest)


DETECTORS: Final[Mapping[str, type[Detector]]] = {
    "zscore": ZScore,
    "mahalanobis": Mahalanobis,
    "iforest": IsolationForest,
}
