"""Isolation Forest: fitted by scikit-learn, kept and evaluated as flat arrays.

Score: 2 ** (-mean path length / c(samples)), in (0, 1), higher is stranger (Liu, Ting and Zhou, Isolation Forest,
ICDM 2008); equal to -IsolationForest.score_samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Small = TypeVar("Small", bound=np.unsignedinteger[Any])

MOST_SAMPLES: Final = 128
CHUNK: Final = 2048


@dataclass(frozen=True, slots=True, eq=False)
class FlatForest:
    """Trees of a forest, node after node. The right child of a node comes after the left one, and a leaf is its own
    child, so that all trees can be walked for as many steps as the deepest has.

    feature   uint8 (nodes,): feature that splits
    value     float32 (nodes,): go left if x <= value; infinite in a leaf
    step      uint8 (nodes,): from a node to its left child, 0 in a leaf
    length    uint16 (nodes,): where in `lengths` the path length of a node stands, as if it were a leaf
    lengths   float64: path lengths that occur
    roots     uint16 (trees,)
    depth     longest path
    norm      c(samples)
    """

    feature: NDArray[np.uint8]
    value: Singles
    step: NDArray[np.uint8]
    length: NDArray[np.uint16]
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
            "forest.length": self.length.astype(np.min_scalar_type(len(self.lengths) - 1)),
            "forest.lengths": self.lengths,
            "forest.roots": self.roots,
            "forest.constants": np.array([self.depth, self.norm]),
        }

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The forest that `arrays` came from. Raises KeyError or ValueError for others: compiled code walks through it
        and does not look where it goes.
        """
        depth, norm = arrays["forest.constants"].tolist()
        forest = cls(
            feature=arrays["forest.feature"].astype(np.uint8),
            value=arrays["forest.value"].astype(np.float32),
            step=arrays["forest.step"].astype(np.uint8),
            length=arrays["forest.length"].astype(np.uint16),
            lengths=arrays["forest.lengths"].astype(np.float64),
            roots=arrays["forest.roots"].astype(np.uint16),
            depth=int(depth),
            norm=norm,
        )
        nodes = len(forest.value)
        if not nodes == len(forest.feature) == len(forest.step) == len(forest.length) > forest.depth:
            raise ValueError("the arrays of a forest do not fit together")
        leaf = (forest.step == 0) & np.isposinf(forest.value)
        inside = leaf | (np.arange(nodes) + forest.step + 1 < nodes)
        if not (inside.all() and (forest.length < len(forest.lengths)).all() and (forest.roots < nodes).all()):
            raise ValueError("a forest points outside of itself")
        return forest


def _starts(sizes: Sequence[int]) -> NDArray[np.intp]:
    """Where parts of these sizes start."""
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)


