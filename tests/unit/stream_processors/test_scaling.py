"""Quantiles of columns with and without gaps are those of numpy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from stream_processors.scaling import location_and_scale, quantiles

AT = (0.5, 0.05, 0.95, 0.0, 1.0)
values = arrays(
    np.float64,
    st.tuples(st.integers(1, 40), st.integers(1, 5)),
    elements=st.one_of(st.just(np.nan), st.just(0.0), st.floats(-1e12, 1e12)),
)


@given(values)
def test_quantiles_are_those_of_what_is_there(values: NDArray[np.float64]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of columns without any
        wanted = np.nanquantile(values, AT, axis=0)
    np.testing.assert_array_equal(quantiles(values, AT), wanted)


def test_location_and_scale_of_a_column_with_gaps() -> None:
    column = np.random.default_rng(3).normal(50, 2, 400)
    gaps = np.concatenate([column, np.full(300, np.nan)])
    np.random.default_rng(4).shuffle(gaps)
    matrix, floors = np.stack([gaps, np.full(700, np.nan), np.full(700, 7.0)], axis=1), np.array([0.1, 0.1, 0.25])
    center, scale = location_and_scale(matrix, floors)
    assert center == pytest.approx([np.median(column), np.nan, 7.0], nan_ok=True)
    assert scale == pytest.approx([2.0, np.nan, 0.25], rel=0.15, nan_ok=True)
