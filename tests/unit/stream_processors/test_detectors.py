"""The shared checks of all detectors, and what each promises besides."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest as Sklearn

from stream_processors.calibration import Calibration
from stream_processors.detectors import CLIP, DETECTORS, Detector, Mahalanobis, ZScore
from stream_processors.forest import fit_forest

Rows = NDArray[np.float32]


def normal(count: int, features: int, seed: int = 0) -> Rows:
    return np.random.default_rng(seed).standard_normal((count, features)).astype(np.float32)


@pytest.fixture(params=list(DETECTORS.values()), ids=list(DETECTORS))
def kind(request: pytest.FixtureRequest) -> type[Detector]:
    chosen: type[Detector] = request.param
    return chosen


def test_a_strange_row_scores_higher_than_every_ordinary_one(kind: type[Detector]) -> None:
    rows = normal(128, 20)
    detector = kind.learn(rows, 0)[0]
    ordinary = [detector.score(row) for row in normal(100, 20, seed=1)]
    assert detector.score(np.full(20, 8.0, dtype=np.float32)) > max(ordinary)


def test_scores_are_finite_whatever_comes(kind: type[Detector]) -> None:
    for rows in (normal(32, 5), np.zeros((32, 5), dtype=np.float32), np.tile(normal(1, 5), (32, 1)), normal(32, 1)):
        detector = kind.learn(rows, 0)[0]
        for row in (np.zeros(rows.shape[1]), np.full(rows.shape[1], CLIP), np.full(rows.shape[1], -CLIP)):
            assert np.isfinite(detector.score(row.astype(np.float32)))


def test_the_same_rows_and_seed_give_the_same_scores(kind: type[Detector]) -> None:
    rows, row = normal(64, 10), normal(1, 10, seed=5)[0]
    assert kind.learn(rows, 3)[0].score(row) == kind.learn(rows.copy(), 3)[0].score(row)


def test_a_detector_is_its_arrays(kind: type[Detector]) -> None:
    detector = kind.learn(normal(64, 10), 0)[0]
    arrays = {name: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for name, a in detector.arrays().items()}
    assert all(not array.dtype.hasobject for array in arrays.values())
    again = kind.restore(arrays)
    for row in normal(20, 10, seed=9):
        assert again.score(row) == detector.score(row)


def test_zscore_is_the_mean_of_absolute_values() -> None:
    assert ZScore().score(np.array([1, -2, 3], dtype=np.float32)) == pytest.approx(2.0)


def test_mahalanobis_within_the_subspace_is_the_textbook_distance() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((3, 3))
    rows = (rng.standard_normal((400, 3)) @ mixing).astype(np.float32)
    detector = Mahalanobis.fit(rows)
    kept = len(detector.axes)
    row = rows.mean(axis=0) + detector.axes.T @ np.arange(1.0, kept + 1, dtype=np.float32)
    gap = row - rows.mean(axis=0)
    wanted = np.sqrt(gap @ np.linalg.inv(np.cov(rows.T)) @ gap / kept / 2)
    assert detector.score(row.astype(np.float32)) == pytest.approx(wanted, rel=1e-3)


def test_mahalanobis_sees_a_metric_that_leaves_its_company() -> None:
    rng = np.random.default_rng(0)
    load = 3 * rng.standard_normal((200, 1))
    rows = (load + 0.5 * rng.standard_normal((200, 30))).astype(np.float32)
    detector = Mahalanobis.fit(rows)
    ordinary = [detector.score(row) for row in rows]
    together, alone = np.full(30, 6.0, dtype=np.float32), np.zeros(30, dtype=np.float32)
    alone[4] = 15.0
    assert np.mean(np.square(ordinary)) == pytest.approx(1.0, rel=0.05)
    assert detector.score(together) < max(ordinary)
    assert detector.score(alone) > 1.5 * max(ordinary)


@pytest.mark.parametrize(("count", "features"), [(32, 3), (128, 40), (200, 200)])
def test_flat_forest_scores_as_scikit_learn(count: int, features: int) -> None:
    rows = normal(count, features)
    rows[:, 0] = np.round(rows[:, 0])  # ties at thresholds
    samples = min(128, count // 2)
    reference = Sklearn(n_estimators=50, max_samples=samples, random_state=7).fit(rows)
    flat, held_out = fit_forest(rows, 50, 7)
    probe = np.concatenate([rows, 3 * normal(100, features, seed=2)])
    ours = np.array([flat.score(row) for row in probe])
    np.testing.assert_allclose(ours, -reference.score_samples(probe), rtol=0, atol=1e-9)
    assert held_out.shape == (count,)
    assert held_out.mean() > ours[:count].mean()


def test_held_out_scores_are_those_of_unseen_rows(kind: type[Detector]) -> None:
    rows = normal(120, 30)
    detector, held_out = kind.learn(rows, 0)
    fresh = [detector.score(row) for row in normal(400, 30, seed=3)]
    assert np.median(held_out) == pytest.approx(np.median(fresh), rel=0.1)


def test_tail_probabilities_fall_with_the_score_and_never_reach_zero() -> None:
    scores = np.random.default_rng(0).exponential(size=200)
    calibration = Calibration.fit(scores, 0.01, 1e-3)
    tails = [calibration.tail_probability(score) for score in np.linspace(-1, 100, 500)]
    assert tails == sorted(tails, reverse=True)
    assert tails[0] == pytest.approx(1.0, abs=0.01)
    assert tails[-1] == 1e-12


def test_the_threshold_is_the_99th_percentile_of_what_the_scores_come_from() -> None:
    rng = np.random.default_rng(0)
    rates = []
    for _ in range(50):
        calibration = Calibration.fit(rng.exponential(size=120), 0.01, 1e-3)
        rates.append(np.exp(-calibration.threshold))
    assert np.median(rates) == pytest.approx(0.01, rel=0.5)


def test_equal_scores_calibrate() -> None:
    calibration = Calibration.fit(np.zeros(30), 0.01, 1e-3)
    assert calibration.tail_probability(0.0) > 0.5
    assert calibration.tail_probability(1.0) == 1e-12
