"""Changes of work are told apart from faults: on simulated hosts, whose jobs and faults are known."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from producers.fleet.faults import faults
from producers.fleet.jobs import Timing
from producers.fleet.schedule import Request, Schedule, make_hosts
from producers.fleet.simulation import Fleet
from schemas.catalogue import catalogue
from schemas.codec import decode, encode
from schemas.records import Episode, StateRecord, Telemetry, Verdict
from schemas.settings import PipelineSettings
from stream_processors.features import feature_table
from stream_processors.host import Result
from stream_processors.looks import (
    ALLOCATIONS,
    FAULT_WORDS,
    LOAD_WORDS,
    TRAFFIC_WORDS,
    WORK,
    Look,
    look,
    speaks_of_fault,
)
from stream_processors.pipeline import Pipeline
from stream_processors.regime import ADJUST_S, AS_BEFORE, PHASES, Regimes
from stream_processors.seconds import Singles
from tests.synthetic import CPU_HOG, START, Fault, run

pytestmark = pytest.mark.usefixtures("quick_fits")

NANO = 10**9
JOBS = Timing((3, 3), (60, 60), (20, 20), (90, 90), (0.5, 0.5), 99, (15, 35))
"""A job until second 181, a pause, another job from 241 on that trains from 261 on."""
CHECKPOINTS = Timing((90, 90), (60, 60), (20, 20), (70, 70), (8, 8), 99, (15, 35))
"""One job that writes a checkpoint in seconds 70 to 78, 148 to 156, 226 to 234, 304 to 312, ..."""
STEADY = Timing((600, 600), (60, 60), (20, 20), (3000, 3000), (8, 8), 99, (15, 35))
EVALUATIONS = Timing((90, 90), (60, 60), (20, 20), (180, 180), (8, 8), 1, (20, 20))
"""One job that reads instead of computing in seconds 180 to 200, and then writes a checkpoint."""
JUST_BEFORE = Timing((90, 90), (60, 60), (20, 20), (186, 186), (8, 8), 99, (15, 35))
"""One job that writes a checkpoint in seconds 186 to 194."""
SETTINGS = PipelineSettings()


@cache
def simulated(profile: str, timing: Timing, seconds: int, fault: str = "") -> Sequence[Telemetry]:
    """What a host sends; `fault` strikes it from second 200 to 220."""
    members = make_hosts([(profile, 1)])
    schedule = Schedule(members, 4, 0.0)
    if fault:
        schedule.add([Request(faults()[fault], 200.0, 20.0, 0)])
    fleet = Fleet(members, schedule, seed=4, start_ns=START * NANO, timing=timing)
    return [batch for index in range(seconds) for batch in fleet.records(index)]


def feed(pipeline: Pipeline, batches: Iterable[Telemetry]) -> list[Result]:
    return [result for batch in batches for result in pipeline.feed(batch, batch.start_ns / NANO + 1)]


def verdicts(results: Iterable[object]) -> dict[int, Verdict]:
    return {v.window_start_ns // NANO - START: v for v in results if isinstance(v, Verdict)}


def opened(results: Iterable[object]) -> list[int]:
    return [round(e.start_ns / NANO) - START for e in results if isinstance(e, Episode) and e.state == "opened"]


@cache
def judged(profile: str, timing: Timing, seconds: int, fault: str = "") -> Sequence[Result]:
    return feed(Pipeline(SETTINGS), simulated(profile, timing, seconds, fault))


def test_a_job_that_ends_and_another_that_starts_are_announced_and_learnt() -> None:
    results = judged("small-vm", JOBS, 430)
    told = verdicts(results)
    assert opened(results) == []
    states = [told[second].state for second in range(184, 385)]
    assert states.count("changed") > 0.95 * len(states)
    assert all(not v.anomalous and v.votes >= 2 for v in told.values() if v.state == "changed")
    assert told[200].reason.startswith("the work has changed: memory is allocated otherwise, and cpu, ")
    assert "since 2026-" in told[200].reason
    # Learnt are windows of what came to stay, none of the pause or of the start.
    learnt = next(v for v in told.values() if v.model_version == 2)
    assert 261 + 120 < learnt.window_start_ns // NANO - START < 261 + 145
    after = [v for second, v in told.items() if second > 400]
    assert {v.state for v in after} == {"scored"}
    assert not any(v.anomalous for v in after)


def test_a_fault_with_errors_that_begins_with_a_change_is_found() -> None:
    results = judged("hgx-h100", JOBS, 230, "ecc-burst")
    told = verdicts(results)
    assert {told[second].state for second in range(184, 197)} == {"changed"}
    first = next(e for e in results if isinstance(e, Episode) and e.start_ns / NANO - START > 190)
    assert (first.state, first.subsystem) == ("opened", "gpu")
    assert 199 <= first.start_ns / NANO - START <= 201
    assert first.opened_ns / NANO - START <= 203
    assert first.evidence[0].metric == "gpu.ecc_corrected"


def test_a_checkpoint_is_a_phase_from_the_first_on() -> None:
    results = judged("small-vm", CHECKPOINTS, 430)
    told = verdicts(results)
    checkpoints = (148, 226, 304, 382)
    assert [at for at in opened(results) if any(begin - 4 <= at < begin + 40 for begin in checkpoints)] == []
    for number, begin in enumerate(checkpoints):
        seen = [told[at] for at in range(begin, begin + 6)]
        assert {v.state for v in seen} == {"changed"}
        words = "it does more of one kind and less of another" if number == 0 else f"that came {number} times before"
        assert seen[2].reason == f"a phase of the work{':' if number == 0 else ''} {words}"


@pytest.mark.parametrize("profile", ["small-vm", "epyc-cpu"])
def test_an_evaluation_is_a_phase_from_the_first_on(profile: str) -> None:
    results = judged(profile, EVALUATIONS, 240)
    told = verdicts(results)
    assert opened(results) == []
    assert {told[at].state for at in range(182, 204)} == {"changed"}


@pytest.mark.parametrize("fault", ["slow-disk", "irq-imbalance", "stalled-host", "clock-cap", "writeback-storm"])
def test_a_fault_without_words_is_no_phase(fault: str) -> None:
    results = judged("epyc-cpu", STEADY, 240, fault)
    assert any(199 <= second <= 203 for second in opened(results))
    assert not any(v.state == "changed" for second, v in verdicts(results).items() if 198 <= second < 220)


def test_what_follows_a_phase_settles_or_is_told() -> None:
    """A fault that moves what a checkpoint has left behind, while it settles."""
    results = judged("epyc-cpu", JUST_BEFORE, 240, "writeback-storm")
    told = verdicts(results)
    assert {told[second].state for second in range(188, 192)} == {"changed"}
    assert any(198 <= second <= 204 for second in opened(results))


@pytest.mark.parametrize(("timing", "crashes"), [(JOBS, (183, 250, 330, 392)), (CHECKPOINTS, (152, 160, 306))])
def test_a_worker_that_takes_over_knows_the_work(timing: Timing, crashes: tuple[int, ...]) -> None:
    batches = simulated("small-vm", timing, 430)
    wanted = verdicts(judged("small-vm", timing, 430))
    for crash_at in crashes:
        cut = next(number for number, batch in enumerate(batches) if batch.start_ns // NANO - START >= crash_at)
        before = feed(Pipeline(SETTINGS), batches[:cut])
        records = [decode(encode(each)) for each in before if isinstance(each, StateRecord)]
        slots = {each.slot: each for each in records if isinstance(each, StateRecord)}
        second_life = Pipeline(SETTINGS)
        assert second_life.restore(batches[0].host, slots.values()) is None
        results = [*before, *feed(second_life, batches[max(0, cut - 60) :])]
        assert verdicts(results) == wanted, crash_at
        assert set(opened(results)) == set(opened(judged("small-vm", timing, 430))), crash_at


def test_work_that_goes_back_to_what_it_was_keeps_its_model() -> None:
    """The job of before goes on after the pause."""
    batches = simulated("small-vm", JOBS, 240)
    again = [b for b in batches if 100 <= b.start_ns // NANO - START < 175]
    moved = [replace(b, start_ns=b.start_ns + 140 * NANO, sequence=b.sequence + 140) for b in again]
    pipeline = Pipeline(SETTINGS)
    told = verdicts(feed(pipeline, [*batches, *moved]))
    assert told[220].state == "changed"
    assert {told[second].state for second in range(246, 310)} == {"scored"}
    assert {v.model_version for second, v in told.items() if second > 140} == {1}
    host = next(iter(pipeline.hosts.values()))
    assert not host.regimes.changing
    assert not host.learner.anew


SHORT = PipelineSettings(warmup_windows=40, rows=48, refit_windows=500, regime_windows=30)
ERRORS = {"net.rx_errors": 1.0, "net.tx_errors": 1.0, "net.rx_crc": 1.0, **CPU_HOG}


def test_what_lasts_without_a_word_of_a_fault_becomes_the_new_normal() -> None:
    results = feed(Pipeline(SHORT), run(["a"], 190, Fault(60, 1000)))
    told = verdicts(results)
    last = [each for each in results if isinstance(each, Episode)][-1]
    assert last.state == "closed"
    assert last.explanation.endswith("Closed because it lasts: it is learnt as the new normal")
    assert told[100].state == "changed"
    assert told[100].reason.startswith("what is new lasts, and no metric speaks of a fault, since ")
    assert told[187].model_version == 2
    assert {told[second].state for second in range(160, 188)} == {"scored"}
    assert len(opened(results)) == 1


def test_a_fault_does_not_become_normal_because_it_lasts() -> None:
    named = {name: share for name, share in ERRORS.items() if name in catalogue()}
    assert any(speaks_of_fault(catalogue()[name]) for name in named)
    results = feed(Pipeline(SHORT), run(["a"], 190, Fault(60, 1000, named)))
    assert len(opened(results)) == 1
    assert [each for each in results if isinstance(each, Episode)][-1].state == "updated"
    assert {v.model_version for second, v in verdicts(results).items() if second > 60} == {1}


def test_the_words_are_metrics() -> None:
    assert set(catalogue()) >= ALLOCATIONS | WORK
    for word in FAULT_WORDS:
        assert any(name.startswith(word) for name in catalogue()), word
    assert speaks_of_fault(catalogue()["gpu.ecc_corrected"])
    assert not speaks_of_fault(catalogue()["gpu.throttled.idle"])
    assert not speaks_of_fault(catalogue()["cpu.busy_pct"])


def made_up(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Deviations of a window in which much moved, and nothing speaks of a fault."""
    table = feature_table()
    rng = np.random.default_rng(seed)
    deviations = np.zeros(len(table), np.float32)
    for position, feature in enumerate(table.features):
        name = feature.metric.name
        if feature.kind == "level" and not speaks_of_fault(feature.metric) and name not in ALLOCATIONS | WORK:
            deviations[position] = 40 * rng.standard_normal()
    return deviations


