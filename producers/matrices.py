"""From the values of a reading to matrices by metric: (samples, instances), NaN where nothing was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from producers.collector import Layout
from producers.rates import columns
from producers.source import natural
from schemas.catalogue import Metric

Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Segment:
    """A metric's instances in a reading, and its columns once they are ordered by metric."""

    metric: Metric
    instances: tuple[str, ...]
    columns: slice


@dataclass(frozen=True, slots=True)
class Plan:
    """How the values of a layout become matrices: their order by metric, which of them are counters, the segments.

    `order` and `counters` are slices where they can be, which copies nothing.
    """

    order: NDArray[np.intp] | slice
    counters: NDArray[np.intp] | slice
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Values of one metric in a batch: (count, instances), NaN where nothing was read."""

    metric: Metric
    instances: tuple[str, ...]
    values: Matrix


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a batch holds of one subsystem: names of the instances by dimension, and a matrix by metric."""

    instances: Mapping[str, tuple[str, ...]]
    metrics: Mapping[str, Matrix]


class Sheets:
    """Puts the pieces of a batch together, by subsystem."""

    def __init__(self) -> None:
        self._unions: dict[tuple[tuple[str, ...], ...], tuple[str, ...]] = {}

    def __call__(self, pieces: Sequence[Piece], defined: Mapping[str, tuple[str, ...]]) -> dict[str, Sheet]:
        """The sheets of `pieces`. Instances of a dimension are those that `defined` names, or else all that were seen;
        of two pieces of a metric the later one counts where it has a value.
        """
        seen: dict[tuple[str, str], dict[tuple[str, ...], None]] = {}
        for piece in pieces:
            seen.setdefault((piece.metric.subsystem, piece.metric.dimension), {})[piece.instances] = None
        names = {key: defined.get(key[1]) or self.union(tuple(found)) for key, found in seen.items()}
        metrics: dict[str, dict[str, Matrix]] = {}
        for piece in pieces:
            metric = piece.metric
            wanted = names[metric.subsystem, metric.dimension]
            matrix = piece.values if piece.instances == wanted else select(piece, wanted)
            found = metrics.setdefault(metric.subsystem, {})
            if metric.name in found:
                matrix = np.where(np.isnan(matrix), found[metric.name], matrix)
            found[metric.name] = matrix
        return {
            subsystem: Sheet({name: wanted for (owner, name), wanted in names.items() if owner == subsystem}, found)
            for subsystem, found in metrics.items()
        }

    def union(self, found: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
        """All names in `found`, numbers in them in numeric order."""
        union = self._unions.get(found)
        if union is None:
            if len(self._unions) > 100:
                self._unions.clear()
            names = {name for group in found for name in group}
            union = self._unions[found] = tuple(sorted(names, key=natural))
        return union


def plan(layout: Layout, metrics: Mapping[str, Metric]) -> Plan:
    """The plan of `layout`; `metrics` is the catalogue."""
    positions: dict[str, list[int]] = {}
    for index, (name, _) in enumerate(layout.channels):
        positions.setdefault(name, []).append(index)
    order: list[int] = []
    segments: list[Segment] = []
    counters: list[int] = []
    for name, indices in positions.items():
        metric = metrics[name]
        instances = tuple(layout.channels[index][1] for index in indices)
        segments.append(Segment(metric, instances, slice(len(order), len(order) + len(indices))))
        if metric.kind == "counter":
            counters += range(len(order), len(order) + len(indices))
        order += indices
    return Plan(columns(order), columns(counters), tuple(segments))


def spread(segments: Sequence[Segment], rows: list[int], values: Matrix, count: int) -> list[tuple[Segment, Matrix]]:
    """Columns of each segment, in matrices of `count` rows, from values in `rows`."""
    if rows != list(range(count)):
        full = np.full((count, values.shape[1]), np.nan, np.float32)
        full[rows] = values
        values = full
    return [(segment, values[:, segment.columns]) for segment in segments]


def first_row(piece: Piece, count: int) -> Piece:
    """Values (instances,) of `piece` in the first row of a matrix of `count` rows."""
    full = np.full((count, len(piece.instances)), np.nan, np.float32)
    full[0] = piece.values
    return Piece(piece.metric, piece.instances, full)


def select(piece: Piece, wanted: tuple[str, ...]) -> Matrix:
    """Values of `piece` in the columns of `wanted`; NaN for instances that it lacks."""
    places = {name: column for column, name in enumerate(piece.instances)}
    known = [(index, places[name]) for index, name in enumerate(wanted) if name in places]
    matrix = np.full((len(piece.values), len(wanted)), np.nan, np.float32)
    to, source = np.array(known, np.intp).reshape(-1, 2).T
    matrix[:, to] = piece.values[:, source]
    return matrix
