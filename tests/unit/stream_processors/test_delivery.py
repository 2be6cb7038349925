"""Rounds: what is stored when, so that a worker that dies in between leaves nothing that contradicts itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pytest

from schemas.codec import decode, encode
from schemas.records import DeadLetter, Episode, StateRecord, Telemetry, Verdict
from schemas.settings import PipelineSettings
from stream_processors.backtest import backtest
from stream_processors.delivery import Round, rounds
from stream_processors.host import Result
from stream_processors.pipeline import Pipeline
from tests.synthetic import Fault, run

pytestmark = pytest.mark.usefixtures("quick_fits")


def state(host: str, slot: str, note: int = 0) -> StateRecord:
    return StateRecord(host, slot, json.dumps(note), {})


def verdict(host: str, start: int) -> Verdict:
    return Verdict(host, start, start + 3, "warming", 1.0)


def test_no_results_make_no_round() -> None:
    assert list(rounds([])) == []


def test_progress_comes_after_all_the_rest_and_the_last_one_counts() -> None:
    letter = DeadLetter("t", 0, 1, "worker", "late", "")
    results: list[Result | DeadLetter] = [
        verdict("a", 1), state("a", "row/0"), state("a", "progress", 1), verdict("a", 2), letter,
        verdict("b", 1), state("b", "progress", 1), verdict("a", 3), state("a", "progress", 2),
    ]  # fmt: skip
    [only] = rounds(results)
    assert only.first == [
        verdict("a", 1),
        state("a", "row/0"),
        verdict("a", 2),
        letter,
        verdict("b", 1),
        verdict("a", 3),
    ]
    assert only.progress == {"a": state("a", "progress", 2), "b": state("b", "progress", 1)}


@pytest.mark.parametrize("slot", ["row/1", "model/0"])
def test_a_row_or_model_after_the_progress_of_its_host_begins_a_round(slot: str) -> None:
    results: list[Result] = [
        state("a", "row/0"), state("a", "progress", 1), state("b", slot), verdict("a", 2), state("a", slot),
        state("a", "progress", 2),
    ]  # fmt: skip
    assert list(rounds(results)) == [
        Round([state("a", "row/0"), state("b", slot), verdict("a", 2)], {"a": state("a", "progress", 1)}),
        Round([state("a", slot)], {"a": state("a", "progress", 2)}),
    ]


SETTINGS = PipelineSettings(rows=48, warmup_windows=40, refit_windows=50, row_every=1)
FAULT = Fault(84, 90)
SECONDS, BACKLOG_FROM = 130, 58


@pytest.fixture(scope="module")
def told() -> list[object]:
    return list(backtest(run(["a"], SECONDS, FAULT), SETTINGS))


def feed(pipeline: Pipeline, batches: Iterable[Telemetry]) -> list[Result]:
    return [result for batch in batches for result in pipeline.feed(batch, batch.start_ns / 1e9 + 1)]


def in_order(results: Sequence[Result]) -> list[Result]:
    """As the worker stores them."""
    ordered: list[Result] = []
    for each in rounds(results):
        assert not any(isinstance(result, DeadLetter) for result in each.first)
        ordered += [result for result in each.first if not isinstance(result, DeadLetter)]
        ordered += each.progress.values()
    return ordered


def restored(slots: dict[str, bytes]) -> Pipeline:
    pipeline = Pipeline(SETTINGS)
    records = [decode(value) for value in slots.values()]
    assert pipeline.restore("a", [each for each in records if isinstance(each, StateRecord)]) is None
    return pipeline


def keep(slots: dict[str, bytes], stored: Iterable[Result]) -> dict[str, bytes]:
    return slots | {each.slot: encode(each) for each in stored if isinstance(each, StateRecord)}


def test_a_crash_after_any_message_of_a_catch_up_changes_nothing(told: list[object]) -> None:
    """One batch of results holds a minute of a host, more rows than there are slots, and a new model."""
    batches = list(run(["a"], SECONDS, FAULT))
    before, backlog = batches[: 4 * BACKLOG_FROM], batches[4 * BACKLOG_FROM :]
    pipeline = Pipeline(SETTINGS)
    early = feed(pipeline, before)
    slots = keep({}, in_order(early))
    again = [b for b in before if not pipeline.covers("a", 0, b.start_ns // 10**9)]
    results = in_order(feed(restored(slots), [*again, *backlog]))
    written = [each.slot for each in results if isinstance(each, StateRecord)]
    assert sum(slot.startswith("row/") for slot in written) > SETTINGS.rows
    assert any(slot.startswith("model/") for slot in written)
    assert any(isinstance(each, Episode) for each in results)
    wanted = {v.window_start_ns: v for v in told if isinstance(v, Verdict)}
    states = {(e.id, e.revision): e for e in told if isinstance(e, Episode)}
    models = [at for at, each in enumerate(results) if isinstance(each, StateRecord) and each.slot[:5] == "model"]
    for crash_at in sorted({*range(0, len(results), 9), *(at + near for at in models for near in range(-3, 4))}):
        left = keep(slots, results[:crash_at])
        every = [*early, *results[:crash_at], *feed(restored(left), [*again, *backlog])]
        # Whatever is told, before or after the crash, is what the backtest says.
        assert [v for v in every if isinstance(v, Verdict) and v != wanted[v.window_start_ns]] == [], crash_at
        assert {v.window_start_ns for v in every if isinstance(v, Verdict)} == set(wanted), crash_at
        assert {(e.id, e.revision): e for e in every if isinstance(e, Episode)} == states, crash_at
