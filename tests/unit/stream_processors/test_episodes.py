"""Episodes: when they open, close and open again, and what they say of why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from schemas.records import DetectorScore, Episode, Evidence, Verdict
from schemas.settings import PipelineSettings
from stream_processors.attribution import EVIDENCE_ROWS, Finding, merged
from stream_processors.backtest import backtest
from stream_processors.episodes import REST, Tracker
from tests.synthetic import START, Fault, run

SETTINGS = PipelineSettings()
NANO = 10**9
STRONG = SETTINGS.open_severity + 3.5
WEAK = (SETTINGS.open_severity + SETTINGS.close_severity) / 2
KINDS: Mapping[str, tuple[str, str | None, float]] = {
    "c": ("scored", "cpu", STRONG),
    "m": ("scored", "memory", STRONG),
    "w": ("scored", "cpu", WEAK),  # keeps an episode open, opens none
    "v": ("scored", "cpu", 2.45),  # votes, and a severity that opens an episode when it lasts
    "o": ("scored", "cpu", 1.1),  # strange, but not anomalous
    "g": ("changed", None, STRONG),
    "s": ("scored", "cpu", STRONG),  # only what is left of it
    "p": ("scored", "cpu", STRONG),  # over before its newest second
    ".": ("scored", None, 0.3),
    "-": ("withheld", None, 0.0),
    "x": ("scored", "network", STRONG),  # the same cause seen from another side
    "u": ("scored", "cpu", STRONG),  # strange without a cause
    "j": ("scored", "memory", STRONG),  # what a job does when it begins or ends
    "d": ("scored", "memory", STRONG),  # another cause
    "n": ("scored", "network", STRONG),  # on a host that is watched for nothing else
}
SHARES: Mapping[str, Mapping[str, float]] = {"x": {"network": 0.6, "cpu": 0.4}}
SHOWN: Mapping[str, tuple[str, str, str]] = {
    "c": ("cpu.load1", "cpu", "cpu_contention"),
    "w": ("cpu.load1", "cpu", "cpu_contention"),
    "v": ("cpu.load1", "cpu", "cpu_contention"),
    "o": ("cpu.load1", "cpu", "cpu_contention"),
    "s": ("mem.free", "cpu", ""),
    "p": ("cpu.load1", "cpu", "cpu_contention"),
    "m": ("vm.swap_out", "memory", "memory_pressure"),
    "x": ("tcp.retrans_segs", "network", "irq_imbalance"),
    "u": ("cpu.smi", "cpu", ""),
    "j": ("mem.anon", "memory", "workload_change"),
    "d": ("disk.await_read", "memory", "disk_latency"),
    "n": ("tcp.retrans_segs", "network", "irq_imbalance"),
}


@dataclass
class Story:
    """Windows told as letters of KINDS, one a second; a space is a second without a window."""

    settings: PipelineSettings = SETTINGS
    second: int = START
    told: list[Episode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tracker = Tracker(self.settings)

    def tell(self, letters: str) -> list[Episode]:
        """States that the last of `letters` brings forth."""
        states: list[Episode] = []
        for letter in letters:
            if letter != " ":
                states = self.tracker.follow(self.verdict(letter, *KINDS[letter]), self.finding(letter))
                self.told += states
            self.second += 1
        return states

    def finding(self, letter: str) -> Finding:
        """What the window of `letter` shows: one metric, stronger from window to window, and a cause that fits."""
        if KINDS[letter][1] is None:
            return Finding()
        metric, subsystem, cause = SHOWN[letter]
        row = Evidence(metric, subsystem, "", "level", "", 9.0, 1.0, self.second - START + 5.0, direction="up")
        return Finding((metric,), (row,), {cause: 0.8} if cause else {}, letter == "s", over=letter == "p")

    def verdict(self, letter: str, state: str, subsystem: str | None, severity: float) -> Verdict:
        return Verdict(
            host="h",
            window_start_ns=self.second * NANO,
            window_end_ns=(self.second + 3) * NANO,
            state=state,
            coverage=1.0,
            scores=(DetectorScore("zscore", 1.0, 1.0, 0.1, subsystem is not None),),
            severity=severity,
            anomalous=subsystem is not None and letter != "o",
            subsystem=subsystem,
            shares=SHARES.get(letter, {subsystem: 1.0} if subsystem else {}),
        )


def ids(states: Iterable[Episode]) -> list[str]:
    """Different ids, in the order of their coming."""
    return list(dict.fromkeys(state.id for state in states))


def test_one_window_opens_nothing_and_two_do() -> None:
    story = Story()
    assert story.tell("..c....w....ww......") == []
    [opened] = story.tell("..cc")
    assert (opened.state, opened.windows, opened.revision) == ("opened", 2, 0)
    assert opened.start_ns == (story.second - 2 + 3 - SETTINGS.step_s) * NANO


def test_where_no_cause_is_likely_it_takes_a_window_more() -> None:
    story = Story()
    assert story.tell("..uu") == []
    [opened] = story.tell("u")
    assert (opened.windows, opened.start_ns) == (3, (story.second - 3 + 3 - SETTINGS.step_s) * NANO)


def test_a_moment_opens_nothing_however_many_windows_it_is_in() -> None:
    assert Story().tell("..cpp...") == []
    assert Story().tell("..ppp.pp") == []
    # Another one in the next second is no moment any more, and what is open goes on with what it leaves behind.
    story = Story()
    [opened] = story.tell("..cpc")
    assert (opened.windows, opened.start_ns) == (2, (story.second - 3 + 3 - SETTINGS.step_s) * NANO)
    story.tell("pp")
    assert story.tracker.open is not None
    assert story.tracker.open.windows == 4


def test_what_lasts_opens_an_episode_however_weak_and_what_comes_and_goes_does_not() -> None:
    story = Story()
    assert story.tell("..vvvvvvvv") == []
    [opened] = story.tell("v")
    assert opened.windows == 9
    assert opened.start_ns == (story.second - 9 + 3 - SETTINGS.step_s) * NANO
    assert Story().tell("..vv..vv..vv..vv..vv..vv..vv..vv..vv") == []
    assert len(Story().tell("..c.c")) == 1  # strong enough that a calm window between does not matter


def test_a_change_of_work_is_no_part_of_what_lasts() -> None:
    assert Story().tell("..cgc") == []


def test_a_weak_episode_goes_on_while_it_is_half_as_severe_as_it_was() -> None:
    story = Story()
    story.tell("..vvvvvvvvv")
    assert story.tracker.open is not None
    story.tell("vvvvvvvvvv")
    assert story.tracker.open is not None
    assert story.tracker.open.windows == 19
    assert story.tell("ooooo")[0].state == "closed"
    strong = Story()
    strong.tell("..cccc")
    strong.tell("vvvvv")
    assert strong.tracker.open is not None  # two votes are two votes
    assert strong.tell("ooooo")[0].state == "closed"


def test_what_is_left_of_an_episode_does_not_keep_it_open() -> None:
    story = Story()
    story.tell("..cccc")
    assert [each.state for each in story.tell((REST - 1) * "s")] != ["closed"]
    story.tell("c")
    [closed] = story.tell(REST * "s")
    assert closed.state == "closed"
    assert closed.explanation.endswith("Closed because what is left is another level")


@pytest.mark.parametrize("gap", ["   ", "          "])
def test_a_gap_between_two_windows_breaks_the_streak(gap: str) -> None:
    story = Story()
    assert story.tell(f"...c{gap}c") == []
    assert len(story.tell("c")) == 1


def test_overlapping_windows_with_one_missing_are_still_a_streak() -> None:
    assert len(Story().tell("...c c")) == 1


def test_a_withheld_window_breaks_the_streak() -> None:
    assert Story().tell("..c-c") == []


def test_an_episode_goes_on_while_too_little_data_comes_and_is_closed_when_none_comes_for_long() -> None:
    """A fault that starves the agent as well."""
    story = Story()
    story.tell("..cccc")
    assert story.tell("-" * 20) == []
    story.tell("cc")
    assert ids(story.told) == [story.told[0].id]
    assert story.tracker.open is not None
    assert story.tell("-" * int(SETTINGS.silence_s)) == []
    [closed] = story.tell("-")
    assert closed.state == "closed"
    assert closed.closed_ns == (story.second - int(SETTINGS.silence_s) - 2 + 3) * NANO
    assert closed.explanation.endswith("Closed because too little data comes")
    assert story.tell("-----") == []


def test_withheld_windows_are_not_calm() -> None:
    story = Story()
    story.tell("..cccc")
    assert story.tell("..--..--.") == [story.told[-1]]
    assert story.told[-1].state == "closed"


def test_calm_windows_close_an_episode_and_weak_ones_do_not() -> None:
    story = Story()
    story.tell("..cc....w....w....")
    assert story.tracker.open is not None
    [closed] = story.tell(".")
    assert closed.state == "closed"
    assert "Closed" not in closed.explanation


def test_a_long_gap_closes_an_episode_and_says_so() -> None:
    story = Story()
    story.tell("..cccc" + " " * 100)
    [closed] = story.tell(".")
    assert closed.explanation.endswith(". Closed because nothing came for 98 s")


def test_the_same_soon_after_opens_it_again() -> None:
    story = Story()
    story.tell("..cccc.....")
    states = story.tell("...cc")
    assert [(state.state, state.closed_ns) for state in states] == [("updated", None)]
    assert len(ids(story.told)) == 1
    assert [state.revision for state in story.told] == list(range(len(story.told)))
    story.tell(".....")
    assert story.told[-1].state == "closed"


@pytest.mark.parametrize("later", ["...mm", "." * 15 + "cc"])
def test_another_subsystem_or_a_later_time_is_another_episode(later: str) -> None:
    story = Story()
    story.tell("..cccc.....")
    [opened] = story.tell(later)
    assert (opened.state, opened.revision) == ("opened", 0)
    assert len(ids(story.told)) == 2


def test_flapping_is_one_episode() -> None:
    story = Story()
    story.tell("..." + "cc......" * 20)
    assert len(ids(story.told)) == 1
    assert [state.revision for state in story.told] == list(range(len(story.told)))
    assert len(story.told) < 3 * 20


def test_a_tracker_is_its_state() -> None:
    letters = "..cccmmc.....ccc.......cc......cccuu" + 20 * "x"
    whole = Story()
    whole.tell(letters)
    assert len({state.cause for state in whole.told}) > 1
    for cut in range(len(letters)):
        story = Story()
        story.tell(letters[:cut])
        story.tracker = Tracker.restore(SETTINGS, json.loads(json.dumps(story.tracker.state())))
        story.tell(letters[cut:])
        assert story.told == whole.told


def test_state_from_before_there_were_causes_is_taken_up() -> None:
    story = Story()
    story.tell("..ccc")
    state = json.loads(json.dumps(story.tracker.state()))
    for name in ("fits", "heard", "since"):
        del state[name]
    for name in ("confidence", "candidates", "checks", "remedy"):
        del state["open"][name]
    for row in state["open"]["evidence"]:
        for name in ("direction", "since_ns", "contribution"):
            del row[name]
    story.tracker = Tracker.restore(SETTINGS, state)
    story.tell("ccccc")
    assert (story.told[-1].state, story.told[-1].cause) == ("updated", "cpu_contention")


def test_a_cause_names_the_subsystem_and_the_shares_stay_as_measured() -> None:
    [opened] = Story().tell("..xx")
    assert (opened.cause, opened.subsystem) == ("irq_imbalance", "cpu")
    assert opened.shares == pytest.approx({"network": 0.6, "cpu": 0.4})
    assert opened.confidence == opened.candidates["irq_imbalance"] == 0.8
    # Only a host that has the subsystem can be told to look there.
    [opened] = Story().tell("..nn")
    assert (opened.cause, opened.subsystem) == ("irq_imbalance", "network")


def test_a_cause_is_named_as_evidence_grows_and_told_at_once() -> None:
    story = Story()
    [opened] = story.tell("..uuu")
    assert (opened.cause, opened.confidence, opened.checks, opened.remedy) == (None, 0.0, (), "")
    assert "cause unknown, since " in opened.explanation
    story.tell("cccccc")
    named = next(state for state in story.told if state.cause)
    assert (named.cause, named.state) == ("cpu_contention", "updated")
    assert named.checks
    assert named.remedy
    assert "something else wants the processors" in named.explanation


def test_a_cause_that_fades_out_stays_named() -> None:
    story = Story()
    story.tell("..cccccccccccc")
    story.tell("u" * 30)
    assert story.told[-1].cause == "cpu_contention"
    story.tell("x" * 30)
    assert story.tracker.open is None or story.tracker.open.cause != "cpu_contention"


def test_a_symptom_does_not_take_the_place_of_a_cause() -> None:
    """Memory that is given back looks like a job that ends, and fits that better than memory pressure fitted."""
    story = Story()
    story.tell("..mmmmmmmmmmmm")
    assert story.told[-1].cause == "memory_pressure"
    story.tell("j" * 60)
    assert {state.cause for state in story.told} == {"memory_pressure"}
    assert "workload_change" in story.told[-1].candidates
    # The other way round it does, as soon as it is certain.
    story = Story()
    story.tell("..jjjjjjjjjjjjjjj")
    assert story.told[-1].cause == "workload_change"
    story.tell("m" * 30)
    assert story.told[-1].cause == "memory_pressure"


def test_a_cause_takes_the_place_of_another_once_it_has_held_for_more_of_the_episode() -> None:
    story = Story()
    story.tell("..mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm")
    story.tell("d" * 39)
    assert {state.cause for state in story.told} == {"memory_pressure"}
    story.tell("ddd")
    assert story.told[-1].cause == "disk_latency"


def test_an_episode_that_is_opened_again_keeps_the_cause_it_was_closed_with() -> None:
    """A host that was starved catches up afterwards, which is strange as well and says nothing of why."""
    story = Story()
    story.tell("cccc" + "." * SETTINGS.close_windows)
    story.tell("uuuuuuuu")
    assert ids(story.told) == [story.told[0].id]
    assert {state.cause for state in story.told} == {"cpu_contention"}
    assert story.told[-1].candidates["cpu_contention"] > 0.2


def test_what_was_known_counts_as_much_as_before_when_an_episode_is_opened_again() -> None:
    story = Story()
    story.tell("c" * 10 + "." * SETTINGS.close_windows)
    story.tell("xxxxx")
    assert {state.cause for state in story.told} == {"cpu_contention"}


def test_what_comes_last_does_not_rename_what_went_on_for_long() -> None:
    story = Story()
    story.tell("..cccccccccccccccc")
    story.tell("xxxx")
    assert story.told[-1].cause == "cpu_contention"
    # Nor does it name what fitted nothing.
    story = Story()
    story.tell("..uuuuuuuuuuuuuuuu")
    story.tell("cccc")
    assert story.told[-1].cause is None


def test_evidence_is_dated_to_when_it_first_was_strange() -> None:
    story = Story()
    [opened] = story.tell("..uuu")
    story.tell("ccccc")
    rows = {row.metric: row for row in story.told[-1].evidence}
    assert rows["cpu.smi"].since_ns == opened.start_ns
    assert rows["cpu.load1"].since_ns == opened.start_ns + 3 * NANO
    assert rows["cpu.load1"].deviation == max(row.deviation for row in rows.values())


def test_evidence_of_all_layers_is_kept_in_order_of_strength() -> None:
    rows = [
        Evidence(metric, subsystem, "", "level", "", 9.0, 1.0, 900.0 - number)
        for number, (metric, subsystem) in enumerate(
            [*((f"disk.odd{i}", "storage") for i in range(30)), ("cpu.smi", "cpu"), ("gpu.util", "gpu")]
        )
    ]
    kept = merged((), rows, None)
    assert len(kept) == EVIDENCE_ROWS
    assert {row.subsystem for row in kept} == {"storage", "cpu", "gpu"}
    assert [row.deviation for row in kept] == sorted((row.deviation for row in kept), reverse=True)
    weaker = Evidence("disk.odd0", "storage", "", "level", "", 9.0, 1.0, 5.0, since_ns=1)
    [first, *_] = merged(kept, [weaker], None)
    assert (first.metric, first.deviation) == ("disk.odd0", 900.0)
    cited = Evidence("vm.swap_out", "memory", "", "level", "", 9.0, 1.0, 4.5)
    assert cited in merged(kept, [cited], "memory_pressure")


def test_what_lasts_becomes_the_new_normal() -> None:
    settings = replace(SETTINGS, warmup_windows=40, rows=48, regime_windows=20)
    told = list(backtest(run(["a"], 180, Fault(60, 1000)), settings))
    states = [each for each in told if isinstance(each, Episode)]
    assert len(ids(states)) == 1
    assert (states[-1].state, states[-1].windows) == ("closed", 20)
    assert states[-1].explanation.endswith("Closed because it lasts: it is learnt as the new normal")
    verdicts = [each for each in told if isinstance(each, Verdict)]
    assert len(verdicts) == 178
    last = max(i for i, verdict in enumerate(verdicts) if verdict.episode)
    after = verdicts[last + 1 :]
    # Until the new model is there the old one judges, and what lasts is no anomaly to it.
    learnt = [verdict.model_version for verdict in after].index(2)
    assert 40 <= learnt <= 52
    assert {verdict.state for verdict in after[:40]} == {"changed"}
    assert {verdict.state for verdict in after[learnt:]} == {"scored"}
    assert len(after) - learnt > 40
    assert sum(verdict.anomalous for verdict in after[learnt:]) <= 2
