"""The detectors of the ensemble. Each learns from standardised rows and scores others: higher is stranger.

A detector is a frozen set of plain arrays (`learn` makes it, `arrays`/`restore` carry it through the models topic),
so that a model is data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from stream_processors.forest import FlatForest, fit_forest
from stream_processors.subspace import Subspace

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]

TREES: Final = 25
FOLDS: Final = 4
SMALLEST_LEFT: Final = 0.5
"""Variance of what is left of a feature, at least: half of its own. A hundred rows say little of how closely metrics
keep together, and drift below `learning.DRIFT` is not followed.
"""
RANKS: Final = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the detectors learn from: standardised rows (n, features), n >= 16, in order of time, cut at CLIP, without
    NaN.

    Held out are FOLDS blocks of neighbours, since windows overlap and what a row has taught is no surprise in it.

    whole  the subspace of all rows
    folds  of each block its rows, and the subspace of the other rows, with as many components: with fewer, more would
           be left of a row that is held out than of one that is judged
    """

    rows: Singles
    seed: int
    whole: Subspace
    folds: tuple[tuple[NDArray[np.intp], Subspace], ...]

    @classmethod
    def of(cls, rows: Singles, seed: int) -> Self:
        """Find the subspaces."""
        whole = Subspace.fit(rows)
        blocks = np.array_split(np.arange(len(rows)), FOLDS)
        folds = [(block, Subspace.fit(np.delete(rows, block, axis=0), len(whole.axes))) for block in blocks]
        return cls(rows, seed, whole, tuple(folds))


class Detector(Protocol):
    """What the ensemble asks of a detector. RESOLUTION is the smallest difference of its scores that means anything."""

    RESOLUTION: ClassVar[float]

    @classmethod
    def learn(cls, lesson: Lesson) -> tuple[Self, Floats]:
        """The detector that `lesson` teaches, and the held-out scores (n,) of its rows: each by what has not learnt
        from the row, since scores of learnt rows are too good.
        """

    def scores(self, rows: Singles) -> Floats:
        """Strangeness (n,) of rows (n, features)."""

    def contributions(self, row: Singles) -> Floats:
        """How much each feature (features,) adds to the strangeness of a row; not below 0."""

    def arrays(self) -> Arrays:
        """Everything learnt, as arrays. Detectors that share an array give it the same name; it is kept once."""

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """The detector that `arrays` came from, which may hold those of others too."""


@dataclass(frozen=True, slots=True)
class ZScore:
    """Mean absolute z over the features of a window."""

    RESOLUTION: ClassVar[float] = 0.02

    @classmethod
    def learn(cls, lesson: Lesson) -> tuple[Self, Floats]:
        """Nothing to learn: rows are standardised."""
        return cls(), cls().scores(lesson.rows)

    def scores(self, rows: Singles) -> Floats:
        """Mean of |z|."""
        return np.asarray(np.abs(rows).mean(axis=1), dtype=np.float64)

    def contributions(self, row: Singles) -> Floats:
        """|z| / features: they sum to the score."""
        return np.abs(row).astype(np.float64) / len(row)

    def arrays(self) -> Arrays:
        """None."""
        return {}

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """There is only one."""
        return cls()