WROTE, SENT, COMPUTED = "disk.write_sectors", "net.tx_bytes", "cpu.time.user"


def working(levels: dict[str, tuple[float, float]]) -> Look:
    """Of a window in which much moved, and these metrics deviate so and have such shares of what is usual."""
    deviations = made_up(0)
    shares = np.ones_like(deviations)
    for position, feature in enumerate(feature_table().features):
        if feature.metric.name in levels and feature.kind == "level" and feature.summary == "mean":
            deviations[position], shares[position] = levels[feature.metric.name]
    return look(deviations, shares)


@pytest.mark.parametrize(
    ("levels", "trades", "may"),
    [
        ({WROTE: (300.0, 40.0), SENT: (-5.0, 0.05)}, True, True),
        ({WROTE: (300.0, 40.0), SENT: (-5.0, 0.7)}, False, True),
        ({WROTE: (300.0, 40.0), SENT: (-5.0, 0.9)}, False, False),
        ({WROTE: (300.0, 40.0), SENT: (-3.0, 0.05)}, False, False),
        ({WROTE: (6.0, 1.4), SENT: (-5.0, 0.05)}, False, True),
        ({WROTE: (300.0, 0.8), SENT: (-5.0, 0.05)}, False, False),
        ({WROTE: (300.0, 40.0), "disk.read_sectors": (-20.0, 0.01)}, False, False),
        ({SENT: (-20.0, 0.0), COMPUTED: (-20.0, 0.0), WROTE: (-5.0, 0.0)}, False, False),
        ({}, False, False),
    ],
    ids=[
        *("given up for another", "on its way", "hardly less", "no less than usual", "hardly taken up"),
        *("one disk instead of others", "within storage", "less of everything", "none moves"),
    ],
)
def test_work_is_traded_when_one_kind_is_given_up_for_another(
    levels: dict[str, tuple[float, float]], trades: bool, may: bool
) -> None:
    seen = working(levels)
    assert (seen.trades, seen.may_trade) == (trades, may)


