"""Calibrations: honest about what they come from, monotone, never certain."""

from __future__ import annotations

import numpy as np
import pytest

from stream_processors.calibration import (
    FAR,
    SAME,
    SHAPES,
    SMALLEST,
    USUAL_SHAPE,
    Calibration,
    tail_of,
    tail_probability,
)


def tail(fitted: Calibration, score: float) -> float:
    return tail_probability(fitted.scores, fitted.law, score)


def written_out(fitted: Calibration, score: float) -> float:
    if score > fitted.start:
        excess = (score - fitted.start) / fitted.scale
        beyond = np.exp(-excess) if fitted.shape == 0 else (1 + fitted.shape * excess) ** (-1 / fitted.shape)
        return float(max(fitted.share * beyond, SMALLEST))
    above = int((fitted.scores >= score).sum())
    return float(max(fitted.share, (above + 0.5) / (len(fitted.scores) + 1)))


def calibration(count: int, seed: int = 0) -> Calibration:
    return Calibration.fit(np.random.default_rng(seed).exponential(size=count), 0.01, 1e-3)


@pytest.mark.parametrize("count", [10, 60, 128, 600, 20_000])
def test_tail_probabilities_fall_with_the_score_and_never_reach_zero(count: int) -> None:
    fitted = calibration(count)
    at = np.concatenate([np.linspace(-1, 20, 2000), [1e3, 1e6, 1e12]])
    tails = fitted.tail_probabilities(at)
    assert (np.diff(tails) <= 0).all()
    assert tails[0] == pytest.approx(1.0, abs=0.06)
    assert tails[-1] == SMALLEST
    np.testing.assert_allclose([written_out(fitted, score) for score in at], tails, rtol=1e-12)


@pytest.mark.parametrize("count", [10, 11, 127, 600])
def test_the_tail_starts_at_the_quantile_that_numpy_finds(count: int) -> None:
    fitted = calibration(count)
    assert fitted.start == np.quantile(fitted.scores, 1 - fitted.share)


@pytest.mark.parametrize("count", [120, 1000])
def test_the_threshold_is_the_99th_percentile_of_what_the_scores_come_from(count: int) -> None:
    rates = [np.exp(-calibration(count, seed).threshold) for seed in range(50)]
    assert np.median(rates) == pytest.approx(0.01, rel=0.5)


def test_the_threshold_has_the_chance_it_was_asked_for() -> None:
    for chance in (0.3, 0.05, 0.01, 0.002):
        fitted = Calibration.fit(np.random.default_rng(1).exponential(size=400), chance, 1e-3)
        assert tail(fitted, fitted.threshold) == pytest.approx(chance, rel=0.02)


@pytest.mark.parametrize("shape", [0.0, 0.2, 0.4])
def test_probability_weighted_moments_find_the_tail(shape: float) -> None:
    chances = np.random.default_rng(0).random(20_000)
    excesses = np.sort(-3.0 * np.log(chances) if shape == 0 else 3.0 * (chances**-shape - 1) / shape)
    found, scale = tail_of(excesses)
    assert found == pytest.approx(shape, abs=0.05)
    assert scale == pytest.approx(3.0, rel=0.1)


def test_few_excesses_hardly_move_the_shape() -> None:
    short = [tail_of(np.sort(np.random.default_rng(seed).exponential(size=12)))[0] for seed in range(100)]
    assert np.std(short) < 0.12
    assert np.mean(short) == pytest.approx(USUAL_SHAPE, abs=0.1)
    assert all(SHAPES[0] <= each <= SHAPES[1] for each in short)
    assert tail_of(np.array([])) == (USUAL_SHAPE, 0.0)


def test_a_miracle_in_a_heavy_tail_is_less_of_one() -> None:
    rng = np.random.default_rng(0)
    light, heavy = (
        Calibration.fit(scores, 0.01, 1e-3) for scores in (rng.exponential(size=2000), rng.pareto(2.5, size=2000))
    )
    far = 10 * (light.threshold - light.start)
    assert tail(light, light.start + far) < 2e-6
    assert tail(heavy, heavy.start + far) > 1e-5


def test_equal_scores_calibrate() -> None:
    fitted = Calibration.fit(np.zeros(30), 0.01, 1e-3)
    assert tail(fitted, 0.0) > 0.5
    assert tail(fitted, 1.0) < 1e-6
    assert fitted.threshold < 0.1


def test_far_out_detectors_are_taken_to_say_the_same() -> None:
    means = np.random.default_rng(0).exponential(0.05, size=128) + 0.4
    fitted = Calibration.fit_means(means, 0.01, 0.5)
    assert fitted.scale == pytest.approx(SAME / 2)
    at = np.linspace(fitted.start + 1e-9, 12.0, 2000)
    strangeness = -np.log10(fitted.tail_probabilities(at))
    rises = np.diff(strangeness) / np.diff(at)
    near, far = strangeness[1:] < -np.log10(FAR), (strangeness[:-1] > -np.log10(FAR)) & (strangeness[1:] < 12)
    assert near.sum() > 300
    assert far.sum() > 800
    np.testing.assert_allclose(rises[near], 2.0, rtol=1e-6)
    np.testing.assert_allclose(rises[far], 1.0, rtol=1e-6)


def test_the_tail_of_a_single_detector_goes_on_as_it_begins() -> None:
    fitted = Calibration.fit(np.random.default_rng(0).uniform(size=4000), 0.01, 1e-3)
    assert fitted.shape == 0.0
    at = np.linspace(fitted.start, fitted.start + 20 * fitted.scale, 50)
    np.testing.assert_allclose([written_out(fitted, each) for each in at], fitted.tail_probabilities(at), rtol=1e-9)