@dataclass(frozen=True, slots=True)
class Mahalanobis:
    """Mahalanobis distance within the subspace of the principal components (Hotelling's T²; Jackson and Mudholkar,
    Control procedures for residuals associated with principal component analysis, 1979): what moves as usual, but
    further.
    """

    RESOLUTION: ClassVar[float] = 0.2

    space: Subspace

    @classmethod
    def learn(cls, lesson: Lesson) -> tuple[Self, Floats]:
        """A block is judged by the subspace of the others."""
        held_out = [cls(space).scores(lesson.rows[block]) for block, space in lesson.folds]
        return cls(lesson.whole), np.concatenate(held_out)

    def scores(self, rows: Singles) -> Floats:
        """Root of the mean square of the places along the axes, in standard deviations: 1 on average on the rows."""
        within = (rows - self.space.center) @ self.space.axes.T / self.space.scales
        return np.asarray(np.sqrt(np.square(within, dtype=np.float64).mean(axis=1)))

    def contributions(self, row: Singles) -> Floats:
        """Share of each feature in the squared distance, which is a sum over features of gap times weighted gap
        (complete decomposition; Alcala and Qin, Reconstruction-based contribution, 2009); below 0 counts as 0.
        """
        gap = (row - self.space.center).astype(np.float64)
        weighted = self.space.axes / self.space.scales[:, None]
        return np.maximum(gap * (weighted.T @ (weighted @ gap)), 0.0) / len(self.space.scales)

    def arrays(self) -> Arrays:
        """Those of the subspace."""
        return self.space.arrays()

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """From those of the subspace."""
        return cls(Subspace.restore(arrays))


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """Distance from the subspace of the principal components (squared prediction error or Q statistic; Jackson and
    Mudholkar 1979), of each feature in the standard deviations of what is left of it (the unique variances of factor
    analysis: Lawley and Maxwell, Factor analysis as a statistical method, 1962): a metric that leaves the company it
    kept. Those that always kept to themselves do not drown it.

    rest  float32 (features,), mean square of what the subspace leaves of rows that it has not learnt, as far as float16
          goes, which holds it in a record; at least SMALLEST_LEFT
    """

    RESOLUTION: ClassVar[float] = 0.05

    space: Subspace
    rest: Singles

    @classmethod
    def learn(cls, lesson: Lesson) -> tuple[Self, Floats]:
        """A block is judged by the subspace of the others."""
        left = np.concatenate([space.split(lesson.rows[block])[1] for block, space in lesson.folds])
        rest = _rest(np.square(left, dtype=np.float64).mean(axis=0))
        return cls(lesson.whole, rest), np.sqrt(_squares(left, rest).mean(axis=1))

    def scores(self, rows: Singles) -> Floats:
        """Root of the mean square of what is left of the features, in standard deviations: 1 on average."""
        return np.asarray(np.sqrt(_squares(self.space.split(rows)[1], self.rest).mean(axis=1)))

    def contributions(self, row: Singles) -> Floats:
        """Square of what is left of each feature, in standard deviations: their mean is the square of the score."""
        return _squares(self.space.split(row[None])[1][0], self.rest)

    def arrays(self) -> Arrays:
        """Those of the subspace, and what it leaves."""
        return {**self.space.arrays(), "subspace.rest": self.rest.astype(np.float16)}

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """From those of the subspace, and what it leaves."""
        space, rest = Subspace.restore(arrays), np.asarray(arrays["subspace.rest"], np.float32)
        width = len(space.center)
        if rest.shape == (1,) != (width,):  # a version before kept the sum of all features
            rest = np.full(width, rest[0] / width, np.float32)
        if rest.shape != (width,):
            raise ValueError(f"what is left of {rest.shape} features, of {width}")
        return cls(space, _rest(rest))


@dataclass(frozen=True, slots=True)
class IsolationForest:
    """Isolation Forest of TREES trees, evaluated as flat arrays, on the profile of a row: its largest |z|, the second
    largest, and so on at the RANKS.

    A forest on the features themselves hardly sees a fault: a tree splits six times, and of five hundred features it
    would have to come upon the ten that are strange. In the profile they stand together, however many others there are.
    """

    RESOLUTION: ClassVar[float] = 0.01

    forest: FlatForest

    @classmethod
    def learn(cls, lesson: Lesson) -> tuple[Self, Floats]:
        """Fitted by scikit-learn; held out are the rows that a tree has not drawn."""
        forest, scores = fit_forest(profile(lesson.rows), TREES, lesson.seed)
        return cls(forest), scores

    def scores(self, rows: Singles) -> Floats:
        """Anomaly score of Isolation Forest, in (0, 1)."""
        return self.forest.scores(profile(rows))

    def contributions(self, row: Singles) -> Floats:
        """By how much the splits at a rank shorten the paths, given to the features from there to the rank before."""
        order = np.argsort(-np.abs(row), kind="stable")
        found = np.zeros(len(row))
        before = 0
        for rank, part in zip(ranks(len(row)), self.forest.contributions(profile(row[None])[0]), strict=True):
            found[order[before : rank + 1]] += part / (rank + 1 - before)
            before = rank + 1
        return found

    def arrays(self) -> Arrays:
        """The flat arrays."""
        return self.forest.arrays()

    @classmethod
    def restore(cls, arrays: Arrays) -> Self:
        """From the flat arrays."""
        return cls(FlatForest.restore(arrays))


def _rest(squares: NDArray[Any]) -> Singles:
    """As a record holds them, so that a model that is restored is the same."""
    return np.asarray(np.maximum(squares, SMALLEST_LEFT), np.float16).astype(np.float32)


def _squares(left: Singles, rest: Singles) -> Floats:
    """Squares of what is left (..., features), in standard deviations."""
    return np.asarray(np.square(left, dtype=np.float64) / rest)


def profile(rows: Singles) -> Singles:
    """The |z| of rows (n, features) at the RANKS that there are, (n, ranks)."""
    width = rows.shape[1]
    return np.sort(np.abs(rows), axis=1).take([width - 1 - rank for rank in ranks(width)], axis=1)


def ranks(width: int) -> list[int]:
    """The RANKS that a row of so many features has."""
    return [rank for rank in RANKS if rank < width]


DETECTORS: Final[Mapping[str, type[Detector]]] = {
    "zscore": ZScore,
    "mahalanobis": Mahalanobis,
    "iforest": IsolationForest,
    "residual": Residual,
}
WEIGHTS: Final[Mapping[str, float]] = {"zscore": 1 / 6, "mahalanobis": 1 / 6, "iforest": 1 / 6, "residual": 1 / 2}
"""How much each counts in the severity. Three ask how far metrics have moved, and mostly say the same; whether they
have left each other's company counts as much as those together.
"""
VOTERS: Final = ("zscore", "mahalanobis", "iforest")
"""Those that the paper lets vote."""
