"""Rows of a warm-up that are no example of what is normal.

Whoever learns from what came first learns from whatever went wrong meanwhile: a service that started, a fault of some
seconds. A few such windows stretch the idea of what is normal until nothing is strange. So bursts are left out, as
robust estimates of location and scatter leave out the rows that are far from the bulk (Rousseeuw and Van Driessen, A
fast algorithm for the minimum covariance determinant estimator, 1999), unless they are how the host is: what takes a
large share of the time, happens all the time, or comes back in the same shape again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream_processors.seconds import Singles

Flags = NDArray[np.bool_]

EXTREME: Final = 3.5
"""A row is strange whose root mean square z is so many times that of the median row."""
SMALLEST: Final = 0.15
"""Root mean square z of the median row that is reckoned with at least: an idle host."""
MOST: Final = 0.4
"""What makes up more of the rows of a subsystem, or goes on for more of the time, is how it is."""
LEAST_LEFT: Final = 0.5
"""At least so many of the rows are left when each subsystem leaves out what is unusual in any of them."""
SAME_RUN_S: Final = 4
"""Strange rows at most so far apart are one burst. Its neighbours hold its first and last sample."""
OFTEN_S: Final = 15
"""What comes every so many seconds on average happens all the time, whatever it is."""
TIMES: Final = 4
"""What came back so often, in the same shape and evenly, is a rhythm of the host."""
EVENLY: Final = 1.75
"""No pause between its beginnings is longer than so many times what it would be if they were spread evenly."""
ALIKE: Final = 0.7
"""Cosine of two shapes from which on they are of one kind."""


def usual(standard: Mapping[str, Singles], starts: NDArray[np.int64]) -> Mapping[str, Flags]:
    """Rows (n,) that are examples of what is normal, by subsystem.

    standard  by subsystem, standardised rows (n, features of the subsystem), by a scale that does not know the tails
    starts    when the rows start, s, (n,), in order of time

    A burst in one subsystem is one of the host: what of it is seen in the others is not normal either.
    """
    own: dict[str, Flags] = {}
    for name, rows in standard.items():
        own[name] = np.ones(len(starts), dtype=bool)
        for burst in _isolated(rows, starts):
            own[name][_with_neighbours(burst, starts)] = False
        if own[name].mean() < LEAST_LEFT:
            own[name][:] = True
    everywhere: Flags = np.logical_and.reduce(list(own.values()))
    return dict.fromkeys(own, everywhere) if everywhere.mean() >= LEAST_LEFT else own


def _isolated(rows: Singles, starts: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Bursts of a subsystem, as positions of rows, that are not how it is."""
    strangeness = np.sqrt(np.square(rows, dtype=np.float64).mean(axis=1))
    strange = np.flatnonzero(strangeness > EXTREME * max(float(np.median(strangeness)), SMALLEST))
    if not 0 < len(strange) <= MOST * len(rows):
        return []
    bursts = np.split(strange, np.flatnonzero(np.diff(starts[strange]) > SAME_RUN_S) + 1)
    begin, end = int(starts[0]), int(starts[-1]) + 1
    bursts = [burst for burst in bursts if starts[burst[-1]] - starts[burst[0]] <= MOST * (end - begin)]
    if len(bursts) * OFTEN_S >= end - begin:
        return []
    kinds: list[list[NDArray[np.intp]]] = []
    for burst in bursts:
        shape = rows[burst].mean(axis=0)
        kind = next((each for each in kinds if _cosine(shape, rows[each[0]].mean(axis=0)) >= ALIKE), None)
        if kind is None:
            kinds.append([burst])
        else:
            kind.append(burst)
    return [
        burst for kind in kinds if not _rhythm([int(starts[burst[0]]) for burst in kind], begin, end) for burst in kind
    ]


def _rhythm(beginnings: Iterable[int], begin: int, end: int) -> bool:
    """Whether something that began then, s, comes evenly from `begin` to `end`."""
    pauses = np.diff([begin, *beginnings, end])
    return len(pauses) > TIMES and float(pauses.max()) <= EVENLY * float(pauses.mean())


def _with_neighbours(burst: NDArray[np.intp], starts: NDArray[np.int64]) -> NDArray[np.intp]:
    first, last = int(starts[burst[0]]), int(starts[burst[-1]])
    return np.flatnonzero((starts >= first - 1) & (starts <= last + 1))


def _cosine(one: Singles, other: Singles) -> float:
    product = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / product if product > 0 else 0.0