def test_nothing_opens_while_a_window_shares_samples_with_what_was_before_a_phase() -> None:
    regimes = Regimes(2)
    beginning, other = working({WROTE: (300.0, 40.0), SENT: (-5.0, 0.7)}), looks(1)
    assert [regimes.may_begin(beginning, 3) for _ in range(4)] == [True, True, False, False]
    values, arrays = regimes.state()
    assert not Regimes.restore(2, values, arrays).may_begin(beginning, 3)
    assert not regimes.may_begin(other, 3)
    assert regimes.may_begin(beginning, 3)


@pytest.mark.parametrize(
    ("levels", "windows"),
    [
        ({WROTE: (6.0, 1.4), SENT: (-5.0, 0.05)}, 5),
        ({WROTE: (6.0, 1.4), SENT: (-5.0, 0.7)}, 2),
        ({WROTE: (3.0, 1.2), SENT: (-20.0, 0.05)}, 0),
        ({SENT: (-20.0, 0.0), COMPUTED: (-20.0, 0.0), WROTE: (-5.0, 0.0)}, 0),
        ({"tcp.retrans_segs": (20.0, 9.0), WROTE: (6.0, 1.4), SENT: (-5.0, 0.05)}, 0),
    ],
    ids=["given up, the other rises", "on its way", "the other does not rise", "less of everything", "with a fault"],
)
def test_where_work_is_given_up_what_takes_its_place_has_a_window_more_to_show(
    levels: dict[str, tuple[float, float]], windows: int
) -> None:
    regimes = Regimes(2)
    waits = [regimes.may_begin(working(levels), 3) for _ in range(8)]
    assert waits == [True] * windows + [False] * (8 - windows)


