"""Shapes: how far the metrics of a host move, (metrics,) float32. How alike two are, and how they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]


def likest(shape: Singles, others: Sequence[Singles], least: float) -> int | None:
    """Which of `others` has the largest cosine with `shape`, if that is at least so much."""
    alike = [_cosine(shape, other) for other in others]
    best = max(range(len(alike)), key=alike.__getitem__, default=None)
    return best if best is not None and alike[best] >= least else None


def packed(shape: Singles, values: str, places: str) -> dict[str, NDArray[Any]]:
    """What is not 0 of `shape`, and where that is, as arrays of these names."""
    there = np.flatnonzero(shape)
    return {values: shape[there], places: there.astype(np.int16)}


def unpacked(count: int, arrays: Mapping[str, NDArray[Any]], values: str, places: str) -> Singles:
    """The shape (count,) that `packed` told. Raises IndexError, KeyError or ValueError."""
    shape = np.zeros(count, np.float32)
    shape[arrays[places]] = arrays[values]
    return shape


def _cosine(one: Singles, other: Singles) -> float:
    product = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / product if product > 0 else 0.0
