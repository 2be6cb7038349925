"""Packed values: what comes back, and what is no packed values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stream_processors.packing import STEPS, Packed
from stream_processors.scaling import Singles


@pytest.fixture
def values() -> Singles:
    generator = np.random.default_rng(3)
    values = generator.standard_normal(1001).astype(np.float32) * np.float32(3)
    values[generator.random(1001) < 0.3] = np.nan
    values[generator.random(1001) < 0.3] = 0
    values[::97] = 5000
    return values


def test_values_come_back_to_half_a_step(values: Singles) -> None:
    scales = np.full(len(values), 0.5, np.float32)
    packed = Packed.of(values, scales)
    packed.check(len(values))
    np.testing.assert_allclose(packed.values(scales), values, atol=0.5 / STEPS / 2 + 1e-6, rtol=5e-4)


@pytest.mark.parametrize("size", [0, 900, 1009, 5000])
def test_other_numbers_of_values_are_refused_as_unpacking_refuses_them(values: Singles, size: int) -> None:
    packed = Packed.of(values, np.ones(len(values), np.float32))
    for ask in (packed.check, lambda count: packed.values(np.ones(count, np.float32))):
        with pytest.raises(ValueError, match="bytes"):
            ask(size)


@pytest.mark.parametrize("cut", [1, 10, 200])
def test_what_is_cut_off_is_refused_without_unpacking(values: Singles, cut: int) -> None:
    packed = Packed.of(values, np.ones(len(values), np.float32))
    with pytest.raises(ValueError, match="bytes"):
        replace(packed, data=packed.data[:-cut]).check(len(values))
