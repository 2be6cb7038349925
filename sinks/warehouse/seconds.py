"""Telemetry matrices to one summary a metric, all metrics of all batches at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
NOTHING: Final = np.empty(0, np.float32)
PORTION: Final = 65_536  # values at a time: what stays in the processor's cache is reduced twice as fast


@dataclass(frozen=True, slots=True)
class Summaries:
    """One element a matrix, in the order they were given.

    mean, min, max  float32, over all values present; NaN where none is
    spread          float32, mean over samples of the standard deviation over instances; NaN where no value is present
    samples         uint32, number of values present
    """

    mean: NDArray[np.float32]
    min: NDArray[np.float32]
    max: NDArray[np.float32]
    spread: NDArray[np.float32]
    samples: NDArray[np.uint32]


def summarise(matrices: Sequence[Matrix]) -> Summaries:
    """Summaries of float32 matrices of shape (count, instances), count and instances above zero, NaN where absent.

    Two passes of `reduceat` over one flat array: rows (the instances of one sample), then matrices. So the cost is
    that of the values, not of the number of metrics, shapes and hosts.
    """
    parts = [_summarise(part) for part in _portions(matrices)]
    return Summaries(
        mean=np.concatenate([NOTHING, *(part.mean for part in parts)]),
        min=np.concatenate([NOTHING, *(part.min for part in parts)]),
        max=np.concatenate([NOTHING, *(part.max for part in parts)]),
        spread=np.concatenate([NOTHING, *(part.spread for part in parts)]),
        samples=np.concatenate([np.empty(0, np.uint32), *(part.samples for part in parts)]),
    )


def _portions(matrices: Sequence[Matrix]) -> Iterator[Sequence[Matrix]]:
    begin = cells = 0
    for place, matrix in enumerate(matrices):
        cells += matrix.size
        if cells >= PORTION:
            yield matrices[begin : place + 1]
            begin, cells = place + 1, 0
    if begin < len(matrices):
        yield matrices[begin:]


def _summarise(matrices: Sequence[Matrix]) -> Summaries:
    counts = np.fromiter((matrix.shape[0] for matrix in matrices), np.int64, len(matrices))
    widths = np.fromiter((matrix.shape[1] for matrix in matrices), np.int64, len(matrices))
    cells = np.concatenate([matrix.ravel() for matrix in matrices])
    row_widths = np.repeat(widths, counts)
    rows = np.cumsum(row_widths) - row_widths
    starts = np.cumsum(counts) - counts
    present = ~np.isnan(cells)
    whole = bool(present.all())
    values = (cells if whole else np.where(present, cells, np.float32(0))).astype(np.float64)
    known = row_widths if whole else np.add.reduceat(present, rows, dtype=np.int64)
    samples = np.add.reduceat(known, starts)
    row_sums = np.add.reduceat(values, rows)
    # A row without a value has nothing to add; dividing by one keeps it so.
    known_or_one = np.maximum(known, 1)
    deviations = values - np.repeat(row_sums / known_or_one, row_widths)
    if not whole:
        deviations[~present] = 0
    row_spreads = np.sqrt(np.add.reduceat(deviations * deviations, rows) / known_or_one)
    # 0 / 0 where no value is present is NaN, as promised.
    with np.errstate(invalid="ignore"):
        mean = np.add.reduceat(row_sums, starts) / samples
        spread = np.add.reduceat(row_spreads, starts) / np.add.reduceat(known > 0, starts, dtype=np.int64)
    return Summaries(
        mean=mean.astype(np.float32),
        min=np.fmin.reduceat(cells, rows[starts]),
        max=np.fmax.reduceat(cells, rows[starts]),
        spread=spread.astype(np.float32),
        samples=samples.astype(np.uint32),
    )
