"""Baselines in the course of time: fits elsewhere, versions that are kept, warm-ups that go wrong, slow drift."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from math import sin
from typing import Any

import numpy as np
import pytest

from schemas.codec import Rejected, decode, encode
from schemas.records import Episode, StateRecord, Telemetry, Verdict
from schemas.settings import PipelineSettings
from stream_processors.backtest import backtest
from stream_processors.baseline import Baseline
from stream_processors.contamination import usual
from stream_processors.control import Command, read_command
from stream_processors.features import feature_table
from stream_processors.fitting import Background, Inline
from stream_processors.host import Result
from stream_processors.learning import NO_SIGN, Learner, drifted
from stream_processors.looks import speaking
from stream_processors.pipeline import Pipeline
from stream_processors.rows import Row
from tests.synthetic import CPU_HOG, START, WRITEBACK, Fault, run

pytestmark = pytest.mark.usefixtures("quick_fits")

SETTINGS = PipelineSettings(warmup_windows=40, rows=48, refit_windows=30, row_every=1)
SECONDS = 120
FAULT = Fault(100, 108)
NANO = 10**9


class Late(Executor):
    """Does what it is given when somebody waits for it, and not before."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.asked += 1

        class Waited(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                return fn(*args, **kwargs)

        return Waited()


class Never(Executor):
    """Takes work and does none of it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


def feed(pipeline: Pipeline, batches: Iterable[Telemetry]) -> list[Result]:
    return [result for batch in batches for result in pipeline.feed(batch, batch.start_ns / NANO + 1)]


def verdicts(results: Iterable[object]) -> list[Verdict]:
    return [each for each in results if isinstance(each, Verdict)]


def episodes(results: Iterable[object]) -> list[Episode]:
    return [each for each in results if isinstance(each, Episode)]


def stored(results: Iterable[object]) -> dict[str, StateRecord]:
    records = [decode(encode(each)) for each in results if isinstance(each, StateRecord)]
    return {each.slot: each for each in records if isinstance(each, StateRecord)}


@pytest.fixture(scope="module")
def wanted() -> list[Result]:
    return feed(Pipeline(SETTINGS), run(["a"], SECONDS, FAULT))


def told(results: Iterable[object]) -> list[object]:
    """Everything but arrays, which do not compare."""
    return [(each.slot, each.manifest) if isinstance(each, StateRecord) else each for each in results]


@pytest.fixture(params=["thread", "late", "never"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    made: Executor = {"thread": lambda: ThreadPoolExecutor(1), "late": Late, "never": Never}[request.param]()
    yield made
    made.shutdown()


def test_how_long_a_fit_takes_changes_nothing(executor: Executor, wanted: list[Result]) -> None:
    pipeline = Pipeline(
        SETTINGS, fitter=Background(executor, longest_wait_s=0.01 if isinstance(executor, Never) else 60)
    )
    assert told(feed(pipeline, run(["a"], SECONDS, FAULT))) == told(wanted)
    assert {v.model_version for v in verdicts(wanted)} == {0, 1, 2}
    assert episodes(wanted)


def asked_and_adopted(results: Sequence[Result]) -> tuple[int, int]:
    """Seconds of the windows in which the second model was asked for, and taken up."""
    states = [json.loads(r.manifest) for r in results if isinstance(r, StateRecord) and r.slot == "progress"]
    asked = next(state["next_start"] - 1 for state in states if state["due"] and state["version"] == 1)
    adopted = next(v.window_start_ns // NANO for v in verdicts(results) if v.model_version == 2)
    return asked - START, adopted - START


def test_the_stream_goes_on_with_the_old_model_while_a_fit_is_under_way(wanted: list[Result]) -> None:
    asked, adopted = asked_and_adopted(wanted)
    assert adopted == asked + SETTINGS.adopt_windows
    late = Late()
    pipeline = Pipeline(SETTINGS, fitter=Background(late))
    results = feed(pipeline, run(["a"], adopted + 2))
    assert late.asked == 2
    # The window that takes the model up is not closed yet, and nothing waits.
    assert verdicts(results)[-1].window_start_ns // NANO - START == adopted - 1
    assert {v.model_version for v in verdicts(results)[asked:]} == {1}
    assert pipeline.waits_for("a", START + adopted + 1) is None
    assert pipeline.waits_for("a", START + adopted + 2) is not None
    assert pipeline.waits_for("b", START + adopted + 2) is None


def test_a_worker_that_takes_over_between_a_fit_and_its_adoption(wanted: list[Result]) -> None:
    asked, adopted = asked_and_adopted(wanted)
    batches = list(run(["a"], SECONDS, FAULT))
    for second in range(asked, adopted + 4):
        crash_at = 4 * (second + 2)
        first = Pipeline(SETTINGS, fitter=Background(Never()))
        first_life = (
            feed(Pipeline(SETTINGS), batches[:crash_at]) if second >= adopted else feed_until(first, batches, crash_at)
        )
        second_life = Pipeline(SETTINGS, fitter=Background(Late()))
        assert second_life.restore("a", stored(first_life).values()) is None
        # What was not acknowledged comes again.
        results = first_life + feed(second_life, batches[crash_at - 60 :])
        found = {v.window_start_ns: v for v in verdicts(results)}
        assert found == {v.window_start_ns: v for v in verdicts(wanted)}, second
        assert {(e.id, e.revision): e for e in episodes(results)} == {
            (e.id, e.revision): e for e in episodes(wanted)
        }, second


def feed_until(pipeline: Pipeline, batches: Sequence[Telemetry], crash_at: int) -> list[Result]:
    """The first fit is there, the second never is."""
    pipeline.fitter = Inline
    results = feed(pipeline, batches[: 4 * 60])
    pipeline.hosts["a"].learner._fitter = Background(Never())
    return results + feed(pipeline, batches[4 * 60 : crash_at])


def test_first_fits_of_hosts_that_come_together_are_spread() -> None:
    settings = PipelineSettings()
    after = [Learner(f"gpu-{number:03}", settings, Inline)._first_after for number in range(200)]
    assert (min(after), max(after)) == (120, 135)
    assert all(after.count(each) < 40 for each in set(after))


# Versions


def pinning(version: int, model: StateRecord) -> Command:
    """The command as a worker reads it."""
    record = decode(encode(Command("a", version, model).record()))
    assert isinstance(record, StateRecord)
    return read_command(record)


def obey(pipeline: Pipeline, command: Command) -> list[Result]:
    return pipeline.obey(command.host, command.pinned, command.model)


def test_a_pinned_version_is_kept_through_refits_and_restarts_until_unpinned() -> None:
    batches = list(run(["a"], 260))
    pipeline = Pipeline(SETTINGS)
    results = feed(pipeline, batches[: 4 * 100])
    assert verdicts(results)[-1].model_version == 2
    results += obey(pipeline, pinning(1, stored(results)["model/1"]))
    assert results[-1:] == [each for each in results[-1:] if isinstance(each, StateRecord) and each.slot == "progress"]
    fresh = feed(pipeline, batches[4 * 100 : 4 * 150])
    assert {v.model_version for v in verdicts(fresh)} == {1}
    second_life = Pipeline(SETTINGS)
    assert second_life.restore("a", stored(results + fresh).values()) is None
    again = feed(second_life, batches[4 * 140 : 4 * 200])
    assert {v.model_version for v in verdicts(again)} == {1}
    again += obey(second_life, Command("a", None))
    last = verdicts(feed(second_life, batches[4 * 200 :]))
    # It learns on at once, and the new version does not take the place of the one that was in use.
    assert [v.model_version for v in last[:3]] == [1, 1, 1]
    assert list(dict.fromkeys(v.model_version for v in last)) == [1, 4, 5]


def test_a_command_that_cannot_be_obeyed_changes_nothing() -> None:
    pipeline = Pipeline(SETTINGS)
    results = feed(pipeline, run(["a"], 100))
    slots = stored(results)
    for host, pinned, model, words in (
        ("b", 1, slots["model/1"], "nothing is known of b"),
        ("a", 7, slots["model/1"], "version 7 is not among those that are kept"),
        ("a", 2, slots["model/1"], "version 2 is asked for, and version 1 sent along"),
        ("a", 1, None, "version 1 is not among those"),
        ("a", 1, replace(slots["model/1"], arrays={}), "KeyError"),
    ):
        with pytest.raises(Rejected, match=words):
            pipeline.obey(host, pinned, model)
    assert pipeline.hosts["a"].learner.pinned is None
    assert verdicts(feed(pipeline, run(["a"], 104, begin=100)))[-1].model_version == 2


@pytest.mark.parametrize("manifest", ["", "null", "{}", '{"pinned": "two"}', '{"pinned": 1}'])
def test_what_is_no_command_is_rejected(manifest: str) -> None:
    with pytest.raises(Rejected, match="wrong-record"):
        read_command(StateRecord("a", "control", manifest, {}))
    with pytest.raises(Rejected, match="wrong-record"):
        read_command(StateRecord("a", "progress", '{"pinned": null}', {}))


# Warm-ups that go wrong, and drift


def contaminated(seconds: int, bursts: Iterable[tuple[int, int]], last: Fault) -> Iterator[Telemetry]:
    for index in range(seconds):
        burst = next((Fault(*each, WRITEBACK) for each in bursts if each[0] <= index < each[1]), None)
        yield from run(["a"], index + 1, burst if burst is not None else last, begin=index)


@pytest.mark.parametrize("bursts", [[(30, 42)], [(20, 24), (50, 54)]])
def test_a_tenth_of_the_warm_up_that_is_anomalous_hides_nothing(bursts: list[tuple[int, int]]) -> None:
    """In a row, or as two bursts; the same happens again when the host is warm."""
    settings = PipelineSettings(warmup_windows=110, rows=120)
    results = list(backtest(contaminated(170, bursts, Fault(150, 160, WRITEBACK)), settings))
    assert verdicts(results)[-1].model_version == 1
    first = next(each for each in episodes(results) if each.state == "opened")
    assert START + 149 <= first.start_ns / NANO <= START + 151
    assert first.opened_ns / NANO <= START + 154
    assert len({each.id for each in episodes(results)}) == 1


@pytest.mark.parametrize("every", [5, 20])
def test_a_rhythm_of_the_host_stays_normal(every: int) -> None:
    """What the kernel writes back every few seconds, while the host is learnt and after."""
    begins = range(3, 300, every)
    batches = contaminated(300, [(begin, begin + 1) for begin in begins], Fault(290, 300, CPU_HOG))
    results = list(backtest(batches, PipelineSettings()))
    first = next(each for each in episodes(results) if each.state == "opened")
    assert START + 289 <= first.start_ns / NANO <= START + 291
    assert first.subsystem == "cpu"


def test_bursts_are_left_out_and_rhythms_are_not() -> None:
    rng = np.random.default_rng(1)
    starts = np.arange(120) + START
    rows = rng.standard_normal((2, 120, 40)).astype(np.float32)

    def left_out(seconds: Iterable[int], shapes: Sequence[int]) -> list[int]:
        """Of which rows, when metrics of the first subsystem leap in `seconds`, eight of them from each of `shapes`."""
        struck = rows.copy()
        for second, shape in zip(seconds, shapes, strict=True):
            struck[0, second, shape : shape + 8] = 25
        kept = usual({"cpu": struck[0], "memory": struck[1]}, starts)
        assert (kept["cpu"] == kept["memory"]).all()
        return np.flatnonzero(~kept["cpu"]).tolist()

    assert left_out([], []) == []
    assert left_out([40, 41], [0, 0]) == [39, 40, 41, 42]
    # As often as a rhythm, but never the same; the same, but not evenly; a rhythm.
    assert left_out([10, 34, 58, 82, 106], [0, 8, 16, 24, 32]) == [
        second + near for second in (10, 34, 58, 82, 106) for near in (-1, 0, 1)
    ]
    assert len(left_out([10, 20, 31, 44, 50], [0] * 5)) == 15
    assert left_out([10, 34, 58, 82, 106], [0] * 5) == []
    # All the time, and for long.
    assert left_out(range(5, 120, 12), [8 * (number % 5) for number in range(10)]) == []
    assert left_out(range(20, 80), [0] * 60) == []
    assert left_out(range(20, 80, 3), [0] * 20) == []


def loaded(seconds: range, jump: float = 1.0, rise: float = 0.01) -> Iterator[Telemetry]:
    """A host whose load wanders by a tenth, as loads do, and on top of that rises by 1 % a minute."""
    for batch in run(["a"], seconds.stop, begin=seconds.start):
        t = batch.start_ns / NANO - START
        wandering = 1 + 0.1 * (sin(t / 5) + sin(t / 13 + 1) + sin(t / 29 + 2)) / 1.7
        factor = np.float32(jump * wandering * (1 + rise * t / 60))
        yield replace(batch, metrics={name: values * factor for name, values in batch.metrics.items()})


def test_a_slow_rise_is_learnt_and_a_jump_is_not() -> None:
    settings = PipelineSettings(warmup_windows=60, rows=64, refit_windows=120, row_every=2)
    pipeline = Pipeline(settings)
    slow = feed(pipeline, loaded(range(900)))
    assert episodes(slow) == []
    assert verdicts(slow)[-1].model_version >= 5
    assert sum(v.anomalous for v in verdicts(slow)) <= 0.01 * 900
    # A rise by as much at once is no drift.
    sudden = episodes(feed(pipeline, loaded(range(900, 920), jump=1.3)))
    [start] = [each.start_ns / NANO - START for each in sudden if each.state == "opened"]
    # Two windows of the rise just before the jump are anomalous, too little for an episode of their own.
    assert 896 <= start <= 900


@pytest.mark.parametrize("rise", [0.0, 0.02])
def test_a_host_that_drifts_is_fitted_again_sooner(rise: float) -> None:
    settings = PipelineSettings(warmup_windows=60, rows=64, refit_windows=600, row_every=2)
    told = verdicts(feed(Pipeline(settings), loaded(range(480), rise=rise)))
    assert (told[-1].model_version > 1) == (rise > 0)


def steadily(seconds: range, growth: float) -> Iterator[Telemetry]:
    """A host whose metrics wander by a few per cent, and grow by the factor `growth` in an hour."""
    for batch in run(["a"], seconds.stop, begin=seconds.start):
        factor = np.float32(growth ** ((batch.start_ns / NANO - START) / 3600))
        yield replace(batch, metrics={name: values * factor for name, values in batch.metrics.items()})


@pytest.mark.parametrize("growth", [1.82, 2.0])
def test_a_drift_opens_nothing_with_the_default_settings(growth: float) -> None:
    """1 % a minute, and twice as much in an hour; what leaps is told."""
    pipeline = Pipeline(PipelineSettings())
    results = feed(pipeline, steadily(range(1200), growth))
    assert episodes(results) == []
    learner = pipeline.hosts["a"].learner
    assert learner.drift is not None
    assert np.count_nonzero(learner.drift) > 100
    leap = replace_levels(steadily(range(1200, 1215), growth), 1.3)
    assert [round(e.start_ns / NANO) - START for e in episodes(feed(pipeline, leap)) if e.state == "opened"] == [1200]


def replace_levels(batches: Iterable[Telemetry], factor: float) -> Iterator[Telemetry]:
    for batch in batches:
        yield replace(batch, metrics={n: values * np.float32(factor) for n, values in batch.metrics.items()})


def test_a_worker_that_takes_over_knows_the_drift() -> None:
    batches = list(steadily(range(420), 2.0))
    wanted = {v.window_start_ns: v for v in verdicts(feed(Pipeline(PipelineSettings()), batches))}
    for second in (300, 331, 350, 407):
        first = feed(Pipeline(PipelineSettings()), batches[: 4 * second])
        second_life = Pipeline(PipelineSettings())
        assert second_life.restore("a", stored(first).values()) is None
        learner = second_life.hosts["a"].learner
        assert learner.drift is not None
        results = [*first, *feed(second_life, batches[4 * second - 60 :])]
        assert {v.window_start_ns: v for v in verdicts(results)} == wanted, second


def test_how_far_a_host_had_drifted_is_known_while_a_change_is_learnt_and_after_it_went_again() -> None:
    batches = list(steadily(range(420), 2.0))
    pipeline = Pipeline(PipelineSettings())
    results = feed(pipeline, batches[: 4 * 360])
    learner = pipeline.hosts["a"].learner
    drift = learner.drift
    assert drift is not None
    learner.begin_anew()
    results += feed(pipeline, batches[4 * 360 : 4 * 390])
    assert learner.learnt > 20
    other = Pipeline(PipelineSettings())
    assert other.restore("a", stored(results).values()) is None
    learner.go_back()
    feed(pipeline, batches[4 * 390 :])
    for each in (learner, other.hosts["a"].learner):
        assert each.drift is not None
        np.testing.assert_array_equal(each.drift, drift)
    learner.relearn()
    assert learner.drift is None


def test_where_a_host_was_for_a_moment_is_not_where_it_is() -> None:
    """A burst in the last seconds of the warm-up, in which every second is learnt, and a pause after it."""
    settings = PipelineSettings()
    last = Learner("a", settings, Inline)._first_after + 2
    pipeline = Pipeline(settings)
    feed(pipeline, run(["a"], last, Fault(last - 8, last)))
    after = feed(pipeline, run(["a"], last + 80, begin=last + 40))
    host = pipeline.hosts["a"]
    assert host.baseline is not None
    assert host.learner.drift is None or np.count_nonzero(np.abs(host.learner.drift) > 4) == 0
    assert not verdicts(after)[-1].anomalous


@pytest.mark.parametrize("growth", [1.5, 2.0, 3.0])
def test_windows_of_a_host_that_drifts_are_ordinary(growth: float) -> None:
    """All of it is followed, since metrics that are each only a little off are strange together."""
    told = verdicts(feed(Pipeline(PipelineSettings()), steadily(range(900), growth)))
    severities = np.array([each.severity for each in told if each.severity is not None])
    assert len(severities) > 700
    assert (severities >= 2).mean() < 0.06
    assert (severities >= 3).mean() < 0.015


def test_what_speaks_of_a_fault_takes_part_in_a_drift_and_no_more() -> None:
    pipeline = Pipeline(PipelineSettings())
    feed(pipeline, steadily(range(400), 3.0))
    drift = pipeline.hosts["a"].learner.drift
    assert drift is not None
    assert np.abs(drift[~speaking()]).max() > 2 * NO_SIGN
    assert np.abs(drift[speaking()]).max() == pytest.approx(NO_SIGN)


def test_what_speaks_of_a_fault_does_not_drift_alone() -> None:
    told = {feature_table().metrics[at].name for at in feature_table().metric_of[speaking()]}

    def creeping() -> Iterator[Telemetry]:
        for batch in run(["a"], 400):
            factor = np.float32(3.0 ** ((batch.start_ns / NANO - START) / 900))
            yield replace(batch, metrics={n: v * factor if n in told else v for n, v in batch.metrics.items()})

    pipeline = Pipeline(PipelineSettings())
    feed(pipeline, creeping())
    learner = pipeline.hosts["a"].learner
    assert learner.baseline is not None
    assert learner.drift is None or not learner.drift[speaking()].any()


@pytest.mark.parametrize(
    ("moved", "followed"),
    [
        ([0.7, -0.7, 0.1, np.nan], [0, 0, 0, 0]),
        ([0.7, -0.9, 0.1, np.nan], [0.7, -0.9, 0.1, 0]),
        ([0.9, *[0.5] * 20], [0.9, *[0.0] * 20]),
    ],
)
def test_where_a_host_drifts_as_a_whole_all_of_it_is_followed(moved: list[float], followed: list[float]) -> None:
    drift, whole = drifted(np.array(moved, np.float32))
    np.testing.assert_allclose(drift, followed)
    assert whole == (np.count_nonzero(drift) > 1)


def test_a_row_is_packed_without_losing_what_a_baseline_tells_apart() -> None:
    results = feed(Pipeline(SETTINGS), run(["a"], 44))
    rows = [Row.restore(each) for slot, each in stored(results).items() if slot.startswith("row/")]
    baseline = Baseline.fit(sorted(rows, key=lambda row: row.start), 1, SETTINGS)
    assert zlib.crc32(b"a") % 6 == 3
    assert sum(bool(row.packed) for row in rows) == 6
    assert baseline.levels
    assert len(rows[0].features.data) < 2048
