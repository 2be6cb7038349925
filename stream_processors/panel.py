"""The ensembles of a host side by side: all of them judge one window in a few sweeps over flat arrays.

It says what Ensemble.judge says of one row, only much sooner: what numpy costs a call is paid once, not once for each
ensemble and detector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stream_processors.detectors import IsolationForest, Residual, ranks
from stream_processors.ensemble import Ensemble, Told
from stream_processors.forest import FlatForest, Grove
from stream_processors.scaling import CLIP
from stream_processors.subspace import Subspace

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Ensembles, and what their detectors have learnt, one after the other.

    ensembles         whose forests are parts of `grove`
    kept              (features,): positions in the feature table of what they look at
    parts             features of each ensemble
    axes              of the subspace of each ensemble
    center            float32 (features,)
    scales            float32 (components,)
    starts            (ensembles,): first feature
    sizes             (ensembles,): number of features
    component_starts  (ensembles,): first component
    components        (ensembles,): number of components
    rest              (ensembles,)
    ranked            (ranks,): where the |z| at the ranks are once those of each ensemble are sorted
    """

    ensembles: tuple[Ensemble, ...]
    grove: Grove
    kept: Places
    parts: tuple[slice, ...]
    axes: tuple[Singles, ...]
    center: Singles
    scales: Singles
    starts: Places
    sizes: Floats
    component_starts: Places
    components: Floats
    rest: Floats
    ranked: Places

    @classmethod
    def of(cls, ensembles: Sequence[Ensemble], kept: Sequence[NDArray[np.int16]]) -> Self:
        """Of ensembles, at least one, that look at these positions of the feature table."""
        sizes = [len(each) for each in kept]
        ends = np.cumsum(sizes)
        parts = tuple(slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True))
        places = [[part.stop - 1 - rank for rank in ranks(part.stop - part.start)] for part in parts]
        spaces = [_space(each) for each in ensembles]
        components = [len(space.scales) for space in spaces]
        grove = Grove.of([_forest(each) for each in ensembles], [len(each) for each in places])
        return cls(
            ensembles=tuple(
                replace(each, detectors={**each.detectors, "iforest": IsolationForest(forest)})
                for each, forest in zip(ensembles, grove.forests, strict=True)
            ),
            grove=grove,
            kept=np.concatenate(kept).astype(np.intp),
            parts=parts,
            axes=tuple(space.axes for space in spaces),
            center=np.concatenate([space.center for space in spaces]),
            scales=np.concatenate([space.scales for space in spaces]),
            starts=np.array([part.start for part in parts]),
            sizes=np.array(sizes, np.float64),
            component_starts=np.array([0, *np.cumsum(components)[:-1]], np.intp),
            components=np.array(components, np.float64),
            rest=np.array([space.rest for space in spaces]),
            ranked=np.concatenate(places).astype(np.intp),
        )

    def judge(self, deviations: Singles) -> list[tuple[Told, float]]:
        """Of each ensemble the score and tail probability by detector, and that of all together, of a window with these
        deviations (len(feature_table()),). A feature that is absent counts as expected.
        """
        row = deviations.take(self.kept)
        row[np.isnan(row)] = 0
        np.maximum(np.minimum(row, CLIP, out=row), -CLIP, out=row)
        gap = row - self.center
        along = np.concatenate([axes @ gap[part] for axes, part in zip(self.axes, self.parts, strict=True)])
        inside = _squares(along / self.scales, self.component_starts)
        outside = _squares(gap, self.starts) - _squares(along, self.component_starts)
        size = np.abs(row, out=row)
        mean = np.add.reduceat(size, self.starts, dtype=np.float64) / self.sizes
        for part in self.parts:
            size[part].sort()
        scores = {
            "zscore": mean,
            "mahalanobis": np.sqrt(inside / self.components),
            "iforest": self.grove.scores(size.take(self.ranked)),
            "residual": np.sqrt(np.maximum(outside, 0) / self.rest),
        }
        rows = zip(*(each.tolist() for each in scores.values()), strict=True)
        return [
            ensemble.tails(dict(zip(scores, row, strict=True)))
            for ensemble, row in zip(self.ensembles, rows, strict=True)
        ]


def _squares(values: NDArray[np.floating[Any]], starts: Places) -> Floats:
    """Sums of squares of parts of `values`."""
    wide = values.astype(np.float64)
    return np.add.reduceat(wide * wide, starts)


def _space(ensemble: Ensemble) -> Subspace:
    residual = ensemble.detectors["residual"]
    assert isinstance(residual, Residual)
    return residual.space


def _forest(ensemble: Ensemble) -> FlatForest:
    forest = ensemble.detectors["iforest"]
    assert isinstance(forest, IsolationForest)
    return forest.forest
