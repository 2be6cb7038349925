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
    center, low, high = quantiles(values, (0.5, 0.05, 0.95) if tails else (0.5, 0.5, 0.5))
    spread = 1.4826 * quantiles(np.abs(values - center), (0.5,))[0]
    scale = np.maximum.reduce([spread, (high - low) / 3.29, floors, 1e-3 * np.abs(center)])
    return center.astype(np.float32), scale.astype(np.float32)


def standardise(matrix: NDArray[Any], center: Singles, scale: Singles) -> Singles:
    """(matrix - center) / scale, cut at CLIP; what is absent counts as expected."""
    standard = np.nan_to_num((matrix - center) / scale, nan=0.0)
    return np.asarray(np.clip(standard, -CLIP, CLIP), dtype=np.float32)


def quantiles(values: Floats, at: tuple[float, ...]) -> Floats:
    """Quantiles of each column of `values` (n, columns) over what is there, (len(at), columns); NaN where nothing is.

    Between two values they are interpolated as np.nanquantile does it, to the last bit. That takes six times as long,
    and eighty times where values are absent.
    """
    ordered = np.sort(values.T, axis=1)  # what is absent comes last
    last = np.maximum(np.count_nonzero(~np.isnan(ordered), axis=1) - 1, 0)
    columns = np.arange(len(ordered))
    found = np.empty((len(at), len(ordered)))
    for row, share in enumerate(at):
        place = share * last
        below = place.astype(np.intp)
        low, high = ordered[columns, below], ordered[columns, np.minimum(below + 1, last)]
        part, step = place - below, high - low
        found[row] = np.where(part < 0.5, low + step * part, high - step * (1 - part))
    return found
