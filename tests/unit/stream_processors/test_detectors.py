"""The shared checks of all detectors, and what each promises besides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest as Sklearn

from stream_processors.calibration import tail_probability
from stream_processors.detectors import (
    DETECTORS,
    RANKS,
    SMALLEST_LEFT,
    VOTERS,
    WEIGHTS,
    Detector,
    IsolationForest,
    Lesson,
    Mahalanobis,
    Residual,
    ZScore,
    profile,
)
from stream_processors.ensemble import Ensemble
from stream_processors.forest import fit_forest
from stream_processors.scaling import CLIP
from stream_processors.subspace import Subspace

Rows = NDArray[np.float32]


def normal(count: int, features: int, seed: int = 0) -> Rows:
    return np.random.default_rng(seed).standard_normal((count, features)).astype(np.float32)


def score(detector: Detector, row: Rows) -> float:
    return float(detector.scores(row[None])[0])


@pytest.fixture(params=list(DETECTORS.values()), ids=list(DETECTORS))
def kind(request: pytest.FixtureRequest) -> type[Detector]:
    chosen: type[Detector] = request.param
    return chosen


def test_a_strange_row_scores_higher_than_every_ordinary_one(kind: type[Detector]) -> None:
    rows = normal(128, 20)
    detector = kind.learn(Lesson.of(rows, 0))[0]
    ordinary = detector.scores(normal(100, 20, seed=1))
    assert score(detector, np.full(20, 8.0, dtype=np.float32)) > max(ordinary)


def test_scores_are_finite_whatever_comes(kind: type[Detector]) -> None:
    for rows in (normal(32, 5), np.zeros((32, 5), dtype=np.float32), np.tile(normal(1, 5), (32, 1)), normal(32, 1)):
        detector = kind.learn(Lesson.of(rows, 0))[0]
        for row in (np.zeros(rows.shape[1]), np.full(rows.shape[1], CLIP), np.full(rows.shape[1], -CLIP)):
            assert np.isfinite(score(detector, row.astype(np.float32)))


def test_the_same_rows_and_seed_give_the_same_scores(kind: type[Detector]) -> None:
    rows, row = normal(64, 10), normal(1, 10, seed=5)[0]
    assert score(kind.learn(Lesson.of(rows, 3))[0], row) == score(kind.learn(Lesson.of(rows.copy(), 3))[0], row)


def test_a_detector_is_its_arrays(kind: type[Detector]) -> None:
    detector = kind.learn(Lesson.of(normal(64, 10), 0))[0]
    arrays = {name: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for name, a in detector.arrays().items()}
    assert all(not array.dtype.hasobject for array in arrays.values())
    again = kind.restore(arrays)
    for row in normal(20, 10, seed=9):
        assert score(again, row) == score(detector, row)


def test_zscore_is_the_mean_of_absolute_values() -> None:
    assert score(ZScore(), np.array([1, -2, 3], dtype=np.float32)) == pytest.approx(2.0)


def test_mahalanobis_within_the_subspace_is_the_textbook_distance() -> None:
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((400, 3)) @ rng.standard_normal((3, 3))).astype(np.float32)
    detector = Mahalanobis(Subspace.fit(rows))
    kept = len(detector.space.axes)
    row = rows.mean(axis=0) + detector.space.axes.T @ np.arange(1.0, kept + 1, dtype=np.float32)
    gap = row - rows.mean(axis=0)
    wanted = np.sqrt(gap @ np.linalg.inv(np.cov(rows.T)) @ gap / kept)
    assert score(detector, row.astype(np.float32)) == pytest.approx(wanted, rel=1e-3)


def test_each_part_of_the_space_has_its_detector() -> None:
    rng = np.random.default_rng(0)
    # Two loads, so that in a subspace of two axes what is left is each feature's own.
    load = 3 * rng.standard_normal((400, 2)) @ rng.choice([-1.0, 1.0], (2, 30))
    rows = (load + 0.9 * rng.standard_normal((400, 30))).astype(np.float32)
    lesson = Lesson.of(rows[:200], 0)
    assert len(lesson.whole.axes) == 2
    together = 6 * lesson.whole.axes.sum(axis=0) * lesson.whole.scales.min()
    alone = np.zeros(30, dtype=np.float32)
    alone[[4, 9, 20]] = 12.0
    for kind, seen, unseen in ((Mahalanobis, together, alone), (Residual, alone, together)):
        detector: Detector = kind.learn(lesson)[0]
        ordinary = detector.scores(rows[200:])
        assert np.mean(np.square(ordinary)) == pytest.approx(1.0, rel=0.05)
        assert score(detector, unseen) < max(ordinary)
        assert score(detector, seen) > 1.5 * max(ordinary)


def test_what_is_left_of_a_feature_counts_in_its_own_standard_deviations() -> None:
    rng = np.random.default_rng(0)
    own = np.linspace(0.4, 1.8, 30)
    rows = (6 * rng.standard_normal((400, 1)) + own * rng.standard_normal((400, 30))).astype(np.float32)
    lesson = Lesson.of(rows, 0)
    detector = Residual.learn(lesson)[0]
    assert len(detector.space.axes) == 1
    gaps = [(rows[block] - space.center, space.axes) for block, space in lesson.folds]
    squares = np.concatenate([np.square(gap - gap @ axes.T @ axes) for gap, axes in gaps])
    np.testing.assert_allclose(detector.rest, np.maximum(squares.mean(axis=0), SMALLEST_LEFT), rtol=1e-3)
    np.testing.assert_allclose(detector.rest, np.maximum(np.square(own), SMALLEST_LEFT), rtol=0.25)
    # As far off in their own deviations, which are twice as large of one as of the other, they count the same.
    found = []
    for feature in (10, 29):
        row = np.zeros(30, np.float32)
        row[feature] = 10 * own[feature]
        found.append(score(detector, row))
        parts = detector.contributions(row)
        assert parts.mean() == pytest.approx(found[-1] ** 2, rel=1e-5)
        assert parts.argmax() == feature
    assert found[0] == pytest.approx(found[1], rel=0.1)


def test_a_residual_of_a_version_before_is_read() -> None:
    """It kept the sum over all features of what is left."""
    detector = Residual.learn(Lesson.of(normal(64, 10), 0))[0]
    before = {**detector.arrays(), "subspace.rest": np.array([20.0])}
    np.testing.assert_array_equal(Residual.restore(before).rest, np.full(10, 2.0, np.float32))
    with pytest.raises(ValueError, match="left"):
        Residual.restore({**before, "subspace.rest": np.ones(9, np.float16)})


@pytest.mark.parametrize(("count", "width"), [(40, 12), (12, 40)])
def test_a_subspace_is_that_of_a_singular_value_decomposition(count: int, width: int) -> None:
    rows = normal(count, width)
    space = Subspace.fit(rows)
    _, singular, axes = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    kept = len(space.axes)
    np.testing.assert_allclose(np.abs(space.axes @ axes[:kept].T), np.eye(kept), atol=1e-3)
    np.testing.assert_allclose(space.scales, singular[:kept] / np.sqrt(count - 1), rtol=1e-4)
    fewer = Subspace.fit(rows, kept - 1)
    np.testing.assert_array_equal(fewer.axes, space.axes[:-1])


def test_many_rows_score_as_each_alone(kind: type[Detector]) -> None:
    detector = kind.learn(Lesson.of(normal(64, 10), 0))[0]
    probe = normal(30, 10, seed=4)
    np.testing.assert_allclose(detector.scores(probe), [score(detector, row) for row in probe], rtol=1e-4, atol=1e-4)


def test_what_is_strange_contributes_most(kind: type[Detector]) -> None:
    rows = normal(128, 20) + 3 * normal(128, 1, seed=8)
    detector = kind.learn(Lesson.of(rows, 0))[0]
    row = 0.1 * normal(1, 20, seed=5)[0]
    row[7] = 12.0
    parts = detector.contributions(row)
    assert parts.shape == (20,)
    assert (parts >= 0).all()
    assert parts.argmax() == 7


def test_the_profile_is_what_the_forest_sees() -> None:
    row = np.array([[1, -5, 3, 0, 2, -4]], dtype=np.float32)
    np.testing.assert_array_equal(profile(row), [[5, 4, 3, 1]])
    assert len(RANKS) == len(profile(normal(2, 300))[0])


def test_the_forest_sees_a_fault_of_few_among_many_features() -> None:
    detector, held_out = IsolationForest.learn(Lesson.of(normal(128, 400), 0))
    row = normal(1, 400, seed=2)[0]
    row[:10] = 10.0
    assert score(detector, row) > max(held_out)


def test_votes_and_severity_of_an_ensemble() -> None:
    ensemble = Ensemble.learn(normal(400, 20), 0.01, 0)
    fresh = normal(4000, 20, seed=1)
    judgement = ensemble.judge(fresh)
    for name in DETECTORS:
        flagged = float((judgement.scores[name] > ensemble.calibrations[name].threshold).mean())
        assert flagged < 0.04, name
    assert float((judgement.fused < 0.01).mean()) < 0.04
    assert float((judgement.fused < 0.1).mean()) == pytest.approx(0.1, abs=0.06)
    for name, tails in judgement.tails.items():
        calibration = ensemble.calibrations[name]
        first = tail_probability(calibration.scores, calibration.law, judgement.scores[name][0])
        assert first == pytest.approx(tails[0])
    strange = ensemble.judge(np.full((1, 20), 9.0, dtype=np.float32))
    assert strange.fused[0] < 1e-4
    assert set(VOTERS) < set(DETECTORS)
    parts = ensemble.contributions(np.array([9.0] + [0.0] * 19, dtype=np.float32))
    assert parts.sum() == pytest.approx(1.0)
    assert parts.argmax() == 0


def test_an_ensemble_is_its_arrays() -> None:
    ensemble = Ensemble.learn(normal(64, 12), 0.01, 0)
    again = Ensemble.restore(ensemble.arrays(), 0.01)
    probe = 3 * normal(20, 12, seed=3)
    np.testing.assert_array_equal(again.judge(probe).fused, ensemble.judge(probe).fused)


@pytest.mark.parametrize("width", [3, 12, 40, 300])
def test_of_one_window_an_ensemble_says_what_it_says_of_many_rows(width: int) -> None:
    ensemble = Ensemble.learn(normal(64, width, seed=width), 0.01, width)
    kept = np.arange(7, 7 + width, dtype=np.int16)
    for size, ordinary in enumerate(normal(40, width + 9, seed=7)):
        deviations = ordinary * np.float32(size / 10)
        deviations[7], deviations[8], deviations[9] = np.nan, 1e9, -np.inf if size % 2 else 0.5
        judgement = ensemble.judge(np.clip(np.nan_to_num(deviations[None, kept]), -CLIP, CLIP))
        scores, (*tails, fused) = ensemble.judge_window(deviations, kept)
        assert fused == pytest.approx(judgement.fused[0], rel=1e-4)
        for name, score, tail in zip(DETECTORS, scores, tails, strict=True):
            exact = 1e-12 if name == "iforest" else 1e-5
            assert score == pytest.approx(judgement.scores[name][0], rel=exact, abs=exact), name
            assert tail == pytest.approx(judgement.tails[name][0], rel=1e-4), name


@pytest.mark.parametrize(("count", "features"), [(32, 3), (128, 40), (200, 200)])
def test_flat_forest_scores_as_scikit_learn(count: int, features: int) -> None:
    rows = normal(count, features)
    rows[:, 0] = np.round(rows[:, 0])  # ties at thresholds
    samples = min(128, count // 2)
    reference = Sklearn(n_estimators=50, max_samples=samples, random_state=7).fit(rows)
    flat, held_out = fit_forest(rows, 50, 7)
    probe = np.concatenate([rows, 3 * normal(100, features, seed=2)])
    ours = flat.scores(probe)
    np.testing.assert_allclose(ours, np.concatenate([flat.scores(row[None]) for row in probe]), rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours, -reference.score_samples(probe), rtol=0, atol=1e-9)
    assert held_out.shape == (count,)
    # What is held out is what scikit-learn's trees have not drawn.
    unseen = np.array([~np.isin(np.arange(count), seen) for seen in reference.estimators_samples_])
    trees = [replace(flat, roots=flat.roots[[tree]]).scores(rows) for tree in range(50)]
    paths = (-np.log2(trees) * unseen).sum(axis=0) / unseen.sum(axis=0)
    np.testing.assert_allclose(held_out, 2.0**-paths, rtol=1e-9)
    assert held_out.mean() > ours[:count].mean()


def test_held_out_scores_are_those_of_unseen_rows(kind: type[Detector]) -> None:
    rows = normal(120, 30)
    detector, held_out = kind.learn(Lesson.of(rows, 0))
    fresh = detector.scores(normal(400, 30, seed=3))
    assert np.median(held_out) == pytest.approx(np.median(fresh), rel=0.1)


@pytest.mark.parametrize("width", [30, 120])
def test_held_out_scores_are_those_of_unseen_rows_under_loads(kind: type[Detector], width: int) -> None:
    rng = np.random.default_rng(0)
    loads = rng.standard_normal((5, width))
    rows, later = ((rng.standard_normal((n, 5)) @ loads + rng.standard_normal((n, width))) for n in (120, 400))
    detector, held_out = kind.learn(Lesson.of(rows.astype(np.float32), 0))
    fresh = detector.scores(later.astype(np.float32))
    assert np.median(held_out) == pytest.approx(np.median(fresh), rel=0.1)


def test_leaving_company_counts_as_much_as_going_far() -> None:
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)
    assert WEIGHTS["residual"] == pytest.approx(sum(WEIGHTS[name] for name in VOTERS))
    ensemble = Ensemble.learn(normal(400, 20), 0.01, 0)
    judgement = ensemble.judge(3 * normal(5, 20, seed=1))
    fused = sum(-WEIGHTS[name] * np.log10(tails) for name, tails in judgement.tails.items())
    np.testing.assert_allclose(judgement.fused, ensemble.fusion.tail_probabilities(np.asarray(fused)), rtol=1e-9)
