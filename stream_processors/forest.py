"""Isolation Forest: fitted by scikit-learn, kept and evaluated as flat arrays.

Score: 2 ** (-mean path length / c(samples)), in (0, 1), higher is stranger (Liu, Ting and Zhou, Isolation Forest,
ICDM 2008); equal to -IsolationForest.score_samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]

MOST_SAMPLES = 128


@dataclass(frozen=True, slots=True)
class FlatForest:
    """Trees of a forest, node after node. A leaf is its own left child, so that all trees can be walked for as many
    steps as the deepest has.

    feature   int16 (nodes,): feature that splits
    value     float32 (nodes,): go left if x <= value; infinite in a leaf
    children  int16 (2 * nodes,): left and right child of each node; in place of a leaf's right child, where its path
              length stands in `lengths`
    lengths   float64: path lengths that occur
    roots     int16 (trees,)
    depth     longest path
    norm      c(samples)
    """

    feature: NDArray[np.int16]
    value: Singles
    children: NDArray[np.int16]
    lengths: Floats
    roots: NDArray[np.int16]
    depth: int
    norm: float

    def score(self, x: Singles) -> float:
        """Score of one row (features,), float32 without NaN."""
        node = self.roots.astype(np.intp)
        for _ in range(self.depth):
            right = x[self.feature[node]] > self.value[node]
            node = self.children[2 * node + right].astype(np.intp)
        return float(2.0 ** (-self.lengths[self.children[2 * node + 1]].mean() / self.norm))


def fit_forest(rows: Singles, trees: int, seed: int) -> tuple[FlatForest, Floats]:
    """Forest on `rows` (n, features), float32 without NaN, and the held-out scores (n,) of the rows.

    Each tree learns from half of the rows, at most MOST_SAMPLES; a row's held-out score is that of the trees that
    have not seen it.
    """
    from sklearn.ensemble import IsolationForest  # noqa: PLC0415 - only fitting needs scikit-learn

    samples = max(2, min(MOST_SAMPLES, len(rows) // 2))
    forest = IsolationForest(n_estimators=trees, max_samples=samples, random_state=seed).fit(rows)
    unseen = np.ones((trees, len(rows)), dtype=bool)
    for tree, seen in enumerate(forest.estimators_samples_):
        unseen[tree, seen] = False
    unseen[:, ~unseen.any(axis=0)] = True
    lengths = np.stack([_path_lengths(each.tree_)[each.tree_.apply(rows)] for each in forest.estimators_])
    mean = (lengths * unseen).sum(axis=0) / unseen.sum(axis=0)
    return flatten(forest, samples), 2.0 ** (-mean / _norm(samples))


def warm_up() -> None:
    """Load what fitting needs, so that the first fit takes no longer than the others."""
    fit_forest(np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32), 2, 0)


def flatten(forest: Any, samples: int) -> FlatForest:
    """Flat arrays of a fitted scikit-learn IsolationForest with subsamples of `samples` rows and all features."""
    features: list[NDArray[Any]] = []
    values: list[NDArray[Any]] = []
    children: list[NDArray[Any]] = []
    paths: list[NDArray[Any]] = []
    roots: list[int] = []
    offset = depth = 0
    for estimator in forest.estimators_:
        tree = estimator.tree_
        leaf = tree.children_left < 0
        paths.append(_path_lengths(tree)[leaf])
        features.append(np.where(leaf, 0, tree.feature))
        # x is float32, so x <= threshold and x <= the next float32 at or below it are the same.
        threshold = tree.threshold.astype(np.float32)
        above = threshold.astype(np.float64) > tree.threshold
        threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
        values.append(np.where(leaf, np.float32(np.inf), threshold))
        itself = np.arange(tree.node_count)
        both = [np.where(leaf, itself, tree.children_left) + offset, np.where(leaf, -1, tree.children_right + offset)]
        children.append(np.stack(both, axis=1).ravel())
        roots.append(offset)
        offset += tree.node_count
        depth = max(depth, int(tree.max_depth))
    if offset > np.iinfo(np.int16).max:
        raise ValueError(f"the forest has {offset} nodes, more than 16 bits address")
    flat = np.concatenate(children)
    lengths, positions = np.unique(np.concatenate(paths), return_inverse=True)
    flat[flat < 0] = positions
    return FlatForest(
        feature=np.concatenate(features).astype(np.int16),
        value=np.concatenate(values).astype(np.float32),
        children=flat.astype(np.int16),
        lengths=lengths,
        roots=np.array(roots, dtype=np.int16),
        depth=depth,
        norm=_norm(samples),
    )


def _path_lengths(tree: Any) -> Floats:
    """Path length of each node, were it a leaf: its depth, and what its samples would still need."""
    depths = np.zeros(tree.node_count)
    for node in np.flatnonzero(tree.children_left >= 0):  # parents come before their children
        depths[tree.children_left[node]] = depths[tree.children_right[node]] = depths[node] + 1
    return depths + _mean_path(tree.n_node_samples.astype(np.float64))


def _norm(samples: int) -> float:
    return float(_mean_path(np.array([samples], dtype=np.float64))[0])


def _mean_path(samples: Floats) -> Floats:
    """c(n), mean path length of an unsuccessful search in a binary search tree of n: 2 H(n-1) - 2 (n-1)/n."""
    with np.errstate(divide="ignore", invalid="ignore"):
        path = 2 * (np.log(samples - 1) + np.euler_gamma) - 2 * (samples - 1) / samples
    return np.where(samples <= 1, 0.0, np.where(samples == 2, 1.0, path))
