"""The labelled benchmark: its measures against values worked out by hand, its features against the pipeline's, and what
it makes of odd series.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from tests.benchmarks.curves import Found, average_precision, runs, soft_labels, vus_pr
from tests.benchmarks.labelled import MEASURES
from tests.benchmarks.samples import WINDOWS, Columns, Labelled, features

METHODS = ("z", "mahalanobis", "iforest", "residual", "vote", "fused", "pyod-knn", "pyod-copod", "pyod-loda")


def test_average_precision_by_hand() -> None:
    # Above 3: 1 of 1 right; above 2: 1 of 2; above 1: 2 of 3.
    assert average_precision(np.array([0, 1, 1]), np.array([2.0, 3.0, 1.0])) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    # All the same: one threshold, which takes all.
    assert average_precision(np.array([0, 1, 0, 0]), np.ones(4)) == pytest.approx(0.25)
    assert average_precision(np.zeros(3), np.ones(3)) is None
    rng = np.random.default_rng(0)
    labels, scores = rng.random(500) < 0.1, np.round(rng.random(500), 2)
    assert average_precision(labels, scores) == pytest.approx(average_precision_score(labels, scores))


def test_a_buffer_falls_off_with_the_root_of_the_distance() -> None:
    bare = np.array([0, 0, 0, 1, 1, 0, 0, 0], dtype=float)
    np.testing.assert_array_equal(soft_labels(bare, 0), bare)
    one, two = np.sqrt(1 - 1 / 4), np.sqrt(1 - 2 / 4)
    np.testing.assert_allclose(soft_labels(bare, 4), [0, two, one, 1, 1, one, two, 0])
    # Two buffers on one sample add up, to 1 at most.
    np.testing.assert_allclose(soft_labels(np.array([1.0, 0, 1]), 2), [1, 1, 1])


def test_vus_pr_by_hand() -> None:
    labels, scores = np.array([0, 0, 1, 0, 0]), np.array([1.0, 2.0, 3.0, 0.0, 0.5])
    assert vus_pr(labels, scores, (0,)) == pytest.approx(1.0)
    # Buffer 2: labels 0, r, 1, r, 0 with r = sqrt(1/2); the mean of both sums of labels is 1 + r.
    r = np.sqrt(0.5)
    recall = np.minimum(np.array([1, 1 + r, 1 + r, 1 + r, 1 + 2 * r]) / (1 + r), 1)
    precision = np.array([1, (1 + r) / 2, (1 + r) / 3, (1 + r) / 4, (1 + 2 * r) / 5])
    by_hand = float((np.diff(recall, prepend=0) * precision).sum())
    assert vus_pr(labels, scores, (2,)) == pytest.approx(by_hand)
    assert vus_pr(labels, scores, (0, 2)) == pytest.approx((1 + by_hand) / 2)
    assert vus_pr(np.zeros(5), scores) is None


def test_an_anomaly_that_is_not_touched_costs_recall() -> None:
    labels = np.array([1, 0, 0, 0, 0, 0, 1, 1])
    # The first threshold touches one of two anomalies and 1 of 3 labels, the second the same and two of them, the
    # third all.
    scores = np.array([1.0, 0, 0, 0, 0, 0, 3, 2])
    by_hand = (1 / 3 * 1 / 2) * 1 + (2 / 3 * 1 / 2 - 1 / 6) * 1 + (1 - 1 / 3) * 1
    assert vus_pr(labels, scores, (0,)) == pytest.approx(by_hand)


def test_what_a_threshold_finds() -> None:
    labels = np.array([0, 1, 1, 1, 0, 0, 1, 1, 0, 0])
    flags = np.array([1, 0, 0, 1, 1, 0, 0, 0, 0, 1], dtype=bool)
    assert Found.of(labels, flags) == Found(0.5, 1 / 3, 2.0, 3 / 5)
    assert Found.of(np.zeros(3), np.zeros(3, dtype=bool)) == Found(None, None, None, 0.0)
    assert runs(np.array([1, 1, 0, 1])) == [(0, 2), (3, 4)]


def test_features_are_those_of_windows_that_end_with_the_sample() -> None:
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((3000, 3))
    samples[50, 1] = np.nan
    made, columns = features(samples), Columns.of(3)
    assert made.shape == (3000, len(columns.metric_of)) == (3000, 3 * sum(map(len, WINDOWS.values())))
    assert columns.metric_of.tolist() == [0, 1, 2] * 5
    assert columns.length.tolist() == [length for length in (1, 2, 5, 5, 10) for _ in range(3)]
    for at in (20, 2047, 2048, 2999):
        last = samples[at - 9 : at + 1]
        by_hand = [
            last[-1],
            last[-1] - last[-2],
            last[-5:].std(axis=0),
            np.abs(np.diff(last[-5:], axis=0)).mean(axis=0),
            last.std(axis=0),
        ]
        np.testing.assert_allclose(made[at], np.concatenate(by_hand), atol=1e-9)
    assert np.isnan(made[50].reshape(5, 3)[:2, 1]).all()
    assert not np.isnan(made[54].reshape(5, 3)[:, 1]).any()
    assert np.isnan(made[0].reshape(5, 3)[1:]).all()


def write(path: Path, *, interpretation: bool = True, anomaly: bool = True, odd: bool = False) -> None:
    rng = np.random.default_rng(0)
    load = rng.standard_normal((1500, 1))
    series = load * rng.random(7) + 0.3 * rng.standard_normal((1500, 7))
    train, test = series[:700], series[700:].copy()
    label = np.zeros(800, dtype=np.uint8)
    if anomaly:
        label[300:320] = 1
        test[300:320, [2, 5]] += 6
    if odd:
        train[:, 0] = test[:, 0] = 3.0
        train[:, 1] = test[:, 1] = np.nan
        test[400:420, 3] = np.nan
    plain: dict[str, Any] = {"train": train.astype(np.float32), "test": test.astype(np.float32), "label": label}
    if interpretation:
        np.savez(path, **plain, interpretation=np.array(json.dumps([[300, 319, [3, 6]]])), allow_pickle=False)
    else:
        np.savez(path, **plain, allow_pickle=False)


def run(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.benchmarks.labelled", str(directory), "--json", *args]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


def test_the_benchmark_on_plain_and_odd_series(tmp_path: Path) -> None:
    write(tmp_path / "smd-1.npz")
    write(tmp_path / "smd-2.npz", odd=True)
    write(tmp_path / "asd-1.npz", interpretation=False)
    write(tmp_path / "asd-2.npz", anomaly=False)
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["asd-1", "asd-2", "smd-1", "smd-2"]
    found = json.loads(done.stdout)
    assert set(found) == {"asd-1", "asd-2", "smd-1", "smd-2", "mean"}
    for name in ("asd-1", "asd-2", "smd-1", "smd-2"):
        assert set(found[name]) == set(METHODS)
        assert all(set(values) == set(MEASURES) for values in found[name].values())
    for name in ("smd-1", "smd-2"):
        fused = found[name]["fused"]
        assert fused["auc_pr"] > 0.6
        assert (fused["event_recall"], fused["hit_at_5"]) == (1.0, 1.0)
        assert fused["delay"] <= 1
        assert fused["flagged_normal"] < 0.02
        assert found[name]["pyod-knn"]["hit_at_5"] is None
    assert found["asd-1"]["fused"]["hit_at_5"] is None
    assert found["asd-2"]["fused"]["auc_pr"] is None
    assert found["asd-2"]["fused"]["event_recall"] is None
    assert found["mean"]["asd"]["fused"]["auc_pr"] == found["asd-1"]["fused"]["auc_pr"]
    only = run(tmp_path, "--series", "smd-1")
    assert json.loads(only.stdout)["smd-1"] == found["smd-1"]


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "smd-1.npz", train=np.ones((5, 2)), test=np.ones((5, 3)), label=np.zeros(5))
    done = run(tmp_path)
    assert done.returncode == 1
    assert "smd-1.npz: ValueError" in done.stderr
    assert run(tmp_path, "--series", "other").returncode == 2


def test_about_is_what_overlaps(tmp_path: Path) -> None:
    write(tmp_path / "smd-1.npz")
    series = Labelled.read(tmp_path / "smd-1.npz")
    assert series.events == ((300, 320, frozenset({2, 5})),)
