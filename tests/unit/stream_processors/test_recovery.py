"""Backlogs, gaps, agents and workers that start again, state that is lost: the verdicts stay those of the backtest."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest

from schemas.codec import Rejected, decode, encode
from schemas.records import Episode, StateRecord, Telemetry, Verdict
from schemas.settings import PipelineSettings
from stream_processors.backtest import backtest
from stream_processors.baseline import Baseline
from stream_processors.host import Forgotten, Host, Result
from stream_processors.learning import Learner
from stream_processors.pipeline import Pipeline
from stream_processors.reading import Reading
from stream_processors.rows import Row
from stream_processors.windows import Window
from tests.synthetic import START, SUBSYSTEMS, Fault, run

pytestmark = pytest.mark.usefixtures("quick_fits")

SETTINGS = PipelineSettings(warmup_windows=40, rows=48, refit_windows=50)
NANO = 10**9
WARM = 40 + zlib.crc32(b"a") % 6 + 4
"""Windows before the first of host a that is scored: warm-up, spread over hosts, fit."""


def verdicts(results: Iterable[object]) -> dict[tuple[str, int], Verdict]:
    """By window; a window that is told twice must be told alike."""
    told: dict[tuple[str, int], Verdict] = {}
    for each in results:
        if isinstance(each, Verdict):
            assert told.setdefault((each.host, each.window_start_ns), each) == each
    return told


def episodes(results: Iterable[object]) -> dict[tuple[str, int], Episode]:
    told: dict[tuple[str, int], Episode] = {}
    for each in results:
        if isinstance(each, Episode):
            assert told.setdefault((each.id, each.revision), each) == each
    return told


def skewed(batches: Iterable[Telemetry], ahead: str, by_s: float) -> list[Telemetry]:
    """As a reader takes them whose topic `ahead` is read further by `by_s` seconds."""
    return sorted(batches, key=lambda b: b.start_ns - (by_s * NANO if b.subsystem == ahead else 0))


def as_read(batches: Sequence[Telemetry], pace: float = 1.0) -> Iterator[tuple[Telemetry, float, float]]:
    """Each with when it was sent, `pace` seconds in one, and up to when everything is read then."""
    ends, place = Counter(batch.subsystem for batch in batches), Counter[str]()
    reading = Reading({})
    for batch in batches:
        topic, sent = batch.subsystem, START + (batch.start_ns / NANO + 1 - START) / pace
        yield batch, sent, reading.upto({topic: sent}, ends, 0.0)
        reading.read(topic, place[topic], sent)
        place[topic] += 1


def meet(pipeline: Pipeline) -> list[Result]:
    """The first 10 s of host a, as they come in: then it is known which subsystems it has."""
    return [result for batch in run(["a"], 10) for result in pipeline.feed(batch, batch.start_ns / NANO + 1)]


def stored(results: Iterable[object]) -> dict[str, StateRecord]:
    """What the models topic holds of a host after these results."""
    slots: dict[str, StateRecord] = {}
    for each in results:
        if isinstance(each, StateRecord):
            record = decode(encode(each))
            assert isinstance(record, StateRecord)
            slots[each.slot] = record
    return slots


@pytest.mark.parametrize("ahead", ["cpu", "storage"])
@pytest.mark.parametrize("known", [True, False])
def test_a_deep_backlog_waits_for_its_topics(ahead: str, known: bool) -> None:
    """One topic is read 300 s ahead of the others, 50 messages a second, with a tick each second."""
    settings = replace(SETTINGS, warmup_windows=400, rows=400)  # what is learnt is of no interest here
    pipeline, results, now = Pipeline(settings), list[Result](), START + 5000.0
    if known:
        results += meet(pipeline)
    batches = list(run(["a"], 330, begin=10 if known else 0))
    for number, (batch, sent, read_to) in enumerate(as_read(skewed(batches, ahead, 300))):
        now += 1 / 50
        if number % 50 == 0:
            results += pipeline.tick(now, lambda _, upto=read_to: upto)  # type: ignore[misc]
        results += pipeline.feed(batch, now, sent, read_to)
    assert pipeline.counts == {"added": 4 * 330}
    assert verdicts(results) == verdicts(backtest(run(["a"], 330), settings))
    assert len(verdicts(results)) == 328


@pytest.mark.parametrize("pace", [1.0, 150.0])
def test_the_first_backlog_of_a_host_is_not_kept_to_its_end(pace: float) -> None:
    """Which subsystems it has is not known, but seen soon, also when all was sent within a moment."""
    settings = replace(SETTINGS, warmup_windows=400, rows=400)
    pipeline, results, now = Pipeline(settings), list[Result](), START + 5000.0
    for batch, sent, read_to in as_read(list(run(["a"], 300)), pace):
        now += 1 / 50
        results += pipeline.feed(batch, now, sent, read_to)
    assert len(verdicts(results)) == 298


@pytest.mark.parametrize("ahead", ["cpu", "storage"])
def test_a_gap_read_from_topics_apart(ahead: str) -> None:
    parts = [*run(["a"], 60), *run(["a"], 200, begin=160)]
    wanted = list(backtest(parts, SETTINGS))
    pipeline, now = Pipeline(SETTINGS), START + 5000.0
    results = meet(pipeline)
    for batch, sent, read_to in as_read(skewed(parts[40:], ahead, 10)):
        now += 0.002
        results += pipeline.feed(batch, now, sent, read_to)
    assert pipeline.counts == {"added": 4 * 100 - 4, "gap": 4}
    assert verdicts(results) == verdicts(wanted)
    assert [v.coverage for v in verdicts(results).values()].count(1.0) == 58 + 38


@dataclass
class Machine:
    """A worker of one host and what outlives it: state in the topic, and how far each topic is acknowledged."""

    batches: Sequence[Telemetry]
    told: list[Result] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUBSYSTEMS, 0))

    def live(self, until: int, uncommitted: int) -> Pipeline:
        """Start from what is stored, read on to message `until`, and die. The newest `uncommitted` acknowledgements of
        each topic never reached the broker.
        """
        pipeline, now = Pipeline(SETTINGS), START + 5000.0
        if slots := stored(self.told):
            assert pipeline.restore("a", slots.values()) is None
        place = dict.fromkeys(SUBSYSTEMS, 0)
        begin = {name: done - uncommitted for name, done in self.acknowledged.items()}
        waiting: dict[str, deque[tuple[int, int]]] = {name: deque() for name in SUBSYSTEMS}
        if not self.told:
            self.told += meet(pipeline)
        for batch in self.batches[:until]:
            name = batch.subsystem
            place[name] += 1
            if place[name] <= begin[name]:
                continue
            now += 0.002
            self.told += pipeline.feed(batch, now, read_to=START)  # one topic is read less far
            waiting[name].append((pipeline.epoch("a"), batch.start_ns // NANO))
            for topic, queue in waiting.items():
                while queue and pipeline.covers("a", *queue[0]):
                    queue.popleft()
                    self.acknowledged[topic] = max(self.acknowledged[topic], place[topic] - len(queue))
        return pipeline


def restarted_agent(pause_s: int) -> list[Telemetry]:
    """Seconds of two lives of an agent, each with a session and a sequence of its own."""
    second_life = run(["a"], 110, Fault(82, 90), begin=70 + pause_s)
    return [*run(["a"], 70), *(replace(b, session="s2", sequence=b.sequence - 70 - pause_s) for b in second_life)]


@pytest.mark.parametrize(("pause_s", "uncommitted"), [(0, 0), (4, 25)])
def test_an_agent_and_a_worker_that_start_again(pause_s: int, uncommitted: int) -> None:
    batches = restarted_agent(pause_s)
    wanted = list(backtest(batches, SETTINGS))
    assert any(v.anomalous for v in verdicts(wanted).values())
    read = [*batches[:40], *skewed(batches[40:], "cpu", 5)]
    # Around the restart at many points, and elsewhere here and there.
    for crash_at in (*range(4 * 66, 4 * 80, 9), 370):
        machine = Machine(read)
        machine.live(crash_at, uncommitted)
        machine.live(len(read), uncommitted)
        assert verdicts(machine.told) == verdicts(wanted), crash_at
        assert episodes(machine.told) == episodes(wanted), crash_at


@pytest.mark.parametrize("session", ["s1", "s2"])
def test_a_clock_set_back_and_a_worker_that_starts_again(session: str) -> None:
    """By the agent's own clock, or by an agent that starts with a wrong one; what is read again is not followed."""
    forth = list(run(["a"], 60))
    back = [
        replace(
            b, session=session, sequence=b.sequence + (60 if session == "s1" else 0), start_ns=b.start_ns - 3600 * NANO
        )
        for b in run(["a"], 40)
    ]
    batches = [*forth, *back]

    def take(pipeline: Pipeline, part: Iterable[Telemetry]) -> list[Result]:
        results: list[Result] = []
        for number, batch in enumerate(part):
            with contextlib.suppress(Rejected):
                results += pipeline.feed(batch, START + 100.0 + number / 4)
        return results

    whole = take(Pipeline(SETTINGS), batches)
    assert min(start for _, start in verdicts(whole)) < (START - 3000) * NANO
    for crash_at in range(240 + 38, 240 + 80, 7):
        told = take(Pipeline(SETTINGS), batches[:crash_at])
        second_life = Pipeline(SETTINGS)
        assert second_life.restore("a", stored(told).values()) is None
        told += take(second_life, batches[160:])
        assert verdicts(told) == verdicts(whole), crash_at


