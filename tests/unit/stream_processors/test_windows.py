"""Windows: complete ones close at once, laggards are waited for, gaps are jumped, nothing closes twice."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from schemas.records import Telemetry
from schemas.settings import PipelineSettings
from stream_processors.seconds import reduce_batch
from stream_processors.windows import Window, Windows
from tests.synthetic import START, SUBSYSTEMS, run

SETTINGS = PipelineSettings()


def feed(windows: Windows, batches: Iterable[Telemetry], arrived: float | None = None) -> list[Window]:
    closed: list[Window] = []
    for batch in batches:
        [part] = reduce_batch(batch)
        now = batch.start_ns / 1e9 if arrived is None else arrived
        windows.add(batch.subsystem, part, now, now)
        closed += windows.close()
    return closed


def starts(closed: Iterable[Window]) -> list[int]:
    return [window.start - START for window in closed]


def test_windows_slide_by_a_second_and_close_with_their_last_batch() -> None:
    closed = feed(Windows(SETTINGS), run(["h"], 10))
    assert starts(closed) == list(range(8))
    assert {(window.end - window.start, window.coverage, window.missing) for window in closed} == {(3, 1.0, ())}
    assert all(set(window.seconds) == set(SUBSYSTEMS) for window in closed)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_step_and_size_are_settings(step: int) -> None:
    closed = feed(Windows(PipelineSettings(window_s=3, step_s=step)), run(["h"], 12))
    assert starts(closed) == list(range(0, 10, step))


def test_order_of_topics_does_not_matter() -> None:
    batches = list(run(["h"], 40))
    by_topic = sorted(batches, key=lambda batch: batch.subsystem)
    shuffled = batches.copy()
    random.Random(1).shuffle(shuffled)
    for order in (by_topic, shuffled):
        windows = Windows(SETTINGS)
        # All of it arrives within a moment, as in a replay at full speed.
        closed = feed(windows, order, arrived=1000.0)
        for now in (1001.0, 1002.0, 1003.0):
            windows.wait(now)
        closed += windows.close()
        assert starts(closed) == list(range(38))
        assert {window.coverage for window in closed} == {1.0}


def test_a_dead_collector_is_waited_for_once() -> None:
    batches = [b for b in run(["h"], 30) if not (b.subsystem == "network" and b.sequence >= 10)]
    windows = Windows(SETTINGS)
    closed: list[tuple[int, int]] = []
    for batch in batches:
        closed += [(window.start - START, batch.sequence) for window in feed(windows, [batch])]
    assert [start for start, _ in closed] == list(range(28))
    waits = {start: now - start - 2 for start, now in closed}
    assert waits[7] == 0
    assert 0 < waits[8] <= 4
    assert waits[20] == 0


def test_coverage_and_what_is_missing_are_told() -> None:
    batches = [b for b in run(["h"], 30) if not (b.subsystem == "network" and 10 <= b.sequence < 14)]
    by_start = {window.start - START: window for window in feed(Windows(SETTINGS), batches)}
    assert by_start[7].coverage == 1.0
    assert by_start[8].coverage == pytest.approx(11 / 12)
    assert by_start[10].coverage == pytest.approx(9 / 12)
    assert by_start[10].missing == ("network",)
    assert by_start[14].coverage == 1.0


def test_a_gap_is_jumped_and_its_edges_are_partial() -> None:
    batches = [*run(["h"], 10), *run(["h"], 110, begin=100)]
    closed = feed(Windows(SETTINGS), batches)
    assert starts(closed) == [*range(10), *range(98, 108)]
    assert {window.start - START: round(window.coverage, 2) for window in closed if window.coverage < 1} == {
        8: 0.67,
        9: 0.33,
        98: 0.33,
        99: 0.67,
    }


def test_duplicates_and_late_seconds_are_told() -> None:
    windows = Windows(SETTINGS)
    batches = list(run(["h"], 10))
    feed(windows, batches)
    [newest], [oldest] = reduce_batch(batches[-1]), reduce_batch(batches[0])
    assert windows.add("storage", newest, 0.0, 0.0) == "duplicate"
    assert windows.add("cpu", oldest, 0.0, 0.0) == "late"
    assert list(windows.close()) == []
