"""The detectors of the ensemble. Each learns from standardised rows and scores one: higher is stranger.

A detector is a frozen set of plain arrays (`learn` makes it, `arrays`/`restore` carry it through the models topic),
so that a model is data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from stream_processors.forest import FlatForest, fit_forest

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]

TREES: Final = 25
VARIANCE_KEPT: Final = 0.9
FOLDS: Final = 4
SMALLEST_RESIDUAL: Final = 0.05
CLIP: Final = 30.0
"""Standardised values are cut here: beyond, a metric is as strange as can be, and one of them must not drown the
others.
"""


class Detector(Protocol):
    """What the ensemble asks of a detector. RESOLUTION is the smallest difference of its scores that means anything."""

    RESOLUTION: ClassVar[float]

    @classmethod
    def learn(cls, rows: Singles, seed: int) -> tuple[Self, Floats]:
        """The detector that `rows` teach, and their held-out scores (n,): each by what has not learnt from the row,
        since scores of learnt rows are too good. Rows (n, features) are standardised, cut at CLIP, without NaN; n >=
        16.
        """

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

    RESOLUTION: ClassVar[float] = 0.02

    @classmethod
    def learn(cls, rows: Singles, seed: int) -> tuple[Self, Floats]:
        """Nothing to learn: rows are standardised."""
        detector = cls()
        return detector, np.array([detector.score(row) for row in rows])

    def score(self, row: Singles) -> float:
        """Mean of |z|."""
        return float(np.abs(row).mean())

    def arrays(self) -> Arrays:
        """None."""
        return {}

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """There is only one."""
        return cls()


@dataclass(frozen=True, slots=True)
class Mahalanobis:
    """Mahalanobis distance under a principal component model of the rows.

    Within the subspace of the components that hold VARIANCE_KEPT of the variance (at most a quarter as many as rows)
    it is the distance in standard deviations; what lies outside the subspace counts by the residual variance, as in
    probabilistic PCA (Tipping and Bishop, Probabilistic principal component analysis, 1999). Without the second part
    a metric that leaves its usual company would hardly be seen.

    center    (features,) mean of the rows
    axes      (components, features), orthonormal
    scales    (components,) standard deviations along them
    residual  mean square distance of the rows from the subspace
    """

    RESOLUTION: ClassVar[float] = 0.2

    center: Singles
    axes: Singles
    scales: Singles
    residual: float

    @classmethod
    def learn(cls, rows: Singles, seed: int) -> tuple[Self, Floats]:
        """Held out are FOLDS blocks of neighbours, since windows overlap."""
        scores: list[float] = []
        for block in np.array_split(np.arange(len(rows)), FOLDS):
            detector = cls.fit(np.delete(rows, block, axis=0))
            scores += [detector.score(row) for row in rows[block]]
        return cls.fit(rows), np.array(scores)

    @classmethod
    def fit(cls, rows: Singles) -> Self:
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

    RESOLUTION: ClassVar[float] = 0.01

    forest: FlatForest

    @classmethod
    def learn(cls, rows: Singles, seed: int) -> tuple[Self, Floats]:
        """Fitted by scikit-learn; held out are the rows that a tree has not drawn."""
        forest, scores = fit_forest(rows, TREES, seed)
        return cls(forest), scores

    def score(self, row: Singles) -> float:
        """The paper's anomaly score, in (0, 1)."""
        return self.forest.score(row)

    def arrays(self) -> Arrays:
        """The flat arrays."""
        forest = self.forest
        return {
            "feature": forest.feature,
            "value": forest.value,
            "children": forest.children,
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
            children=arrays["children"],
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