FAULT = Fault(70, 100)


@pytest.fixture(scope="module")
def told(quick_fits: None) -> list[Result]:
    """Results of host a up to second 80, with an episode open at the end."""
    pipeline = Pipeline(SETTINGS)
    return [result for batch in run(["a"], 80, FAULT) for result in pipeline.feed(batch, batch.start_ns / NANO)]


def other_catalogue(record: StateRecord) -> StateRecord:
    """As many features as ours, of other names."""
    return replace(record, manifest=json.dumps({**json.loads(record.manifest), "catalogue": "00000000"}))


def cut_short(record: StateRecord) -> StateRecord:
    return replace(
        record, arrays={name: array[:-1] for name, array in record.arrays.items() if "positions" not in name}
    )


LOSSES: dict[str, tuple[str, Callable[[StateRecord], StateRecord] | None]] = {
    "no row": ("row/7", None),
    "no model": ("model/1", None),
    "a model of another catalogue": ("model/1", other_catalogue),
    "a row of another catalogue": ("row/3", other_catalogue),
    "a row without its positions": ("row/3", cut_short),
    "a model without a manifest": ("model/1", lambda record: replace(record, manifest="")),
    "a model without arrays": ("model/1", lambda record: replace(record, arrays={})),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_state_that_is_lost_costs_a_warm_up_and_nothing_else(told: list[Result], loss: str) -> None:
    slots = stored(told)
    slot, change = LOSSES[loss]
    lost = slots.pop(slot)
    if change is not None:
        slots[slot] = change(lost)
    [last] = list(episodes(told).values())[-1:]
    assert last.state != "closed"
    pipeline = Pipeline(SETTINGS)
    assert pipeline.restore("a", slots.values())
    progressed = json.loads(slots["progress"].manifest)["next_start"]
    # All is read again from before; what was judged is not judged again.
    batches = run(["a"], 130, FAULT, begin=50)
    results = [result for batch in batches for result in pipeline.feed(batch, batch.start_ns / NANO)]
    mine = list(verdicts(results).values())
    assert [v.window_start_ns // NANO for v in mine] == list(range(progressed, START + 128))
    assert [v.state for v in mine[: WARM + 2]] == ["warming"] * WARM + ["scored"] * 2
    assert mine[WARM].model_version == 2
    [closed] = episodes(results).values()
    assert (closed.id, closed.state, closed.revision) == (last.id, "closed", last.revision + 1)
    assert closed.explanation.endswith("Closed because the model of the host was lost")


@pytest.mark.parametrize("manifest", ["", "garbage", "null", "[]", "3", "{}", '{"next_start": 1}'])
def test_a_progress_that_is_none_leaves_the_host_new(told: list[Result], manifest: str) -> None:
    slots = stored(told)
    slots["progress"] = replace(slots["progress"], manifest=manifest)
    pipeline = Pipeline(SETTINGS)
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        pipeline.restore("a", slots.values())
    assert pipeline.hosts == {}
    results = [result for b in run(["a"], 90, begin=78) for result in pipeline.feed(b, b.start_ns / NANO)]
    assert [v.state for v in verdicts(results).values()] == ["warming"] * 10


@pytest.mark.parametrize("rows", [40, 48, 64])
def test_another_number_of_rows_is_not_learnt_anew(rows: int) -> None:
    first = Pipeline(replace(SETTINGS, row_every=1))
    before = [r for b in run(["a"], 85) for r in first.feed(b, b.start_ns / NANO)]
    settings = replace(SETTINGS, row_every=1, rows=rows)
    second_life = Pipeline(settings)
    assert second_life.restore("a", stored(before).values()) is None
    after = [r for b in run(["a"], 130, begin=80) for r in second_life.feed(b, b.start_ns / NANO)]
    assert {v.state for v in verdicts(after).values()} == {"scored"}
    assert {v.model_version for v in verdicts(after).values()} == {1, 2}
    assert len(second_life.hosts["a"].learner.rows) == min(rows, 48 + len(verdicts(after)))
    # And what is stored then is whole again.
    assert Pipeline(settings).restore("a", (stored(before) | stored(after)).values()) is None


def tock(pipeline: Pipeline, seconds: range) -> list[Result]:
    """Host b goes on, with a tick each second."""
    results: list[Result] = []
    for batch in run(["b"], seconds.stop, begin=seconds.start):
        results += pipeline.feed(batch, batch.start_ns / NANO)
        if batch.subsystem == SUBSYSTEMS[-1]:
            results += pipeline.tick(batch.start_ns / NANO)
    return results


def test_a_restored_host_that_never_speaks_is_silenced_and_forgotten(told: list[Result]) -> None:
    settings = replace(SETTINGS, silence_s=20.0, forget_s=30.0)
    pipeline = Pipeline(settings)
    assert pipeline.restore("a", stored(told).values()) is None
    results = tock(pipeline, range(100, 118))
    assert [e for e in results if isinstance(e, Episode)] == []
    results = tock(pipeline, range(118, 125))
    [closed] = [e for e in results if isinstance(e, Episode)]
    assert (closed.host, closed.state) == ("a", "closed")
    assert closed.explanation.endswith("Closed because the host fell silent")
    closing = next(each for each in results if isinstance(each, StateRecord) and each.host == "a")
    assert [each["open"] for each in json.loads(closing.manifest)["tracker"]] == [None]
    results = tock(pipeline, range(125, 160))
    [forgotten] = [each for each in results if isinstance(each, Forgotten)]
    assert forgotten.host == "a"
    assert set(forgotten.slots) >= set(stored(told))
    assert set(pipeline.hosts) == {"b"}
    assert tock(pipeline, range(160, 162))


def test_nobody_is_forgotten_while_nothing_flows(told: list[Result]) -> None:
    settings = replace(SETTINGS, silence_s=20.0, forget_s=30.0)
    pipeline = Pipeline(settings)
    assert pipeline.restore("a", stored(told).values()) is None
    assert [result for now in range(1000) for result in pipeline.tick(START + 100 + now)] == []
    assert "a" in pipeline.hosts


def test_a_fault_of_ours_costs_no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows whose judging fails are withheld with the reason, and counted neither for nor against anything."""
    judge = Host._judge

    def fail(host: Host, window: Window) -> list[Result]:
        if window.start % 10 == 0:
            raise ZeroDivisionError("made up")
        return judge(host, window)

    monkeypatch.setattr(Host, "_judge", fail)
    told = list(verdicts(backtest(run(["a"], 60), SETTINGS)).values())
    assert [v.window_start_ns // NANO - START for v in told] == list(range(58))
    withheld = [v for v in told if v.state == "withheld"]
    assert [v.window_start_ns // NANO - START for v in withheld] == [0, 10, 20, 30, 40, 50]
    assert {v.reason for v in withheld} == {"fault in the pipeline: ZeroDivisionError: made up"}
    assert [v.state for v in told].count("warming") == WARM - 1  # the fit is due by time, not by windows


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_fit_that_fails_costs_neither_window_nor_state(monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    fit, fits = Baseline.fit, list[int]()

    def fail(rows: list[Row], version: int, settings: PipelineSettings) -> Baseline:
        fits.append(version)
        if len(fits) == fails_at:
            raise ValueError("made up")
        return fit(rows, version, settings)

    monkeypatch.setattr(Baseline, "fit", fail)
    pipeline = Pipeline(SETTINGS)
    results = [r for b in run(["a"], 110) for r in pipeline.feed(b, b.start_ns / NANO)]
    mine = list(verdicts(results).values())
    assert len(mine) == 108
    assert mine[-1].state == "scored"
    assert Pipeline(SETTINGS).restore("a", stored(results).values()) is None


def test_an_episode_that_ends_in_a_fault_of_ours_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Learner.take

    def fail(learner: Learner, row: Row) -> list[StateRecord]:
        if row.start > START + 75:
            raise ZeroDivisionError("made up")
        return take(learner, row)

    monkeypatch.setattr(Learner, "take", fail)
    results = list(backtest(run(["a"], 150, Fault(70, 80)), replace(SETTINGS, row_every=1)))
    assert len(verdicts(results)) == 148
    states = list(episodes(results).values())
    assert [state.revision for state in states] == list(range(len(states)))
    assert states[-1].state == "closed"
