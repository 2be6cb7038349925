"""What counts as read: what was sent before the first message that is not, whatever the clock of the reader says."""

from __future__ import annotations

import pytest

from schemas.settings import PipelineSettings
from stream_processors.reading import Reading
from stream_processors.seconds import reduce_batch
from stream_processors.windows import Windows
from tests.synthetic import START, second

NOW = 5000.0


def test_without_anything_unread_time_goes_on() -> None:
    reading = Reading({"cpu": 7, "gpu": 0})
    ends = {"cpu": 7, "gpu": 0}
    assert [reading.upto({}, ends, now) for now in (NOW, NOW + 1, NOW - 60)] == [NOW, NOW + 1, NOW + 1]


def test_a_topic_that_is_behind_holds_time() -> None:
    reading = Reading({})
    reading.read("cpu", 9, 1010.0)
    reading.read("gpu", 3, 1004.0)
    assert reading.upto({}, {"cpu": 10, "gpu": 8}, NOW) == 1004.0
    reading.read("gpu", 6, 1007.0)
    assert reading.upto({}, {"cpu": 12, "gpu": 8}, NOW) == 1007.0
    reading.read("gpu", 7, 1008.0)
    assert reading.upto({}, {"cpu": 12, "gpu": 8}, NOW) == 1010.0  # what is left of cpu was sent later
    assert reading.upto({}, {"cpu": 10, "gpu": 8}, NOW) == NOW


def test_what_is_at_hand_is_not_read() -> None:
    reading = Reading({})
    assert reading.upto({"cpu": 1003.0, "gpu": 1001.0}, {"cpu": 5, "gpu": 5}, NOW) == 1001.0
    reading.read("cpu", 4, 1009.0)
    reading.read("gpu", 2, 1002.0)
    assert reading.upto({"gpu": 1002.5}, {"cpu": 5, "gpu": 5}, NOW) == 1002.5


def test_a_clock_that_is_behind_holds_nothing() -> None:
    reading = Reading({})
    for offset, sent in enumerate((1000.0, 1001.0, 400.0)):
        reading.read("cpu", offset, sent)
    assert reading.upto({"cpu": 401.0}, {"cpu": 9}, NOW) == 1001.0


@pytest.mark.parametrize("end", [None, 5])
def test_nothing_is_known_to_be_read_before_something_was(end: int | None) -> None:
    """Just after an assignment: where a topic ends is not known, or nothing of it has come."""
    reading = Reading({"cpu": 2, "gpu": 4})
    assert reading.upto({"cpu": 1000.0}, {"cpu": 3, "gpu": end}, NOW) == 0.0


def test_what_was_there_before_is_read() -> None:
    """A topic that is empty, or of which all was acknowledged or has expired."""
    reading = Reading({"cpu": 2, "gpu": 4})
    assert reading.upto({"cpu": 1000.0}, {"cpu": 3, "gpu": 4, "memory": 0}, NOW) == 1000.0


@pytest.mark.parametrize(("late_s", "how"), [(2.9, "added"), (3.1, "late")])
def test_a_window_waits_for_what_was_sent_soon(late_s: float, how: str) -> None:
    """However far apart topics are read: `cpu` here, which lay unread meanwhile, 8 s after the others."""
    names = ("cpu", "memory")
    windows = Windows(PipelineSettings(grace_s=3.0), expected=dict.fromkeys(names, START))
    for at in range(12):
        for name in names if at < 3 else names[1:]:
            [part] = reduce_batch(second("h", name, at))
            windows.add(name, part, START + at + 1.0, START + min(at, 3) + 1.0)
            list(windows.close())
    assert windows.next_start == START + 1
    # It is read until the message of the fourth second would be.
    for read_to in range(4, 8):
        windows.wait(START + min(read_to, 4 + late_s))
        list(windows.close())
    [part] = reduce_batch(second("h", "cpu", 3))
    assert windows.add("cpu", part, START + 4 + late_s, START + 4 + late_s) == how
