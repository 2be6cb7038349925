"""Events become evidence and explanation of their host's episodes, survive a take-over, and change no verdict."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from schemas.codec import Rejected, decode, encode
from schemas.records import Episode, Event, StateRecord, Telemetry, Verdict
from schemas.settings import PipelineSettings
from stream_processors.backtest import backtest
from stream_processors.happenings import MOST_EVENTS, MOST_ROWS, SHORT, SLOT, Happenings
from stream_processors.host import BACKWARDS_LIMIT, Forgotten, Result
from stream_processors.pipeline import Pipeline
from tests.synthetic import START, Fault, run

pytestmark = pytest.mark.usefixtures("quick_fits")

SETTINGS = PipelineSettings(warmup_windows=40, rows=48, refit_windows=50)
NANO = 10**9
FAULT = Fault(70, 82)
SECONDS = 110


def event(second: float, kind: str = "xid", sequence: int = 0, **changes: object) -> Event:
    """An event `second` seconds after the start of the run."""
    plain = Event(
        host="a",
        session="s1",
        sequence=sequence,
        time_ns=START * NANO + round(second * NANO),
        kind=kind,
        subsystem="gpu",
        severity="critical",
        message=f"{kind} told",
        source="kernel log",
        instance="gpu3",
        code=79,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def work(
    pipeline: Pipeline, batches: Iterable[Telemetry], events: Mapping[int, Iterable[Event]] | None = None
) -> list[Result]:
    """Feeds `batches`, and before those of second N the events under N."""
    results: list[Result] = []
    for index, group in itertools.groupby(batches, key=lambda batch: batch.sequence):
        for each in (events or {}).get(index, ()):
            results += pipeline.feed_event(each, START + index)
        for batch in group:
            results += pipeline.feed(batch, batch.start_ns / NANO)
    return results


def verdicts(results: Iterable[object]) -> list[Verdict]:
    return [each for each in results if isinstance(each, Verdict)]


def episodes(results: Iterable[object]) -> list[Episode]:
    return [each for each in results if isinstance(each, Episode)]


@pytest.fixture(scope="module")
def wanted(quick_fits: None) -> list[object]:
    """What is said without events."""
    return list(backtest(run(["a", "b"], SECONDS, FAULT), SETTINGS))


def bare(episode: Episode) -> Episode:
    """`episode` without what events added."""
    return replace(
        episode,
        evidence=tuple(row for row in episode.evidence if not row.metric.startswith("event.")),
        explanation=episode.explanation.partition(". Events: ")[0],
    )


def test_an_event_is_evidence_of_its_episode_and_changes_nothing_else(wanted: list[object]) -> None:
    # The first is too old, the second may be the cause, the last came when all was over.
    events = {index: [event(index, sequence=index, code=index)] for index in (30, 50, 71, 100)}
    results = work(Pipeline(SETTINGS), run(["a", "b"], SECONDS, FAULT), events)
    assert verdicts(results) == verdicts(wanted)
    assert [bare(each) for each in episodes(results)] == episodes(wanted)
    first, last = episodes(results)[0], episodes(results)[-1]
    assert (first.state, last.state) == ("opened", "closed")
    for episode in (first, last):
        rows = [row for row in episode.evidence if row.metric == "event.xid"]
        assert [(row.instance, row.observed, row.expected, row.unit) for row in rows] == [
            ("gpu3", 71.0, 0.0, "code"),
            ("gpu3", 50.0, 0.0, "code"),
        ]
        assert {(row.subsystem, row.feature, row.deviation) for row in rows} == {("gpu", "xid told", 1000.0)}
        sizes = [abs(row.deviation) for row in episode.evidence]
        assert sizes == sorted(sizes, reverse=True)
        assert episode.explanation.endswith(". Events: xid on gpu3: xid told; xid on gpu3: xid told")
        assert decode(encode(episode)) == episode


def test_an_event_that_comes_late_is_in_the_next_state() -> None:
    told = episodes(work(Pipeline(SETTINGS), run(["a"], SECONDS, FAULT), {76: [event(68)]}))
    [opened, *later] = told
    assert not any(row.metric == "event.xid" for row in opened.evidence)
    assert any(row.metric == "event.xid" for row in later[-1].evidence)


def test_an_event_of_another_host_is_not_evidence(wanted: list[object]) -> None:
    results = work(Pipeline(SETTINGS), run(["a", "b"], SECONDS, FAULT), {71: [event(71, host="b")]})
    assert episodes(results) == episodes(wanted)


@pytest.mark.parametrize("kind", ["collector_shed", "samples_lost"])
def test_what_the_agent_says_of_itself_is_no_evidence(kind: str, wanted: list[object]) -> None:
    results = work(Pipeline(SETTINGS), run(["a", "b"], SECONDS, FAULT), {71: [event(71, kind)]})
    assert episodes(results) == episodes(wanted)


def test_rows_are_ranked_by_severity_and_like_events_are_one() -> None:
    kinds = ("link_down", "oom_kill", "thermal", "disk_error", "link_up", "pcie_error")
    severities = ("warning", "critical", "info", "warning", "info", "critical")
    events = [
        event(70 + index / 10, kind, index, severity=severity, code=None, instance="x", message="m" * 1000)
        for index, (kind, severity) in enumerate(zip(kinds, severities, strict=True))
    ]
    events += [event(71 + index / 10, "link_down", 10 + index, severity="warning", code=None, instance="x")
               for index in range(3)]  # fmt: skip
    happenings = Happenings()
    for each in events:
        assert happenings.add(each, 0)
    told = happenings.told(episodes(backtest(run(["a"], SECONDS, FAULT), SETTINGS))[-1])
    rows = [row for row in told.evidence if row.metric.startswith("event.")]
    assert len(rows) == MOST_ROWS
    assert [row.deviation for row in rows] == [1000.0, 1000.0, 100.0, 100.0, 10.0]
    link = next(row for row in rows if row.metric == "event.link_down")
    assert (link.observed, link.unit, link.feature) == (4.0, "events", "link_down told")
    assert max(len(row.feature) for row in rows) == SHORT


def test_what_is_kept_does_not_depend_on_the_order_and_is_bounded() -> None:
    events = [
        event(index % 60, sequence=index, severity=("info", "warning", "critical")[index % 3]) for index in range(300)
    ]
    orders = [events, events[::-1], [*events[::2], *events[1::2], *events[100:200]]]
    kept = []
    for order in orders:
        happenings = Happenings()
        for each in order:
            happenings.add(each, 0)
        kept.append(set(happenings.events))
    assert kept[0] == kept[1] == kept[2]
    assert len(kept[0]) == MOST_EVENTS
    assert {event.severity for event in happenings.events.values()} == {"critical"}


def test_what_is_old_is_forgotten_and_what_an_open_episode_needs_is_not() -> None:
    pipeline = Pipeline(SETTINGS)
    long = Fault(70, 190)
    batches = list(run(["a"], 190, long))
    work(pipeline, batches[: 4 * 69], {10: [event(10, sequence=1)], 68: [event(68, sequence=2)]})
    assert [sequence for _, sequence in pipeline.hosts["a"].happenings.events] == [2, 1]
    late = work(pipeline, batches[4 * 69 :], {150: [event(150, sequence=3)], 160: [event(20, sequence=4)]})
    assert sorted(sequence for _, sequence in pipeline.hosts["a"].happenings.events) == [2, 3]
    assert episodes(late)[-1].state != "closed"
    assert sum(row.metric == "event.xid" for row in episodes(late)[-1].evidence) == 1
    assert len(decode(encode(pipeline.hosts["a"].happenings.record("a"))).manifest) < 64 * 600  # type: ignore[union-attr]


def stored(results: Iterable[object]) -> dict[str, StateRecord]:
    return {each.slot: each for each in results if isinstance(each, StateRecord)}


@pytest.mark.parametrize("crash_at", [20, 66, 69, 73, 75, 79, 85])
def test_a_take_over_keeps_events(crash_at: int, wanted: list[object]) -> None:
    """The event was acknowledged when its record was stored; telemetry comes again from where progress was."""
    events = {66: [event(66, sequence=1)], 71: [event(71, "link_down", 2, instance="eth0", code=None)]}
    mine = list(run(["a"], SECONDS, FAULT))
    first = Pipeline(SETTINGS)
    results = work(first, mine[: 4 * crash_at], events)
    second_life = Pipeline(SETTINGS)
    assert second_life.restore("a", stored(results).values()) is None
    again = [batch for batch in mine if not first.covers("a", 0, batch.start_ns // NANO)]
    after = {index: each for index, each in events.items() if index >= crash_at}
    results += work(second_life, again, after)
    whole = episodes(work(Pipeline(SETTINGS), mine, events))
    told = {(each.id, each.revision): each for each in episodes(results)}
    assert list(told.values()) == whole
    assert {v.window_start_ns: v for v in verdicts(results)} == {
        v.window_start_ns: v for v in verdicts(wanted) if v.host == "a"
    }
    assert {"event.xid", "event.link_down"} <= {row.metric for row in whole[-1].evidence}


def test_an_event_that_is_read_again_changes_nothing() -> None:
    pipeline = Pipeline(SETTINGS)
    assert len(pipeline.feed_event(event(1), START + 1)) == 1
    assert pipeline.feed_event(event(1), START + 1) == []
    assert pipeline.counts == {"events": 2}


def test_a_host_of_which_only_events_came_is_kept_and_forgotten() -> None:
    settings = replace(SETTINGS, silence_s=5.0, forget_s=10.0)
    pipeline = Pipeline(settings)
    [record] = pipeline.feed_event(event(1), START + 1)
    assert isinstance(record, StateRecord)
    assert (record.host, record.slot) == ("a", SLOT)
    second_life = Pipeline(settings)
    assert second_life.restore("a", [record]) is None
    assert [each.code for each in second_life.hosts["a"].happenings.events.values()] == [79]
    results: list[Result] = []
    for batch in run(["b"], 40):
        results += second_life.feed(batch, batch.start_ns / NANO)
        results += second_life.tick(batch.start_ns / NANO)
    [forgotten] = [each for each in results if isinstance(each, Forgotten)]
    assert forgotten.host == "a"
    assert SLOT in forgotten.slots


def test_an_event_is_no_sign_of_life() -> None:
    settings = replace(SETTINGS, silence_s=10.0)
    pipeline, results = Pipeline(settings), list[Result]()
    for batch in run(["a", "b"], 100, Fault(70, 200)):
        if batch.host == "a" and batch.sequence >= 80:
            if batch.subsystem == "cpu":
                pipeline.feed_event(event(batch.sequence, sequence=batch.sequence), batch.start_ns / NANO)
            continue
        results += pipeline.feed(batch, batch.start_ns / NANO)
        results += pipeline.tick(batch.start_ns / NANO)
    last = episodes(results)[-1]
    assert last.state == "closed"
    assert "fell silent" in last.explanation


def test_the_future_is_rejected() -> None:
    pipeline = Pipeline(SETTINGS)
    with pytest.raises(Rejected, match="from-the-future"):
        pipeline.feed_event(event(10_000), START)
    assert pipeline.hosts == {}


def test_a_clock_set_back_forgets_events_of_the_time_before() -> None:
    pipeline = Pipeline(SETTINGS)
    results = work(pipeline, run(["a"], 20), {19: [event(19)]})
    back = [replace(batch, start_ns=batch.start_ns - 3600 * NANO, sequence=batch.sequence + 20)
            for batch in run(["a"], 1 + BACKWARDS_LIMIT)]  # fmt: skip
    for batch in back:
        with contextlib.suppress(Rejected):
            results += pipeline.feed(batch, START + 30)
    assert pipeline.epoch("a") == 1
    assert pipeline.hosts["a"].happenings.events == {}
    assert stored(results)[SLOT].manifest == "[]"


@pytest.mark.parametrize("manifest", ["", "garbage", "null", "3", '["x"]', '[{"host": "a"}]'])
def test_stored_events_that_are_none_cost_nothing_else(manifest: str) -> None:
    results = work(Pipeline(SETTINGS), run(["a"], 80, FAULT), {71: [event(71)]})
    slots = stored(results)
    slots[SLOT] = replace(slots[SLOT], manifest=manifest)
    pipeline = Pipeline(SETTINGS)
    lost = pipeline.restore("a", slots.values())
    assert lost is not None
    assert lost.startswith("its events: ")
    assert pipeline.hosts["a"].baseline is not None
    assert pipeline.hosts["a"].following.open
