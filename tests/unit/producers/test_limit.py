"""A storm of ten thousand lines a second is told of in a few words, and its size is not lost."""

from __future__ import annotations

import re
from dataclasses import replace

from producers.limit import EVERY_NS, MOST, MOST_KEYS, Limit
from producers.notices import Notice


def notice(instance: str = "gpu3", code: int | None = 13, kind: str = "xid") -> Notice:
    return Notice(1, kind, "gpu", "warning", f"{kind} {code} on {instance}", "kernel log", instance, code)


CRITICAL = replace(notice("gpu7", 79), severity="critical")


def test_the_first_at_once_then_numbers() -> None:
    limit, now = Limit(), 100 * EVERY_NS
    assert list(limit.take(notice(), now)) == [notice()]
    for step in range(10_000):
        assert list(limit.take(notice(), now + step)) == []
    assert list(limit.summaries(now + EVERY_NS - 1)) == []
    [summary] = limit.summaries(now + EVERY_NS)
    assert summary.message == "10000 more within 10 s, the last one: xid 13 on gpu3"
    assert (summary.kind, summary.instance, summary.code) == ("xid", "gpu3", 13)
    # Quiet for a while, it is news again.
    assert list(limit.summaries(now + 2 * EVERY_NS)) == []
    assert list(limit.take(notice(), now + 2 * EVERY_NS)) == [notice()]


def test_a_storm_that_goes_on_is_told_of_each_while() -> None:
    limit, told, counted = Limit(), 0, 0
    for second in range(60):
        now = second * 1_000_000_000
        for _ in range(10_000):
            told += len(list(limit.take(notice(), now)))
        for summary in limit.summaries(now):
            told += 1
            counted += int(re.findall(r"\d+", summary.message)[0])
    assert told == 6
    assert counted == 51 * 10_000 - 1


def test_other_things_are_told_of_beside_it() -> None:
    limit = Limit()
    different = [notice("gpu3", 13), notice("gpu4", 13), notice("gpu3", 48), notice("gpu3", None, "gpu_lost")]
    assert [told for each in different for told in limit.take(each, 5)] == different


def test_many_different_things_wait_for_their_turn_and_none_is_lost_silently() -> None:
    limit, now, told = Limit(), 100 * EVERY_NS, 0
    assert list(limit.summaries(now)) == []
    for number in range(3 * MOST_KEYS):
        told += len(list(limit.take(notice(f"gpu{number}"), now)))
        if number == MOST_KEYS // 2:  # what is critical waits for nobody
            assert list(limit.take(CRITICAL, now)) == [CRITICAL]
    assert told == MOST
    assert limit.uncounted == 2 * MOST_KEYS + 1
    for turn in range(1, 100):
        summaries = list(limit.summaries(now + turn * EVERY_NS))
        assert len(summaries) <= MOST
        told += len(summaries)
    assert told == MOST_KEYS - 1