def fit_forest(rows: Singles, trees: int, seed: int) -> tuple[FlatForest, Floats]:
    """Forest on `rows` (n, features), float32 without NaN, and the held-out scores (n,) of the rows.

    Each tree learns from half of the rows, at most MOST_SAMPLES; a row's held-out score is that of the trees that
    have not seen it.
    """
    samples = max(2, min(MOST_SAMPLES, len(rows) // 2))
    grown, drawn = _grow(rows, trees, samples, seed)
    unseen = np.ones((trees, len(rows)), dtype=bool)
    for tree, seen in enumerate(drawn):
        unseen[tree, seen] = False
    unseen[:, ~unseen.any(axis=0)] = True
    paths = [_path_lengths(tree) for tree in grown]
    lengths = np.stack([path[tree.apply(rows)] for tree, path in zip(grown, paths, strict=True)])
    mean = (lengths * unseen).sum(axis=0) / unseen.sum(axis=0)
    return _flatten(grown, paths, samples), np.asarray(2.0 ** (-mean / _norm(samples)))


def _grow(rows: Singles, count: int, samples: int, seed: int) -> tuple[list[Any], list[NDArray[np.intp]]]:
    """Trees of scikit-learn, and which rows each has drawn: the same, bit by bit, as those of its
    IsolationForest(n_estimators=count, max_samples=samples, random_state=seed), which takes ten times as long: it makes
    three generators of random numbers a tree, and clones and checks what grows it.
    """
    from sklearn import config_context  # noqa: PLC0415 - only fitting needs scikit-learn
    from sklearn.tree import ExtraTreeRegressor  # noqa: PLC0415
    from sklearn.utils.random import sample_without_replacement  # noqa: PLC0415

    most, (size, width) = np.iinfo(np.int32).max, rows.shape
    draw = np.random.RandomState(seed)
    targets = draw.uniform(size=(size,))
    draw.seed(seed)
    seeds = draw.randint(most, size=(count,))
    depth = int(np.ceil(np.log2(samples)))
    tree = ExtraTreeRegressor(max_features=1, max_depth=depth, splitter="random", random_state=draw)
    grown: list[Any] = []
    drawn: list[NDArray[np.intp]] = []
    with config_context(skip_parameter_validation=True):
        for each in seeds:
            draw.seed(each)
            its_own = draw.randint(most)
            draw.seed(each)
            sample_without_replacement(width, width, random_state=draw)  # features, of which all are taken
            taken = np.sort(sample_without_replacement(size, samples, random_state=draw))
            draw.seed(its_own)
            grown.append(tree.fit(rows[taken], targets[taken], check_input=False).tree_)
            drawn.append(taken)
    return grown, drawn


def warm_up() -> None:
    """Load what fitting needs, so that the first fit takes no longer than the others."""
    fit_forest(np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32), 2, 0)


def _flatten(trees: Sequence[Any], lengths_of: Sequence[Floats], samples: int) -> FlatForest:
    """Flat arrays of trees that scikit-learn has grown on `samples` rows each, with the path lengths of their nodes."""
    features: list[NDArray[Any]] = []
    values: list[NDArray[Any]] = []
    steps: list[NDArray[Any]] = []
    paths: list[NDArray[Any]] = []
    depth = 0
    for tree, path in zip(trees, lengths_of, strict=True):
        order, step = _in_pairs(tree.children_left, tree.children_right)
        leaf = step == 0
        # x is float32, so x <= threshold and x <= the next float32 at or below it are the same.
        threshold = tree.threshold.astype(np.float32)
        above = threshold.astype(np.float64) > tree.threshold
        threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
        features.append(np.where(leaf, 0, tree.feature[order]))
        values.append(np.where(leaf, np.float32(np.inf), threshold[order]))
        steps.append(step)
        paths.append(path[order])
        depth = max(depth, int(tree.max_depth))
    lengths, positions = np.unique(np.concatenate(paths), return_inverse=True)
    return FlatForest(
        feature=_small(np.concatenate(features), np.uint8),
        value=np.concatenate(values).astype(np.float32),
        step=_small(np.concatenate(steps), np.uint8),
        length=_small(positions, np.uint16),
        lengths=lengths,
        roots=_small(_starts([len(each) for each in values]), np.uint16),
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


def _small(numbers: NDArray[np.intp], kind: type[Small]) -> NDArray[Small]:
    """The same in fewer bits. Raises ValueError if they need more."""
    if numbers.max() > np.iinfo(kind).max:
        raise ValueError(f"the forest has a number that does not fit {kind.__name__}: {numbers.max()}")
    return numbers.astype(kind)


def _path_lengths(tree: Any) -> Floats:
    """Path length of each node, were it a leaf: its depth, and what its samples would still need."""
    return np.asarray(tree.compute_node_depths() - 1 + _mean_path(tree.n_node_samples.astype(np.float64)))


def _norm(samples: int) -> float:
    return float(_mean_path(np.array([samples], dtype=np.float64))[0])


def _mean_path(samples: Floats) -> Floats:
    """c(n), mean path length of an unsuccessful search in a binary search tree of n: 2 H(n-1) - 2 (n-1)/n."""
    with np.errstate(divide="ignore", invalid="ignore"):
        path = 2 * (np.log(samples - 1) + np.euler_gamma) - 2 * (samples - 1) / samples
    return np.where(samples <= 1, 0.0, np.where(samples == 2, 1.0, path))
