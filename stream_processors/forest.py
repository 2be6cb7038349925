"""Isolation Forest: fitted by scikit-learn, kept and evaluated as flat arrays.

Score: 2 ** (-mean path length / c(samples)), in (0, 1), higher is stranger (Liu, Ting and Zhou, Isolation Forest,
ICDM 2008); equal to -IsolationForest.score_samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]

MOST_SAMPLES: Final = 128
CHUNK: Final = 2048


@dataclass(frozen=True, slots=True, eq=False)
class FlatForest:
    """Trees of a forest, node after node. A leaf is both its own children, so that all trees can be walked for as many
    steps as the deepest has.

    feature   int16 (nodes,): feature that splits
    value     float32 (nodes,): go left if x <= value; infinite in a leaf
    children  int16 (2 * nodes,): left and right child of each node
    length    int16 (nodes,): where in `lengths` the path length of a node stands, as if it were a leaf
    lengths   float64: path lengths that occur
    roots     int16 (trees,)
    depth     longest path
    norm      c(samples)
    """

    feature: NDArray[np.int16]
    value: Singles
    children: NDArray[np.int16]
    length: NDArray[np.int16]
    lengths: Floats
    roots: NDArray[np.int16]
    depth: int
    norm: float

    def scores(self, rows: Singles) -> Floats:
        """Scores (n,) of rows (n, features), float32 without NaN."""
        if len(rows) == 1:  # as below, without what costs time when there is only one
            x, leaf = rows[0], self.roots.astype(np.intp)
            for _ in range(self.depth):
                right = x.take(self.feature.take(leaf)) > self.value.take(leaf)
                leaf = self.children.take(2 * leaf + right).astype(np.intp)
            return np.array([2.0 ** (-self.lengths.take(self.length.take(leaf)).mean() / self.norm)])
        parts = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
        means = [self.lengths[self.length[self._walk(part)[-1]]].mean(axis=1) for part in parts]
        return np.asarray(2.0 ** (-np.concatenate(means) / self.norm))

    def contributions(self, row: Singles) -> Floats:
        """By how much the splits at each feature (features,) shorten the mean path of `row`, in path lengths; 0 where
        they lengthen it. What a split does is the difference of the path lengths that both of its nodes stand for, so
        that all splits together make the difference from c(samples).
        """
        found = np.zeros(len(row))
        steps = self._walk(row[None])[:, 0]
        for node, child in pairwise(steps):
            shorter = self.lengths[self.length[node]] - self.lengths[self.length[child]]
            np.add.at(found, self.feature[node], shorter / len(self.roots))
        return np.maximum(found, 0.0)

    def _walk(self, rows: Singles) -> NDArray[np.int16]:
        """Nodes (depth + 1, n, trees) that the rows come through."""
        each = np.arange(len(rows))[:, None]
        node = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        steps = [node]
        for _ in range(self.depth):
            right = rows[each, self.feature[node]] > self.value[node]
            node = self.children[2 * node.astype(np.intp) + right]
            steps.append(node)
        return np.stack(steps)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Everything learnt."""
        return {
            "forest.feature": self.feature,
            "forest.value": self.value,
            "forest.children": self.children,
            "forest.length": self.length,
            "forest.lengths": self.lengths,
            "forest.roots": self.roots,
            "forest.constants": np.array([self.depth, self.norm]),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The forest that `arrays` came from."""
        depth, norm = arrays["forest.constants"].tolist()
        names = ("feature", "value", "children", "length", "lengths", "roots")
        feature, value, children, length, lengths, roots = (arrays[f"forest.{name}"] for name in names)
        return cls(feature, value, children, length, lengths, roots, int(depth), norm)


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
    return flatten(forest, samples), np.asarray(2.0 ** (-mean / _norm(samples)))


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
        paths.append(_path_lengths(tree))
        features.append(np.where(leaf, 0, tree.feature))
        # x is float32, so x <= threshold and x <= the next float32 at or below it are the same.
        threshold = tree.threshold.astype(np.float32)
        above = threshold.astype(np.float64) > tree.threshold
        threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
        values.append(np.where(leaf, np.float32(np.inf), threshold))
        itself = np.arange(tree.node_count)
        both = [np.where(leaf, itself, each) + offset for each in (tree.children_left, tree.children_right)]
        children.append(np.stack(both, axis=1).ravel())
        roots.append(offset)
        offset += tree.node_count
        depth = max(depth, int(tree.max_depth))
    if offset > np.iinfo(np.int16).max:
        raise ValueError(f"the forest has {offset} nodes, more than 16 bits address")
    lengths, positions = np.unique(np.concatenate(paths), return_inverse=True)
    return FlatForest(
        feature=np.concatenate(features).astype(np.int16),
        value=np.concatenate(values).astype(np.float32),
        children=np.concatenate(children).astype(np.int16),
        length=positions.astype(np.int16),
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