def test_a_host_that_stands_still_is_no_checkpoint() -> None:
    regimes = Regimes(2)
    checkpoint = working({WROTE: (60.0, 9.0), SENT: (-40.0, 0.0), COMPUTED: (-40.0, 0.0)})
    still = working({WROTE: (-5.0, 0.0), SENT: (-40.0, 0.0), COMPUTED: (-40.0, 0.0)})
    begins = working({WROTE: (6.0, 1.4), SENT: (-40.0, 0.0), COMPUTED: (-40.0, 0.0)})
    for second in (1000, 2000):
        assert regimes.phase(checkpoint, second).startswith("a phase of the work")
    assert regimes.phase(still, 3000) == "", "it gives up the same work, but takes up none"
    assert regimes.phase(begins, 4000) == "a phase of the work that came 2 times before"
    assert regimes.phase(still, 4001) == "a phase of the work that came 2 times before", "which is not over at once"


def test_nothing_opens_while_a_phase_that_is_known_may_begin() -> None:
    regimes, whole = Regimes(2), looks(1)
    part, other = replace(whole, shape=np.where(np.arange(len(whole.shape)) % 2, whole.shape, np.float32(0))), looks(2)
    for second in (100, 200):
        assert not regimes.may_begin(part, 3)
        regimes.strange(whole)
        regimes.closed(second)
    assert not regimes.may_begin(other, 3)
    assert [regimes.may_begin(part, 3) for _ in range(4)] == [True, True, False, False]
    regimes.edge = 0
    assert not regimes.may_begin(replace(part, words=("tcp.retrans_segs",)), 3)
    assert not regimes.may_begin(replace(part, shape=-part.shape), 3)


def test_another_job_with_as_much_memory_is_a_change_until_all_looks_as_before() -> None:
    regimes = Regimes(2)
    same = looks(1)
    other = replace(same, allocations=np.full_like(same.allocations, -50.0))
    assert regimes.change(same, 90) == ""
    assert regimes.change(other, 100).startswith("the work has changed: memory is allocated otherwise")
    assert regimes.change(same, 160).startswith("the work has changed: memory is allocated otherwise")
    assert regimes.begun == 160
    for _ in range(AS_BEFORE):
        assert not regimes.as_before()
    assert regimes.change(same, 200) == ""
    assert regimes.change(other, 210).startswith("the work has changed")


def looks(seed: int) -> Look:
    deviations = made_up(seed)
    return look(deviations, np.ones_like(deviations))


def test_phases_that_were_not_seen_for_longest_are_forgotten() -> None:
    regimes = Regimes(1)
    for seed in range(PHASES + 2):
        regimes.strange(looks(seed))
        regimes.closed(100 * seed)
    assert [phase.last for phase in regimes.phases] == [100 * seed for seed in range(2, PHASES + 2)]
    assert regimes.change(looks(0), 5000) == ""
    assert regimes.change(looks(3), 5000).startswith("a phase of the work")
    values, arrays = regimes.state()
    again = Regimes.restore(1, values, arrays)
    assert again.state()[0] == values
    before = {**values, "phases": [row[:2] for row in values["phases"]]}
    assert [phase.last for phase in Regimes.restore(1, before, arrays).phases] == [each.last for each in again.phases]
    assert again.change(looks(4), 6000).startswith("a phase of the work")


