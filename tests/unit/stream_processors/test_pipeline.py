"""The pipeline as a whole: silent until warm, finds a fault, and nothing that happens on the way changes its word."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from schemas.codec import Rejected, decode, encode
from schemas.records import Episode, StateRecord, Telemetry, Verdict
from schemas.settings import PipelineSettings
from stream_processors.backtest import backtest
from stream_processors.detectors import DETECTORS, VOTERS
from stream_processors.host import BACKWARDS_LIMIT, PROGRESS_EVERY, Result
from stream_processors.pipeline import Pipeline
from tests.synthetic import START, WRITEBACK, Fault, run, second

SETTINGS = PipelineSettings(warmup_windows=40, rows=48, refit_windows=50)
HOSTS = ("a", "b")
FAULT = Fault(70, 82)
SECONDS = 110
WARM = 40 + zlib.crc32(b"a") % 6 + 4
"""Windows before the first that is scored: warm-up, spread over hosts, fit."""


def verdicts(results: Iterable[object]) -> dict[tuple[str, int], Verdict]:
    return {(v.host, v.window_start_ns): v for v in results if isinstance(v, Verdict)}


def episodes(results: Iterable[object]) -> list[Episode]:
    return [each for each in results if isinstance(each, Episode)]


@pytest.fixture(scope="module")
def told() -> list[object]:
    return list(backtest(run(HOSTS, SECONDS, FAULT), SETTINGS))


def test_every_window_of_every_host_once(told: list[object]) -> None:
    every = [v for v in told if isinstance(v, Verdict)]
    assert len(every) == len(verdicts(told)) == len(HOSTS) * (SECONDS - 2)


def test_silent_until_warm_with_the_reason(told: list[object]) -> None:
    mine = [v for v in verdicts(told).values() if v.host == "a"]
    assert [v.state for v in mine] == ["warming"] * WARM + ["scored"] * (SECONDS - 2 - WARM)
    assert mine[9].reason == f"learning what is normal: window 10 of {WARM - 4}"
    assert {v.reason for v in mine[WARM - 4 : WARM]} == {"learning what is normal: the model is being fitted"}
    assert all(v.severity == 0 and not v.anomalous and not v.scores for v in mine[:WARM])
    assert all([s.detector for s in v.scores] == list(DETECTORS) for v in mine[WARM:])
    assert all(v.votes == sum(s.vote for s in v.scores) for v in mine)
    assert all(s.vote == (s.detector in VOTERS and s.score > s.threshold) for v in mine for s in v.scores)


@pytest.mark.parametrize(("effects", "subsystems"), [(None, {"cpu"}), (WRITEBACK, {"memory", "storage"})])
def test_a_fault_becomes_an_episode_with_evidence(effects: dict[str, float] | None, subsystems: set[str]) -> None:
    fault = Fault(70, 82) if effects is None else Fault(70, 82, effects)
    told = list(backtest(run(["a"], SECONDS, fault), SETTINGS))
    states = episodes(told)
    assert len({each.id for each in states}) == 1
    first, last = states[0], states[-1]
    assert (first.state, last.state) == ("opened", "closed")
    assert [each.revision for each in states] == list(range(len(states)))
    assert START + 70 <= first.start_ns / 1e9 <= START + 71
    assert first.opened_ns / 1e9 <= START + 74
    assert last.subsystem in subsystems
    assert sum(last.shares.values()) == pytest.approx(1)
    told_of = {row.metric for row in last.evidence}
    assert told_of & set(fault.effects)
    assert last.explanation.startswith(f"a: {last.subsystem} (")
    strongest = last.evidence[0]
    assert strongest.metric in fault.effects
    assert abs(strongest.deviation) == max(abs(row.deviation) for row in last.evidence)


def test_evidence_names_the_instance(told: list[object]) -> None:
    last = episodes(told)[-1]
    row = next(row for row in last.evidence if row.metric in ("cpu.time.user", "cpu.time.idle", "cpu.busy_pct"))
    assert row.instance == "0"
    assert row.instance_observed is not None
    assert row.instance_expected is not None
    assert row.instance_observed != pytest.approx(row.instance_expected, rel=0.05)


def test_the_other_host_stays_quiet(told: list[object]) -> None:
    assert {each.host for each in episodes(told)} == {"a"}


def test_order_of_topics_changes_nothing(told: list[object]) -> None:
    batches = list(run(HOSTS, SECONDS, FAULT))
    rng = random.Random(0)
    # Within a topic Kafka keeps the order; between topics there is none.
    queues = {name: [b for b in batches if b.subsystem == name] for name in ("cpu", "memory", "network", "storage")}
    pipeline, results, now = Pipeline(SETTINGS), list[Result](), 2e9
    while any(queues.values()):
        name = rng.choice([name for name, queue in queues.items() if queue])
        for _ in range(rng.randint(1, 30)):
            if queues[name]:
                results += pipeline.feed(queues[name].pop(0), now)
    for extra in range(1, 5):
        results += pipeline.tick(now + extra)
    assert verdicts(results) == verdicts(told)
    assert episodes(results) == episodes(told)


@pytest.mark.parametrize("crash_at", [0, 1, 7, 150, 333, 400, 561, 620, 700, 871])
def test_a_crash_at_any_message_changes_nothing(told: list[object], crash_at: int) -> None:
    """What is left after a crash is what was delivered: state records, and every message that is still needed."""
    batches = list(run(HOSTS, SECONDS, FAULT))
    slots: dict[bytes, bytes] = {}
    results: list[Result] = []

    def work(pipeline: Pipeline, part: Iterable[Telemetry]) -> None:
        for batch in part:
            fresh = pipeline.feed(batch, batch.start_ns / 1e9 + 1)
            results.extend(fresh)
            slots.update({each.key: encode(each) for each in fresh if isinstance(each, StateRecord)})

    first = Pipeline(SETTINGS)
    work(first, batches[:crash_at])
    unacknowledged = [b for b in batches[:crash_at] if not first.covers(b.host, 0, b.start_ns // 10**9)]
    second_life = Pipeline(SETTINGS)
    for host in HOSTS:
        records = [decode(value) for value in slots.values()]
        second_life.restore(host, [r for r in records if isinstance(r, StateRecord) and r.host == host])
    # Some messages come again although they were acknowledged: the commit had not reached the broker.
    again = batches[min(crash_at - len(unacknowledged), max(0, crash_at - 100)) : crash_at]
    work(second_life, [*again, *batches[crash_at:]])
    assert verdicts(results) == verdicts(told)
    assert {(e.id, e.revision): e for e in episodes(results)} == {(e.id, e.revision): e for e in episodes(told)}


def test_state_of_another_kind_is_refused() -> None:
    pipeline = Pipeline(SETTINGS)
    with pytest.raises((KeyError, ValueError, TypeError)):
        pipeline.restore("a", [StateRecord("a", "progress", "{}", {})])
    assert "a" not in pipeline.hosts


def test_progress_is_told_with_what_it_must_agree_with() -> None:
    pipeline, since, written = Pipeline(SETTINGS), 0, 0
    for batch in run(["a"], SECONDS, FAULT):
        fresh = pipeline.feed(batch, batch.start_ns / 1e9)
        progress = [each for each in fresh if isinstance(each, StateRecord) and each.slot == "progress"]
        if any(not isinstance(each, Verdict) for each in fresh):
            assert progress[-1:] == fresh[-1:]
        since = 0 if progress else since + len(fresh)
        written += len(progress)
        assert since < PROGRESS_EVERY
    assert written < 0.7 * SECONDS


def test_time_going_backwards_is_rejected_then_followed() -> None:
    pipeline = Pipeline(SETTINGS)
    for batch in run(["a"], 20):
        pipeline.feed(batch, batch.start_ns / 1e9)
    back = [replace(b, session="s2", start_ns=b.start_ns - 3600 * 10**9) for b in run(["a"], 20)]
    strikes = 4 * (BACKWARDS_LIMIT - 1)  # four subsystems, each judged alone
    for batch in back[:strikes]:
        with pytest.raises(Rejected, match="time-backwards"):
            pipeline.feed(batch, START + 20)
    results = [result for batch in back[strikes:] for result in pipeline.feed(batch, START + 20)]
    assert pipeline.counts["time-backwards"] == strikes
    # The way back is told at once: what came before it is done with, what comes after it is not covered yet.
    assert isinstance(results[0], StateRecord)
    assert pipeline.epoch("a") == 1
    assert pipeline.covers("a", 0, START + 19)
    assert not pipeline.covers("a", 1, START - 3600 + 19)
    assert pipeline.hosts["a"].windows.next_start is not None
    assert pipeline.hosts["a"].windows.next_start < START - 3000


def test_the_future_is_rejected() -> None:
    pipeline = Pipeline(SETTINGS)
    with pytest.raises(Rejected, match="from-the-future"):
        pipeline.feed(second("a", "cpu", 0), START - 10_000)
    assert "a" not in pipeline.hosts


def test_duplicates_and_gaps_are_counted() -> None:
    pipeline = Pipeline(SETTINGS)
    batches = list(run(["a"], 12))
    for batch in batches:
        pipeline.feed(batch, batch.start_ns / 1e9)
    results: list[Result] = []
    for batch in batches[-8:]:
        results += pipeline.feed(batch, batch.start_ns / 1e9)
    assert results == []
    pipeline.feed(second("a", "cpu", 15), START + 15)
    assert pipeline.counts == {"added": len(batches), "duplicate": 8, "gap": 1}


def test_a_late_message_is_rejected_with_the_reason() -> None:
    pipeline = Pipeline(SETTINGS)
    for batch in run(["a"], 20):
        if not (batch.subsystem == "network" and batch.sequence >= 5):
            pipeline.feed(batch, batch.start_ns / 1e9)
    with pytest.raises(Rejected, match="late: network of second"):
        pipeline.feed(second("a", "network", 5), START + 20)


def test_a_silent_host_is_closed_while_others_go_on() -> None:
    settings = replace(SETTINGS, silence_s=10.0)
    pipeline, results = Pipeline(settings), list[Result]()
    for batch in run(HOSTS, 100, Fault(70, 200)):
        if batch.host == "a" and batch.sequence >= 80:
            continue
        results += pipeline.feed(batch, batch.start_ns / 1e9)
        results += pipeline.tick(batch.start_ns / 1e9)
    mine = episodes(results)
    assert mine[-1].state == "closed"
    assert "fell silent" in mine[-1].explanation
    assert pipeline.covers("a", 0, START + 79)
    assert pipeline.counts["silent hosts"] == 1


@pytest.mark.parametrize("restored", [False, True])
def test_what_is_not_read_yet_silences_nobody(restored: bool) -> None:
    """Of two partitions with a backlog one is read, for longer than a host may be silent."""
    settings = replace(SETTINGS, silence_s=10.0)
    pipeline, began = Pipeline(settings), float(START)
    if restored:
        first = Pipeline(settings)
        states = [result for batch in run(["a"], 10) for result in first.feed(batch, batch.start_ns / 1e9)]
        assert pipeline.restore("a", [each for each in states if isinstance(each, StateRecord)]) is None
    else:
        for batch in run(["a"], 10):
            pipeline.feed(batch, batch.start_ns / 1e9)
    read_to = {"a": began + 11, "b": began + 11}
    for batch in run(["b"], 60, begin=10):
        read_to["b"] = batch.start_ns / 1e9
        pipeline.feed(batch, batch.start_ns / 1e9)
        pipeline.tick(batch.start_ns / 1e9, read_to.__getitem__)
    assert pipeline.counts["silent hosts"] == 0
    read_to["a"] += 10
    pipeline.tick(began + 60, read_to.__getitem__)
    pipeline.feed(second("b", "cpu", 60), began + 60)
    read_to["a"] += 1
    pipeline.tick(began + 61, read_to.__getitem__)
    assert pipeline.counts["silent hosts"] == 1


def test_an_outage_of_everything_silences_nobody() -> None:
    pipeline, results = Pipeline(SETTINGS), list[Result]()
    for batch in run(HOSTS, 60):
        late = 500.0 if batch.sequence >= 30 else 0.0
        results += pipeline.feed(batch, batch.start_ns / 1e9 + late)
        results += pipeline.tick(batch.start_ns / 1e9 + late)
    assert pipeline.counts == {"added": 60 * 4 * 2}
    assert {v.coverage for v in results if isinstance(v, Verdict)} == {1.0}


def test_too_little_data_is_withheld_with_the_reason() -> None:
    def thin(batch: Telemetry) -> Telemetry:
        metrics = {name: values.copy() for name, values in batch.metrics.items()}
        for values in metrics.values():
            values[:7] = np.nan
        return replace(batch, metrics=metrics)

    batches = [thin(batch) if batch.sequence >= 50 else batch for batch in run(["a"], 60)]
    last = list(verdicts(backtest(batches, SETTINGS)).values())[-1]
    assert (last.state, round(last.coverage, 2)) == ("withheld", 0.3)
    assert last.reason == "30% of the samples are there, 60% are needed"
