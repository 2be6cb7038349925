"""Retransmissions that the receiver did not need say nothing of loss."""

from __future__ import annotations

import numpy as np

from schemas.matrices import Matrices
from stream_processors.retransmits import AGAIN, NEEDLESS, needed


def samples(**values: list[float]) -> Matrices:
    return Matrices.of({f"tcp.{name}": np.array([row]).T.astype(np.float32) for name, row in values.items()})


def told(matrices: Matrices) -> dict[str, list[float]]:
    cells = needed(matrices.columns, matrices.cells)
    return {name: cells[:, place].ravel().tolist() for name, place in matrices.columns.places.items()}


def test_what_the_receiver_had_already_is_taken_off() -> None:
    before = samples(retrans_segs=[0, 30, 60], fast_retrans=[0, 30, 55], in_segs=[9, 9, 9], dsack_recv=[0, 30, 2])
    after = told(before)
    assert after["tcp.retrans_segs"] == [0, 0, 58]
    assert after["tcp.fast_retrans"] == [0, 0, 53]
    assert (after["tcp.in_segs"], after["tcp.dsack_recv"]) == ([9, 9, 9], [0, 30, 2])
    assert before["tcp.retrans_segs"].ravel().tolist() == [0, 30, 60], "the message stays as it came"


def test_what_was_sent_again_earlier_is_taken_off_where_it_was_sent() -> None:
    """The receiver's word comes a round trip later: here two samples."""
    after = told(samples(retrans_segs=[0, 40, 20, 0, 0, 5], dsack_recv=[0, 0, 0, 40, 20, 0]))
    assert after["tcp.retrans_segs"] == [0, 0, 0, 0, 0, 5]
    assert told(samples(retrans_segs=[50, 0], dsack_recv=[0, 20]))["tcp.retrans_segs"] == [30, 0]
    assert told(samples(retrans_segs=[0, 50], dsack_recv=[20, 0]))["tcp.retrans_segs"] == [0, 50], "not later ones"


def test_a_network_that_doubles_packets_makes_nothing_negative_and_what_is_absent_stays_so() -> None:
    after = told(samples(retrans_segs=[1, np.nan, 5], dsack_recv=[7, 7, np.nan]))
    assert after["tcp.retrans_segs"][0] == 0
    assert np.isnan(after["tcp.retrans_segs"][1])
    assert after["tcp.retrans_segs"][2] == 5


def test_without_duplicates_nothing_is_copied() -> None:
    for matrices in (samples(retrans_segs=[4], dsack_recv=[0]), samples(retrans_segs=[4])):
        assert needed(matrices.columns, matrices.cells) is matrices.cells
    assert NEEDLESS not in AGAIN
