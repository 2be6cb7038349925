"""When a batch is due, and what it commits."""

from __future__ import annotations

import math

from sinks.warehouse.lanes import Lane
from sinks.warehouse.messages import Accepted
from tests.unit.sinks.examples import letter, verdict


def item(offset: int, partition: int = 0) -> Accepted:
    return Accepted(verdict("h1", offset), partition, offset, 0)


def test_an_empty_lane_is_never_due() -> None:
    assert Lane(10, 1.0).wait(1e9) == math.inf


def test_due_by_age_of_the_first_message() -> None:
    lane = Lane(10, 1.0)
    lane.accept(item(0), "t", 100.0)
    lane.accept(item(1), "t", 100.9)
    assert lane.wait(100.9) > 0
    assert lane.wait(101.0) == 0


def test_due_by_rows_and_empty_after_taking() -> None:
    lane = Lane(2, 1.0)
    lane.accept(item(0), "t", 100.0)
    assert lane.wait(100.0) == 1.0
    lane.accept(item(1), "t", 100.0)
    assert lane.wait(100.0) == 0
    assert len(lane.take().accepted) == 2
    assert lane.wait(1e9) == math.inf


def test_a_slow_write_is_followed_by_a_rest_unless_the_batch_is_full() -> None:
    lane = Lane(2, 0.1)
    lane.written(10.0, 11.0)
    lane.accept(item(0), "t", 11.0)
    assert lane.wait(11.25) == 0.75
    lane.accept(item(1), "t", 11.5)
    assert lane.wait(11.5) == 0


def test_commits_the_offset_after_the_last_message_also_of_rejects() -> None:
    lane = Lane(10, 1.0)
    lane.accept(item(7), "t", 0.0)
    lane.accept(item(3, partition=1), "t", 0.0)
    lane.reject("t", 0, 8, letter(8), 0.0)
    lane.reject("t", 0, 9, None, 0.0)
    batch = lane.take()
    assert batch.offsets == {("t", 0): 10, ("t", 1): 4}
    assert batch.letters == [letter(8)]


def test_a_batch_given_back_goes_before_what_came_meanwhile() -> None:
    lane = Lane(10, 1.0)
    lane.accept(item(0), "t", 0.0)
    lane.accept(item(0, partition=1), "t", 0.0)
    failed = lane.take()
    lane.accept(item(1), "t", 0.5)
    failed.forget({("t", 1)})
    lane.restore(failed)
    assert lane.wait(0.5) == 0
    batch = lane.take()
    assert [accepted.offset for accepted in batch.accepted] == [0, 0, 1]
    assert batch.offsets == {("t", 0): 2}
    assert batch.rows == 3


def test_what_is_passed_over_is_committed_with_the_rest_and_due_for_nothing() -> None:
    lane = Lane(100, 1.0)
    lane.skip("reveal.models", 3, 41)
    assert lane.wait(10.0) == float("inf")
    assert lane.take().offsets == {("reveal.models", 3): 42}


def test_the_oldest_record_is_known_through_a_failed_write() -> None:
    lane = Lane(100, 1.0)
    for offset, time_ms in enumerate((0, 7_000, 5_000)):
        lane.accept(Accepted(verdict("h", offset), 0, offset, time_ms), "reveal.verdicts", 0.0)
    batch = lane.take()
    assert batch.oldest_ms == 5_000
    lane.accept(Accepted(verdict("h", 3), 0, 3, 9_000), "reveal.verdicts", 0.0)
    lane.restore(batch)
    assert lane.batch.oldest_ms == 5_000