def strange(**sizes: float) -> Singles:
    """Deviations of the levels of some metrics, named with __ for a dot."""
    deviations = np.zeros(len(feature_table()), np.float32)
    for name, size in sizes.items():
        metric = name.replace("__", ".")
        for position, feature in enumerate(feature_table().features):
            if feature.metric.name == metric and feature.kind == "level":
                deviations[position] = size
    return deviations


def all_moves(**more: float) -> Singles:
    """Another job: memory and three subsystems, and what else is said."""
    usual = ("mem__anon", "mem__cached", "mem__free", "cpu__busy_pct", "cpu__time__user", "cpu__load1")
    traffic = ("net__rx_bytes", "net__tx_bytes", "net__rx_packets")
    return strange(**dict.fromkeys((*usual, *traffic), 30.0), **more)


def seen_at(regimes: Regimes, deviations: Singles, second: int) -> tuple[tuple[str, ...], str]:
    """Words of a window that deviates so, and why it is a change."""
    heard = regimes.hear(look(deviations, np.ones_like(deviations)), second)
    return heard.words, regimes.change(heard, second)


def test_what_more_traffic_makes_rise_is_a_part_of_a_change_that_it_comes_with() -> None:
    regimes = Regimes(2)
    squeezed = {"softnet__time_squeeze": 40.0}
    assert seen_at(regimes, strange(**squeezed), 1000) == (("softnet.time_squeeze",), "")
    words, why = seen_at(regimes, all_moves(**squeezed), 1001)
    assert words == ()
    assert "the work has changed" in why
    # Another word, or the same one long after the work has changed, is a fault.
    assert seen_at(regimes, all_moves(**squeezed, tcp__retrans_segs=40.0), 1002) == (("tcp.retrans_segs",), "")
    assert seen_at(regimes, all_moves(**squeezed, ip__ecn_ce=40.0), 1002 + ADJUST_S)[0] == ("ip.ecn_ce",)
    assert seen_at(regimes, strange(**squeezed), 1200)[0] == ()
    values, arrays = regimes.state()
    again = Regimes.restore(2, json.loads(json.dumps(values)), arrays)
    assert seen_at(again, strange(**squeezed), 1201)[0] == ()
    regimes.end()
    assert seen_at(regimes, strange(**squeezed), 1202)[0] == ("softnet.time_squeeze",)
    # With a word that no traffic explains nothing is a part of it.
    other = Regimes(2)
    assert len(seen_at(other, all_moves(**squeezed, mem__hugetlb=40.0), 1000)[0]) == 2


def test_what_came_with_a_change_and_lasts_is_learnt_if_more_work_makes_it_rise() -> None:
    def lasting(word: str, changed: bool) -> Regimes:
        regimes = Regimes(2)
        if changed:
            assert seen_at(regimes, all_moves(), 1000)[1]
        regimes.strange(look(strange(**{word: 40.0}), np.ones(len(feature_table()), np.float32)))
        return regimes

    assert lasting("cpu__run_delay", changed=True).accept(1900, 900)
    for regimes in (lasting("cpu__run_delay", changed=False), lasting("tcp__timeouts", changed=True)):
        assert not regimes.accept(1900, 900)
    assert not lasting("cpu__run_delay", changed=True).accept(1899, 900), "not for so long"
    regimes = lasting("cpu__run_delay", changed=True)
    values, arrays = regimes.state()
    again = Regimes.restore(2, json.loads(json.dumps(values)), arrays)
    for each in (regimes, again):
        assert each.accept(1900, 900)
        assert seen_at(each, strange(cpu__run_delay=40.0), 1901)[0] == ()
        assert each.changing
        each.strange(look(strange(cpu__run_delay=40.0), np.ones(len(feature_table()), np.float32)))
        assert not each.accept(1902, 900), "it takes as long again"
    assert set(TRAFFIC_WORDS) < set(LOAD_WORDS)
    # Of a version before it is only known that there were words.
    values["spoke"] = True
    del values["spoken"]
    assert not Regimes.restore(2, values, arrays).accept(1900, 900)
