"""Compiled loops: for their types alone, with the arithmetic of numpy, and also where nothing can be written."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_processors.compiled import compiled

Floats = NDArray[np.float64]


@compiled("float64(float64[::1])")
def quotient(values: Floats) -> float:
    """The first over the sum of the others."""
    total = 0.0
    for value in values[1:]:
        total += value
    return float(values[0] / total)


def test_arithmetic_is_that_of_numpy() -> None:
    assert quotient(np.array([6.0, 1.0, 2.0])) == 2.0
    assert quotient(np.array([1.0, 0.0, 0.0])) == np.inf
    assert np.isnan(quotient(np.array([0.0, 0.0])))
    assert np.isnan(quotient(np.array([1.0, np.nan, 2.0])))
    assert np.isnan(quotient(np.array([1.0, np.inf, -np.inf])))
    assert quotient(np.array([1.0, np.inf])) == 0.0


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="No matching definition"):
        quotient(np.array([6.0, 1.0], np.float32))


def test_where_nothing_can_be_kept_it_is_compiled_at_every_start() -> None:
    scope: dict[str, object] = {"compiled": compiled}
    exec('@compiled("float64(float64)")\ndef double(value):\n    return 2 * value', scope)  # has no file to keep it by
    double = scope["double"]
    assert callable(double)
    assert double(3.0) == 6.0
