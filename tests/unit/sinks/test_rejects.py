"""A flood of rejects is counted in full and copied in part; letters about letters are not written."""

from __future__ import annotations

from schemas.codec import Rejected
from schemas.topics import DEAD, VERDICTS
from sinks.warehouse.messages import Message
from sinks.warehouse.rejects import Rejects

ERROR = Rejected("not-avro", "starts with 00")


def message(topic: str) -> Message:
    return Message(topic, 0, 1, 0, None, b"\x00")


def test_a_burst_then_so_many_a_second() -> None:
    rejects = Rejects(per_second=2, burst=5)
    assert sum(rejects.judge(message(VERDICTS), ERROR, 10.0) is not None for _ in range(8)) == 5
    assert (rejects.counts["not-avro"], rejects.capped) == (8, 3)
    assert sum(rejects.judge(message(VERDICTS), ERROR, 12.0) is not None for _ in range(8)) == 4
    assert sum(rejects.judge(message(VERDICTS), ERROR, 1e6) is not None for _ in range(8)) == 5


def test_no_letter_about_a_letter() -> None:
    rejects = Rejects()
    assert rejects.judge(message(DEAD), ERROR, 0.0) is None
    assert (rejects.counts["not-avro"], rejects.capped) == (1, 0)
