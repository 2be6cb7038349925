"""Segments that TCP sent again: those that were needed.

A receiver tells of segments that it had already (D-SACK, RFC 2883). Those were late or out of order, as they are
between the cores of one host or when a path has become longer, and nothing was lost.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.matrices import Columns

NEEDLESS: Final = "tcp.dsack_recv"
AGAIN: Final = ("tcp.retrans_segs", "tcp.fast_retrans", "tcp.slow_start_retrans", "tcp.lost_retransmit")
Singles = NDArray[np.float32]


def needed(columns: Columns, cells: Singles) -> Singles:
    """Samples float32 `cells` (count, channels) of these columns, with what counts retransmissions less the needless
    ones, and not below 0. Absent values stay absent.

    A receiver tells of a segment after it was sent again, by the time that the path takes: what it tells of in a sample
    is taken off that one and, as far as there was less in it, off the ones before.
    """
    if NEEDLESS not in columns.places:
        return cells
    less = cells[:, columns.places[NEEDLESS].start]
    places = [columns.places[name].start for name in AGAIN if name in columns.places]
    if not places or not np.count_nonzero(less > 0):
        return cells
    less = np.where(less > 0, less, np.float32(0))
    cells = cells.copy()
    again = np.nan_to_num(cells[::-1, places], nan=0.0)  # from the last sample back
    balance = np.cumsum(less[::-1, None] - again, axis=0)
    owed = balance - np.minimum(np.minimum.accumulate(balance, axis=0), 0.0)  # a queue's length, by Lindley's recursion
    before = np.vstack([np.zeros((1, len(places)), np.float32), owed[:-1]])
    taken = (before + less[::-1, None] - owed)[::-1]
    cells[:, places] = np.maximum(cells[:, places] - taken, 0.0)
    return cells
