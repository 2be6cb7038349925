"""Isolation Forest: fitted by scikit-learn, kept and evaluated as flat arrays.

Score: 2 ** (-mean path length / c(max_samples)), in (0, 1), higher is stranger (Liu, Ting and Zhou, Isolation Forest,
ICDM 2008); equal to
-IsolationForest.score_samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FlatForest:
    """Trees of a forest, node after node; the left child of a node follows it.

    feature  int16 (nodes,): feature that splits, -1 in a leaf
    value    float32 (nodes,): go left if x <= value
    right    int32 (nodes,): right child; in a leaf, where its path length stands in `lengths`
    lengths  float64: path lengths that occur
    roots    int32 (trees,)
    depth    longest path
    norm     c(max_samples)
    """

    feature: NDArray[np.int16]
    value: Singles
    right: NDArray[np.int32]
    lengths: NDArray[np.float64]
    roots: NDArray[np.int32]
    depth: int
    norm: float

    def score(self, x: Singles) -> float:
        """Score of one row (features,), float32 without NaN."""
        node = self.roots
        for _ in range(self.depth):
            feature = self.feature[node]
            inner = feature >= 0
            left = x[feature] <= self.value[node]
            node = np.where(inner, np.where(left, node + 1, self.right[node]), node)
        return float(2.0 ** (-self.lengths[self.right[node]].mean() / self.norm))


def fit_forest(rows: Singles, trees: int, seed: int) -> FlatForest:
    """Forest on `rows` (n, features), float32 without NaN; subsamples of at most 128 rows."""
    from sklearn.ensemble import IsolationForest  # noqa: PLC0415 - only fitting needs scikit-learn

    samples = min(128, len(rows))
    forest = IsolationForest(n_estimators=trees, max_samples=samples, random_state=seed, n_jobs=None).fit(rows)
    return flatten(forest, samples)


def flatten(forest: Any, samples: int) -> FlatForest:
    """Flat arrays of a fitted scikit-learn IsolationForest with subsamples of `samples` rows and all features."""
    features: list[NDArray[Any]] = []
    values: list[NDArray[Any]] = []
    rights: list[NDArray[Any]] = []
    paths: list[NDArray[Any]] = []
    roots: list[int] = []
    offset = depth = 0
    for estimator in forest.estimators_:
        tree = estimator.tree_
        leaf = tree.children_left < 0
        inner = np.flatnonzero(~leaf)
        if not np.array_equal(tree.children_left[inner], inner + 1):
            raise ValueError("the trees are not in depth-first order: this scikit-learn is not supported")
        paths.append(_depths(tree) + _mean_path(tree.n_node_samples.astype(np.float64)))
        features.append(np.where(leaf, -1, tree.feature).astype(np.int16))
        # x is float32, so x <= threshold and x <= the next float32 at or below it are the same.
        threshold = tree.threshold.astype(np.float32)
        above = threshold.astype(np.float64) > tree.threshold
        threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
        values.append(np.where(leaf, 0, threshold).astype(np.float32))
        rights.append(np.where(leaf, -1, tree.children_right + offset).astype(np.int32))
        roots.append(offset)
        offset += tree.node_count
        depth = max(depth, int(tree.max_depth))
    right = np.concatenate(rights)
    leaves = right < 0
    lengths, positions = np.unique(np.concatenate(paths)[leaves], return_inverse=True)
    right[leaves] = positions
    return FlatForest(
        feature=np.concatenate(features),
        value=np.concatenate(values),
        right=right,
        lengths=lengths,
        roots=np.array(roots, dtype=np.int32),
        depth=depth,
        norm=float(_mean_path(np.array([samples], dtype=np.float64))[0]),
    )


def _depths(tree: Any) -> NDArray[np.float64]:
    depths = np.zeros(tree.node_count)
    for node in np.flatnonzero(tree.children_left >= 0):
        depths[tree.children_left[node]] = depths[tree.children_right[node]] = depths[node] + 1
    return depths


def _mean_path(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """c(n), mean path length of an unsuccessful search in a binary search tree of n: 2 H(n-1) - 2 (n-1)/n."""
    with np.errstate(divide="ignore", invalid="ignore"):
        path = 2 * (np.log(samples - 1) + np.euler_gamma) - 2 * (samples - 1) / samples
    return np.where(samples <= 1, 0.0, np.where(samples == 2, 1.0, path))
