"""The principal components of standardised rows: how the metrics of a host usually move together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]

VARIANCE_KEPT: Final = 0.95
ROWS_A_COMPONENT: Final = 4
SMALLEST: Final = 0.05
"""Variance that a component has at least: rows that hardly vary must not make every rounding error strange."""


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """The components that hold VARIANCE_KEPT of the variance, at most one for ROWS_A_COMPONENT rows.

    center  float32 (features,), mean of the rows
    axes    float32 (components, features), orthonormal as far as float16 goes, which holds them in a record
    scales  float32 (components,), standard deviations along them
    """

    center: Singles
    axes: Singles
    scales: Singles

    @classmethod
    def fit(cls, rows: Singles, components: int | None = None) -> Self:
        """Of rows (n, features), n >= 8, by the eigenvectors of the smaller of their two moment matrices; of so many
        components, if it is said how many, and the rows have them.
        """
        count, width = rows.shape
        center = rows.mean(axis=0, dtype=np.float64)
        gap = rows - center
        if width <= count:
            variance, vectors = np.linalg.eigh(gap.T @ gap / (count - 1))
            axes = vectors.T
        else:
            variance, vectors = np.linalg.eigh(gap @ gap.T / (count - 1))
            axes = vectors.T @ gap / np.sqrt(np.maximum(variance, 1e-12) * (count - 1))[:, None]
        variance, axes = np.maximum(variance[::-1], 0.0), axes[::-1]
        total = max(float(variance.sum()), 1e-9)
        if components is None:
            enough = int(np.searchsorted(np.cumsum(variance) / total, VARIANCE_KEPT)) + 1
            components = min(enough, count // ROWS_A_COMPONENT)
        kept = max(1, min(components, int((variance > 1e-6 * total).sum())))
        return cls(
            center=center.astype(np.float32),
            axes=np.ascontiguousarray(axes[:kept], dtype=np.float16).astype(np.float32),
            scales=np.sqrt(np.maximum(variance[:kept], SMALLEST)).astype(np.float32),
        )

    def split(self, rows: Singles) -> tuple[Singles, Singles]:
        """Places of rows (n, features) along the axes, (n, components), and what is left of them, (n, features)."""
        gap = rows - self.center
        along = np.asarray(gap @ self.axes.T, dtype=np.float32)
        return along, np.asarray(gap - along @ self.axes, dtype=np.float32)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Everything learnt."""
        return {
            "subspace.center": self.center,
            "subspace.axes": self.axes.astype(np.float16),
            "subspace.scales": self.scales,
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The subspace that `arrays` came from. Raises KeyError or ValueError for others."""
        center, axes, scales = (arrays[f"subspace.{name}"] for name in ("center", "axes", "scales"))
        if axes.shape != (*scales.shape, *center.shape):
            raise ValueError(f"axes {axes.shape} for {scales.shape} components of {center.shape} features")
        return cls(center.astype(np.float32), axes.astype(np.float32), scales.astype(np.float32))
