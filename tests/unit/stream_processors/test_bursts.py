"""What a host does now and then belongs to it once it came often enough."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stream_processors.bursts import LONGER_S, LONGEST_S, MOST, RECURS_S, STRONGER, TIMES, Bursts
from stream_processors.shapes import Singles

METRICS = 40


def moving(*metrics: int, by: float = 2.0) -> Singles:
    sizes = np.zeros(METRICS, np.float32)
    sizes[list(metrics)] = by
    return sizes


MERGE = moving(1, 2, 3)


def after_some(times: int = TIMES, seconds: int = 4) -> Bursts:
    """A host of which so many bursts were seen, a minute apart, the last at second 60 * times."""
    bursts = Bursts()
    for number in range(1, times + 1):
        assert bursts.known(MERGE, 60 * number - seconds) == ""
        bursts.seen(MERGE, float(MERGE.sum()), seconds, 60 * number)
    return bursts


def test_what_came_often_enough_is_known_and_counted() -> None:
    assert after_some(TIMES - 1).known(MERGE, 60 * TIMES) == ""
    bursts = after_some()
    assert (
        bursts.known(MERGE, 200)
        == bursts.known(MERGE, 201)
        == f"a burst of some seconds that came {TIMES} times before"
    )
    assert bursts.known(MERGE, 300) == f"a burst of some seconds that came {TIMES + 1} times before"
    # Not all of them move quite the same.
    assert bursts.known(moving(1, 2, 3, 4), 400)
    assert bursts.known(moving(1, 7, 8), 500) == ""


def test_one_that_is_stronger_or_lasts_longer_is_told_for_as_long_as_it_goes_on() -> None:
    bursts = after_some(seconds=4)
    assert bursts.known(MERGE * STRONGER * 1.01, 200) == ""
    bursts = after_some(seconds=4)
    said = [bool(bursts.known(MERGE, 300 + second)) for second in range(120)]
    assert said == [second <= 4 + LONGER_S for second in range(120)]


def test_a_single_one_that_was_strong_or_long_says_nothing_of_the_others() -> None:
    """A fault that looks like what the host does now and then must not hide the next one."""
    bursts = after_some(seconds=3)
    bursts.seen(MERGE * 3, float(MERGE.sum()) * 3, LONGEST_S, 200)
    said = [bool(bursts.known(MERGE, 300 + second)) for second in range(30)]
    assert said == [second <= 3 + LONGER_S for second in range(30)]
    assert bursts.known(MERGE * STRONGER * 1.01, 400) == ""
    for second in (500, 600):
        bursts.seen(MERGE * 3, float(MERGE.sum()) * 3, LONGEST_S, second)
    said = [bool(bursts.known(MERGE * 3, 700 + second)) for second in range(30)]
    assert said == [second <= LONGEST_S + LONGER_S for second in range(30)]


def test_bursts_of_a_version_before_are_known() -> None:
    values, arrays = after_some().state()
    older = [[most[-1], longest[-1], *rest] for most, longest, *rest in values]
    again = Bursts.restore(METRICS, json.loads(json.dumps(older)), arrays)
    assert again.known(MERGE, 200) == after_some().known(MERGE, 200) != ""


def test_what_lasts_is_no_burst_and_what_came_long_ago_is_not_remembered() -> None:
    bursts = after_some(seconds=LONGEST_S + 1)
    assert bursts.known(MERGE, 400) == ""
    assert bursts.kinds == []
    bursts = after_some()
    assert bursts.known(MERGE, 60 * TIMES + RECURS_S + 1) == ""
    bursts.seen(MERGE, 6.0, 4, 60 * TIMES + RECURS_S + 9)
    assert [kind.times for kind in bursts.kinds] == [1]


def test_kinds_that_were_not_seen_for_longest_are_forgotten() -> None:
    bursts = Bursts()
    for number in range(MOST + 5):
        bursts.seen(moving(number), 2.0, 3, 100 + number)
    assert [int(kind.sizes.argmax()) for kind in bursts.kinds] == list(range(5, MOST + 5))


def test_a_worker_that_takes_over_knows_them() -> None:
    bursts = after_some()
    bursts.seen(moving(5, by=1.5), 1.5, 2, 190)
    values, arrays = bursts.state()
    again = Bursts.restore(METRICS, json.loads(json.dumps(values)), arrays)
    assert again.state()[0] == values
    assert again.known(MERGE, 200) == bursts.known(MERGE, 200) != ""
    with pytest.raises(KeyError):
        Bursts.restore(METRICS, values, {})
