"""Segments that TCP sent again: those that were needed.

A receiver tells of segments that it had already (D-SACK, RFC 2883). Those were late or out of order, as they are
between the cores of one host, and nothing was lost.
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
    """
    if NEEDLESS not in columns.places:
        return cells
    less = cells[:, columns.places[NEEDLESS]]
    if not np.count_nonzero(less > 0):
        return cells
    less = np.where(less > 0, less, np.float32(0))
    cells = cells.copy()
    for name in AGAIN:
        if (place := columns.places.get(name)) is not None:
            cells[:, place] = np.maximum(cells[:, place] - less, 0.0)
    return cells
