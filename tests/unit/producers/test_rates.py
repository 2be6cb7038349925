"""Rates: the way over a whole batch and the way sample by sample are the same; resets, gaps, leaps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.collector import Layout
from producers.collectors.netdev import NETDEV
from producers.collectors.powercap import POWERCAP
from producers.collectors.stat import STAT
from producers.rates import Rates
from schemas.catalogue import catalogue

BYTES = Layout((("net.rx_bytes", "a"), ("net.rx_packets", "a"), ("net.rx_bytes", "b")))
NAN = math.nan


def one(counts: list[float], times: list[float] | None = None) -> list[float]:
    """Rates of one counter of bytes, sampled every second unless `times` says otherwise."""
    layout = Layout((("net.rx_bytes", "a"),))
    seconds = np.array(times or [float(index) for index in range(len(counts))])
    rates: list[float] = Rates(NETDEV, catalogue())(layout, seconds, np.array(counts, float)[:, None])[:, 0].tolist()
    return rates


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_batch_at_once_is_the_same_as_one_sample_at_a_time(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 25))
    cells = st.one_of(st.integers(0, 50), st.integers(0, 10**12), st.just(NAN), st.just(10**19))
    steady = data.draw(st.booleans())
    counts = np.array(data.draw(st.lists(st.lists(cells, min_size=3, max_size=3), min_size=rows, max_size=rows)), float)
    if steady:
        counts = np.cumsum(np.where(counts < 51, counts, 1), axis=0)
    times = np.cumsum(data.draw(st.lists(st.floats(0.01, 30), min_size=rows, max_size=rows)))
    whole = Rates(NETDEV, catalogue())(BYTES, times, counts)
    single = Rates(NETDEV, catalogue())
    rates = np.vstack([single(BYTES, times[row : row + 1], counts[row : row + 1]) for row in range(rows)])
    np.testing.assert_array_equal(whole, rates)
    split = Rates(NETDEV, catalogue())
    middle = rows // 2
    halves = [split(BYTES, times[part], counts[part]) for part in (slice(0, middle), slice(middle, rows)) if rows > 1]
    if halves:
        np.testing.assert_array_equal(whole, np.vstack(halves))
    assert not (whole < 0).any()
    assert not np.isinf(whole).any()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5, 7, 7, 10], [NAN, 2, 0, 3]),
        # A value that is absent: the next rate spans the gap.
        ([10, NAN, 30, 40], [NAN, NAN, 10, 10]),
        # A reset, then growth from there.
        ([1000, 10, 30, 60], [NAN, NAN, 20, 30]),
        # A stray low value; the rate after it spans both intervals.
        ([10**9, 3, 10**9 + 20, 10**9 + 30], [NAN, NAN, 10, 10]),
        # A leap that no link can carry, and back.
        ([10, 10**15, 30, 40], [NAN, NAN, 10, 10]),
        # A leap that stays: a new baseline.
        ([10, 10**15, 10**15 + 7, 10**15 + 9], [NAN, NAN, 7, 2]),
        # At rest at zero after a reset: nothing is said for a while.
        ([50, *[0] * 12, 6], [*[NAN] * 11, 0, 0, 6]),
        # Beyond 64 bit: absent.
        ([10, 2**65, 30], [NAN, NAN, 10]),
    ],
)
def test_one_counter(counts: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(one(counts), expected)


def test_old_value_is_forgotten_after_a_while() -> None:
    # The counter grows past its value before the reset, much later: that is growth, not a return.
    assert one([100, 0, 5, 200], [0, 1, 2, 60])[3] == pytest.approx(195 / 58)


def test_real_time_between_samples_counts() -> None:
    np.testing.assert_allclose(one([0, 100, 200], [0.0, 0.1, 0.35])[1:], [1000, 400])


def test_instances_go_on_through_a_change_of_layout() -> None:
    rates = Rates(NETDEV, catalogue())
    before = Layout((("net.rx_bytes", "a"), ("net.rx_bytes", "b")))
    after = Layout((("net.rx_bytes", "c"), ("net.rx_bytes", "b")))
    rates(before, np.array([1.0]), np.array([[10.0, 20.0]]))
    np.testing.assert_array_equal(rates(after, np.array([2.0]), np.array([[500.0, 27.0]])), [[NAN, 7.0]])
    np.testing.assert_array_equal(rates(before, np.array([3.0]), np.array([[15.0, 30.0]])), [[NAN, 3.0]])


def test_ticks_become_seconds() -> None:
    layout = Layout((("cpu.time.user", "cpu0"), ("cpu.context_switches_total", "")))
    found = Rates(STAT, catalogue())(layout, np.array([1.0, 2.0]), np.array([[100.0, 100.0], [150.0, 150.0]]))
    np.testing.assert_allclose(found[1], [0.5, 50.0])


def test_each_channel_comes_round_where_its_layout_says() -> None:
    packages = tuple(("power.rapl.package", f"package{index}") for index in range(3))
    layout = Layout(packages, wraps={packages[0]: 1000.0, packages[1]: 5000.0})
    counts = np.array([[990.0, 4900.0, 900.0], [10.0, 100.0, 10.0]])
    found = Rates(POWERCAP, catalogue())(layout, np.array([0.0, 1.0]), counts)
    assert found[1].tolist() == [20, 200, pytest.approx(NAN, nan_ok=True)]
    # The range of a zone goes with its channel, wherever that stands in the next layout.
    keeper = Rates(POWERCAP, catalogue())
    keeper(layout, np.array([0.0]), counts[:1])
    moved = Layout(packages[1::-1], wraps=layout.wraps)
    assert keeper(moved, np.array([1.0]), counts[1:, 1::-1])[0].tolist() == [200, 20]


def test_values_beyond_belief_are_counted() -> None:
    keeper = Rates(NETDEV, catalogue())
    layout = Layout((("net.rx_bytes", "a"),))
    counts = np.array([[1.0], [2.0], [10.0**18], [10.0**18 + 1], [5.0], [-3.0], [NAN]])
    keeper(layout, np.arange(len(counts), dtype=float), counts)
    # A leap and a negative count; neither a reset nor what is absent.
    assert keeper.implausible == 2
