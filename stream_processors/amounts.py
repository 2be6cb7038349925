"""Amounts that a host has of something: memory, sockets, files. They come and go with whatever runs, stay where they
were put, and say nothing of a fault by themselves.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stream_processors.features import feature_table
from stream_processors.looks import speaks_of_fault
from stream_processors.scaling import USUAL
from stream_processors.seconds import Singles

UNITS: Final = frozenset(
    {"kB", "B", "pages", "blocks", "sockets", "connections", "objects", "entries", "files", "inodes"}
)
FLOWING: Final = frozenset({"mem.dirty", "mem.writeback", "tcp.orphan"})
"""Amounts that are on their way."""
SLOW: Final = frozenset({"cpu.load1", "cpu.load5", "tcp.time_wait"})
"""Gauges that tell of the last minutes."""
LEVELS: Final = frozenset({"level", "maximum", "minimum"})


@cache
def amount_levels() -> NDArray[np.bool_]:
    """Which features (len(feature_table()),) are levels of amounts, or of what takes a minute to follow."""
    return np.array(
        [
            feature.metric.name in SLOW
            or (
                feature.metric.unit in UNITS
                and feature.metric.kind == "gauge"
                and feature.metric.name not in FLOWING
                and not speaks_of_fault(feature.metric)
                and feature.kind in LEVELS
            )
            for feature in feature_table().features
        ]
    )


@cache
def amount_places() -> NDArray[np.intp]:
    """Positions of those features."""
    return np.flatnonzero(amount_levels())


def settled(deviations: Singles) -> bool:
    """Whether nothing is beyond USUAL but levels of amounts that lie elsewhere than they used to, and do not move: what
    is left of something that is over, such as memory that it had, or files that it read.
    """
    strange = np.abs(deviations) > USUAL
    return not bool((strange & ~amount_levels()).any())
