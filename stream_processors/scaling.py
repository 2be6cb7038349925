"""Robust location and scale: what makes features of every unit comparable."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]

USUAL: Final = 4.0
"""The strangest of a metric's features deviates this much on an ordinary window; only what is beyond counts."""
CLIP: Final = 30.0
"""Standardised values are cut here: beyond, a metric is as strange as can be, and one of them must not drown the
others.
"""


def location_and_scale(matrix: NDArray[Any], floors: NDArray[Any], *, tails: bool = True) -> tuple[Singles, Singles]:
    """Of the columns of `matrix` (n, features), NaN where absent: the median, and the largest of: normal-consistent
    median absolute deviation, with `tails` 5-95 % range of a normal, the floor, 0.1 % of the median.
    """
    values = matrix.astype(np.float64)
    center, low, high = _quantiles(values, (0.5, 0.05, 0.95) if tails else (0.5, 0.5, 0.5))
    spread = 1.4826 * _quantiles(np.abs(values - center), (0.5,))[0]
    scale = np.maximum.reduce([spread, (high - low) / 3.29, floors, 1e-3 * np.abs(center)])
    return center.astype(np.float32), scale.astype(np.float32)


def standardise(matrix: NDArray[Any], center: Singles, scale: Singles) -> Singles:
    """(matrix - center) / scale, cut at CLIP; what is absent counts as expected."""
    standard = np.nan_to_num((matrix - center) / scale, nan=0.0)
    return np.asarray(np.clip(standard, -CLIP, CLIP), dtype=np.float32)


def _quantiles(values: Floats, at: tuple[float, ...]) -> Floats:
    """Quantiles of each column over what is there, (len(at), columns). Columns with gaps are few and take long."""
    found = np.asarray(np.quantile(values, at, axis=0), dtype=np.float64)
    gaps = np.isnan(values).any(axis=0)
    if gaps.any():
        found[:, gaps] = np.nanquantile(values[:, gaps], at, axis=0)
    return found
