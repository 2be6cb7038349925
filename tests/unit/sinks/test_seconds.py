"""The reduction equals the plain definition, computed one metric at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from sinks.warehouse.seconds import PORTION, summarise

Matrix = NDArray[np.float32]
VALUES = st.one_of(st.floats(-1e6, 1e6, width=32), st.just(float("nan")))
MATRICES = st.lists(
    arrays(np.float32, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6), elements=VALUES),
    min_size=1,
    max_size=8,
)


@given(MATRICES)
def test_equals_the_plain_definition(matrices: list[Matrix]) -> None:
    found = summarise(matrices)
    for place, matrix in enumerate(matrices):
        present = matrix[~np.isnan(matrix)].astype(np.float64)
        assert found.samples[place] == len(present)
        if not len(present):
            assert np.isnan([found.mean[place], found.min[place], found.max[place], found.spread[place]]).all()
            continue
        assert found.mean[place] == pytest.approx(present.mean(), rel=1e-5, abs=1e-5)
        assert found.min[place] == present.min()
        assert found.max[place] == present.max()
        rows = [row[~np.isnan(row)].astype(np.float64) for row in matrix]
        spread = np.mean([row.std() for row in rows if len(row)])
        assert found.spread[place] == pytest.approx(spread, rel=1e-5, abs=1e-5)


def test_the_largest_floats_do_not_overflow_the_mean() -> None:
    largest = np.finfo(np.float32).max
    found = summarise([np.array([[largest, -largest], [largest, largest]], np.float32)])
    assert found.mean[0] == pytest.approx(largest / 2)
    assert found.spread[0] == pytest.approx(largest / 2)


def test_many_portions_are_one_after_another() -> None:
    matrices = [np.full((10, 1 + number % 300), number, np.float32) for number in range(200)]
    assert sum(matrix.size for matrix in matrices) > 2 * PORTION
    assert summarise(matrices).mean.tolist() == list(range(200))


def test_nothing_gives_nothing() -> None:
    assert len(summarise([]).mean) == 0
