"""Judging in the course of time: what is followed, what share the level keeps, and that nothing looks ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_processors.learning import DRIFT, DRIFT_EVERY, DRIFT_ROWS
from tests.benchmarks.course import RUN_MIN, SHARE, STEADY, STEP, Level, flagged, followed
from tests.benchmarks.labelled import Prepared, ours
from tests.benchmarks.samples import Labelled

PACE = 10
COUNTED, PAUSE = 2, 3
MINUTE = 1.0


def beyond(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    return np.asarray(np.abs(rows).max(axis=1) > 8)


def noise(samples: int, seed: int = 0, features: int = 3) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((samples, features)).astype(np.float32)


def test_what_creeps_is_followed_and_what_leaps_is_not() -> None:
    after = noise(2000, 1, 20)
    after[:, 0] += np.linspace(0, 10, 2000)
    after[:, 1] += 20 * (np.arange(2000) >= 1000)
    rows = followed(noise(1000, features=20), after, PACE, beyond)
    # It is behind by half of what is looked at and by what comes until it is asked again.
    behind = 10 / 2000 * PACE * (DRIFT_ROWS / 2 + DRIFT_EVERY)
    assert np.median(after[900:1000, 0]) > 4
    assert abs(np.median(rows[900:1000, 0])) < DRIFT + behind
    assert np.median(rows[1900:, 1]) == pytest.approx(20, abs=0.5)
    # While something is anomalous nothing is learnt, of the other metrics either.
    assert np.median(rows[1900:, 0]) > 4
    np.testing.assert_array_equal(rows[:, 2], after[:, 2])
    # What comes later changes nothing.
    np.testing.assert_array_equal(followed(noise(1000, features=20), after[:930], PACE, beyond), rows[:930])


def test_a_feature_with_gaps_is_not_followed_and_counts_as_expected() -> None:
    after = noise(500, 1) + np.float32(3)
    after[::7, 1] = np.nan
    rows = followed(noise(500), after, PACE, beyond)
    assert abs(np.median(rows[-100:, 0])) < 0.5
    assert (rows[::7, 1] == 0).all()
    assert np.nanmedian(rows[-100:, 1]) > 2


def test_the_level_keeps_its_share_where_tails_are_other_than_was_learnt() -> None:
    rng = np.random.default_rng(0)
    for power in (0.5, 1.0, 2.0):
        tails = rng.random(40_000) ** power
        flags = flagged(tails, np.ones(len(tails), bool), MINUTE)
        assert flags[10_000:].mean() == pytest.approx(SHARE, rel=0.3)
        if power != 1:
            assert (tails[10_000:] < SHARE).mean() != pytest.approx(SHARE, rel=0.5)


def test_a_long_anomaly_moves_the_level_no_further_than_a_short_one() -> None:
    level = Level(COUNTED, PAUSE)
    before = level.value
    assert all(level.flags(9.0) for _ in range(500))
    assert level.value == pytest.approx(before + COUNTED * STEP * (1 - SHARE))
    assert not level.flags(before + STEP)
    assert level.flags(before + 3 * STEP)


def test_a_pause_does_not_end_a_run_unless_it_is_long() -> None:
    for calm, counted in ((PAUSE, COUNTED), (PAUSE + 1, 2 * COUNTED)):
        level = Level(COUNTED, PAUSE)
        before = level.value
        flags = [level.flags(each) for each in COUNTED * [9.0] + calm * [0.0] + COUNTED * [9.0]]
        assert sum(flags) == 2 * COUNTED
        assert level.value == pytest.approx(before + STEP * (counted - SHARE * (counted + calm)))


def test_the_step_becomes_smaller() -> None:
    rises = []
    for samples in (STEADY - 1, 4 * STEADY - 1):
        level = Level(COUNTED, PAUSE)
        for _ in range(samples):
            level.flags(-9.0)
        before = level.value
        assert level.flags(9.0)
        rises.append(level.value - before)
    assert rises == pytest.approx([STEP * (1 - SHARE), STEP / 2 * (1 - SHARE)])


def test_what_counts_of_a_run_is_told_by_the_clock() -> None:
    burst, calm = [1e-9] * int(RUN_MIN / MINUTE), [1.0] * int(RUN_MIN / MINUTE + 1)
    tails = np.array([*burst, *calm, *burst, *[1.0] * 400, 1e-3])
    # 1e-3 is 3. Ten samples a minute apart raise the level from 2.3 to 4.7; of those of ten minutes one a run counts.
    for minutes, last in ((MINUTE, False), (10 * MINUTE, True)):
        flags = flagged(tails, np.ones(len(tails), bool), minutes)
        assert (flags.sum() - flags[-1], flags[-1]) == (2 * len(burst), last)


def test_a_sample_that_is_not_strange_itself_is_not_flagged() -> None:
    tails = np.array([1e-9, 1e-9, 1e-9, 1.0])
    themselves = np.array([True, False, True, True])
    np.testing.assert_array_equal(flagged(tails, themselves, MINUTE), [True, False, True, False])
    # What a window still holds of a leap when it is over: levels and steps are as ever, variability is not.
    samples = np.random.default_rng(0).standard_normal((3000, 4))
    samples[2000] += 12
    prepared = Prepared.of(Labelled("smd-1", samples[:1500], samples[1500:], np.zeros(1500, bool), ()))
    assert prepared.themselves[[500, 501]].all()
    assert not prepared.themselves[502:509].all()
    assert prepared.themselves.mean() < 0.1
    strange = prepared.ensemble.judge(prepared.judged).fused < 1e-4
    assert strange[500:509].all()
    flags = ours(prepared)["fused"].flags
    np.testing.assert_array_equal(flags[500:509], prepared.themselves[500:509])


def test_nothing_looks_ahead() -> None:
    rng = np.random.default_rng(0)
    load = rng.standard_normal((3000, 1))
    samples = load * rng.random(5) + 0.3 * rng.standard_normal((3000, 5))
    samples[1500:] += np.linspace(0, 3, 1500)[:, None]
    samples[1900:1910] += 8
    series = Labelled("smd-1", samples[:1500], samples[1500:], np.zeros(1500, bool), ())
    whole = ours(Prepared.of(series))
    first = ours(Prepared.of(replace(series, test=series.test[:700], label=series.label[:700])))
    for name, outcome in first.items():
        np.testing.assert_allclose(whole[name].scores[:700], outcome.scores, rtol=1e-6)
        np.testing.assert_array_equal(whole[name].flags[:700], outcome.flags)
        assert outcome.flags[400:410].any()
        assert not outcome.flags[:400].mean() > 10 * SHARE
