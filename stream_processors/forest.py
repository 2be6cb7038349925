"""Isolation Forest: fitted by scikit-learn, kept and evaluated as flat arrays.

Score: 2 ** (-mean path length / c(samples)), in (0, 1), higher is stranger (Liu, Ting and Zhou, Isolation Forest,
ICDM 2008); equal to -IsolationForest.score_samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    """Trees of a forest, node after node. The right child of a node comes after the left one, and a leaf is its own
    child, so that all trees can be walked for as many steps as the deepest has.

    feature   uint8 or uint16 (nodes,): feature that splits
    value     float32 (nodes,): go left if x <= value; infinite in a leaf
    step      uint8 or uint16 (nodes,): from a node to its left child, 0 in a leaf
    length    uint8 or uint16 (nodes,): where in `lengths` the path length of a node stands, as if it were a leaf
    lengths   float64: path lengths that occur
    roots     uint16 (trees,)
    depth     longest path
    norm      c(samples)
    """

    feature: NDArray[Any]
    value: Singles
    step: NDArray[Any]
    length: NDArray[Any]
    lengths: Floats
    roots: NDArray[np.uint16]
    depth: int
    norm: float

    def scores(self, rows: Singles) -> Floats:
        """Scores (n,) of rows (n, features), float32 without NaN."""
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

    def _walk(self, rows: Singles) -> NDArray[np.intp]:
        """Nodes (depth + 1, n, trees) that the rows come through."""
        each = np.arange(len(rows))[:, None]
        node = np.broadcast_to(self.roots.astype(np.intp), (len(rows), len(self.roots)))
        steps = [node]
        for _ in range(self.depth):
            node = node + self.step[node] + (rows[each, self.feature[node]] > self.value[node])
            steps.append(node)
        return np.stack(steps)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Everything learnt."""
        return {
            "forest.feature": self.feature,
            "forest.value": self.value,
            "forest.step": self.step,
            "forest.length": self.length,
            "forest.lengths": self.lengths,
            "forest.roots": self.roots,
            "forest.constants": np.array([self.depth, self.norm]),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The forest that `arrays` came from."""
        names = ("feature", "value", "step", "length", "lengths", "roots")
        feature, value, step, length, lengths, roots = (arrays[f"forest.{name}"] for name in names)
        depth, norm = arrays["forest.constants"].tolist()
        return cls(feature, value, step, length, lengths, roots, int(depth), norm)


@dataclass(frozen=True, slots=True, eq=False)
class Grove:
    """Forests side by side: one row of each is scored while all trees are walked together.

    forests  each a part of the arrays here
    roots    (trees,); feature, value, step, length and lengths are as in FlatForest
    first    (trees,): where the row of a tree's forest begins among the rows of all
    table    (trees,): where its forest's lengths begin
    starts   (forests,): first tree
    scale    (forests,): what makes of a sum of path lengths the logarithm of a score
    depth    longest path
    """

    forests: tuple[FlatForest, ...]
    feature: NDArray[Any]
    value: Singles
    step: NDArray[Any]
    length: NDArray[Any]
    lengths: Floats
    roots: NDArray[np.intp]
    first: NDArray[np.intp]
    table: NDArray[np.intp]
    starts: NDArray[np.intp]
    scale: Floats
    depth: int

    @classmethod
    def of(cls, forests: Sequence[FlatForest], widths: Sequence[int]) -> Self:
        """From forests whose rows have so many features."""
        trees = [len(forest.roots) for forest in forests]
        nodes = _starts([len(forest.value) for forest in forests])
        tables = _starts([len(forest.lengths) for forest in forests])
        feature, value, step, length, lengths = (
            np.concatenate([getattr(forest, name) for forest in forests])
            for name in ("feature", "value", "step", "length", "lengths")
        )
        parts = [slice(start, start + len(forest.value)) for start, forest in zip(nodes, forests, strict=True)]
        own = [
            replace(forest, feature=feature[part], value=value[part], step=step[part], length=length[part])
            for forest, part in zip(forests, parts, strict=True)
        ]
        return cls(
            forests=tuple(own),
            feature=feature,
            value=value,
            step=step,
            length=length,
            lengths=lengths,
            roots=np.concatenate([forest.roots + start for forest, start in zip(forests, nodes, strict=True)]),
            first=np.repeat(_starts(widths), trees),
            table=np.repeat(tables, trees),
            starts=_starts(trees),
            scale=np.array([-1 / (count * forest.norm) for count, forest in zip(trees, forests, strict=True)]),
            depth=max(forest.depth for forest in forests),
        )

    def scores(self, row: Singles) -> Floats:
        """Scores (forests,) of the rows of all forests, one after the other in `row`."""
        node = self.roots
        for _ in range(self.depth):
            right = row.take(self.feature.take(node) + self.first) > self.value.take(node)
            node = node + self.step.take(node) + right
        lengths = self.lengths.take(self.length.take(node) + self.table)
        return np.asarray(np.exp2(np.add.reduceat(lengths, self.starts) * self.scale))


def _starts(sizes: Sequence[int]) -> NDArray[np.intp]:
    """Where parts of these sizes start."""
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)


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
    steps: list[NDArray[Any]] = []
    paths: list[NDArray[Any]] = []
    depth = 0
    for estimator in forest.estimators_:
        tree = estimator.tree_
        order, step = _in_pairs(tree.children_left, tree.children_right)
        leaf = step == 0
        # x is float32, so x <= threshold and x <= the next float32 at or below it are the same.
        threshold = tree.threshold.astype(np.float32)
        above = threshold.astype(np.float64) > tree.threshold
        threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
        features.append(np.where(leaf, 0, tree.feature[order]))
        values.append(np.where(leaf, np.float32(np.inf), threshold[order]))
        steps.append(step)
        paths.append(_path_lengths(tree)[order])
        depth = max(depth, int(tree.max_depth))
    lengths, positions = np.unique(np.concatenate(paths), return_inverse=True)
    return FlatForest(
        feature=_small(np.concatenate(features)),
        value=np.concatenate(values).astype(np.float32),
        step=_small(np.concatenate(steps)),
        length=_small(positions),
        lengths=lengths,
        roots=_starts([len(each) for each in values]).astype(np.uint16),
        depth=depth,
        norm=_norm(samples),
    )


def _in_pairs(left: NDArray[Any], right: NDArray[Any]) -> tuple[list[int], NDArray[np.intp]]:
    """Nodes of a tree in an order in which children stand side by side, and from each the step to its left child."""
    order, steps = [0], []
    for place, node in enumerate(order):  # which grows meanwhile
        steps.append(0 if left[node] < 0 else len(order) - place)
        if left[node] >= 0:
            order += [int(left[node]), int(right[node])]
    return order, np.array(steps)


def _small(numbers: NDArray[Any]) -> NDArray[Any]:
    """The same in 8 or 16 bits. Raises ValueError if they need more."""
    kind = np.min_scalar_type(int(numbers.max()))
    if kind.itemsize > 2:
        raise ValueError(f"the forest has a number that needs more than 16 bits: {numbers.max()}")
    return numbers.astype(kind)


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
