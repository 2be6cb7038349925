"""What belongs to a fault, and the form of the results."""

from __future__ import annotations

import json

from tests.laboratory.judge import Episode, Outcome, Trial, judged, quiet, result, summary
from tests.laboratory.table import FAULTS

ONSET = 1_790_000_100.25
HOG = Trial(FAULTS["cpu-hog"], "cpu_contention", ONSET, ONSET + 15)
LOSS = Trial(FAULTS["packet-loss"], "packet_loss", ONSET + 60, ONSET + 75)
SKIPPED = Trial(FAULTS["huge-pages"], "huge_pages", skipped="the kernel has no huge pages")


def episode(start: float, opened: float, **changes: object) -> Episode:
    given = {"subsystem": "cpu", "cause": "cpu_contention", "metrics": ("mem.free", "cpu.run_delay"), "closed": None}
    return Episode("e", start, opened, **{**given, **changes})  # type: ignore[arg-type]


def found(*episodes: Episode) -> list[Episode | None]:
    return [outcome.episode for outcome in judged((HOG, LOSS), episodes)]


def test_an_episode_belongs_to_the_fault_that_it_started_in() -> None:
    first, second = episode(ONSET + 1, ONSET + 3), episode(ONSET + 74, ONSET + 76)
    assert found(second, first) == [first, second]
    assert found(second) == [None, second]


def test_of_several_it_is_the_first_that_opened() -> None:
    first, second = episode(ONSET + 1, ONSET + 3, subsystem="memory"), episode(ONSET + 8, ONSET + 10)
    assert found(second, first) == [first, None]


def test_what_started_or_opened_before_or_after_belongs_to_no_fault() -> None:
    before, dated, opened = (
        episode(ONSET - 1.5, ONSET + 1),
        episode(ONSET - 0.9, ONSET + 1),
        episode(ONSET - 0.5, ONSET - 0.1),
    )
    after = episode(ONSET + 15.5, ONSET + 17)
    assert found(before, opened, after) == [None, None]
    assert found(dated) == [dated, None]


def test_a_row_says_all_that_is_asked_for() -> None:
    outcome = Outcome(HOG, episode(ONSET + 1, ONSET + 2.5))
    assert list(outcome.row().items()) == [
        ("fault", "cpu-hog"),
        ("expected_subsystem", "cpu"),
        ("expected_cause", "cpu_contention"),
        ("onset", "2026-09-21T14:15:00.250+00:00"),
        ("opened", "2026-09-21T14:15:02.750+00:00"),
        ("delay", 2.5),
        ("subsystem", "cpu"),
        ("cause", "cpu_contention"),
        ("evidence_rank", 2),
    ]


def test_what_was_missed_or_skipped_is_null() -> None:
    missed, skipped = (Outcome(trial, None).row() for trial in (HOG, SKIPPED))
    assert missed["onset"] is not None
    for name in ("opened", "delay", "subsystem", "cause", "evidence_rank"):
        assert missed[name] is None
        assert skipped[name] is None
    assert "skipped" not in missed
    assert skipped["onset"] is None
    assert skipped["skipped"] == "the kernel has no huge pages"


def test_evidence_that_the_fault_does_not_explain_has_no_rank() -> None:
    assert Outcome(HOG, episode(ONSET, ONSET + 2, metrics=("mem.free",))).evidence_rank is None


def test_quiet_counts_what_began_in_it() -> None:
    spans = [(ONSET - 200, ONSET - 20), (ONSET + 20, ONSET + 40)]
    episodes = [
        episode(start, start + 2) for start in (ONSET - 201, ONSET - 200, ONSET - 21, ONSET, ONSET + 39, ONSET + 40)
    ]
    calm = quiet(spans, episodes)
    assert calm.row() == {"hours": round(200 / 3600, 4), "false_episodes": 3}
    assert quiet([], episodes).row() == {"hours": 0.0, "false_episodes": 0}


def test_what_belongs_to_a_fault_is_not_false_although_it_is_dated_before_its_onset() -> None:
    until_then = [(ONSET - 200, ONSET)]
    dated, before = episode(ONSET - 0.25, ONSET + 1.75), episode(ONSET - 0.25, ONSET - 0.1)
    assert quiet(until_then, [dated, before], [HOG, SKIPPED]).false_episodes == 1
    assert quiet(until_then, [dated], [HOG, SKIPPED]).false_episodes == 0
    assert quiet(until_then, [dated], [SKIPPED]).false_episodes == 1


def test_summary_counts_a_missed_fault_as_wrong_and_leaves_out_a_skipped_one() -> None:
    right = Outcome(HOG, episode(ONSET, ONSET + 2))
    misnamed = Outcome(LOSS, episode(ONSET + 60, ONSET + 66, subsystem="network"))
    told = summary([right, misnamed, Outcome(HOG, None), Outcome(SKIPPED, None)])
    assert (told.acted, told.opened, told.median_delay) == (3, 2, 4.0)
    assert (told.subsystems, told.causes) == (2 / 3, 1 / 3)
    nothing = summary([Outcome(SKIPPED, None)])
    assert (nothing.acted, nothing.median_delay, nothing.subsystems, nothing.causes) == (0, None, None, None)


def test_an_honest_unknown_is_not_the_expected_cause() -> None:
    assert not Outcome(HOG, episode(ONSET, ONSET + 2, cause=None)).right_cause
    nameless = Trial(FAULTS["cpu-hog"], None, ONSET, ONSET + 15)
    assert Outcome(nameless, episode(ONSET, ONSET + 2, cause=None)).right_cause


def test_the_result_is_json() -> None:
    told = result(judged((HOG, SKIPPED), [episode(ONSET, ONSET + 2)]), quiet([(0, 1800)], []))
    assert json.loads(json.dumps(told)) == told
    assert list(told) == ["faults", "quiet"]
    assert [row["fault"] for row in told["faults"]] == ["cpu-hog", "huge-pages"]
    assert told["quiet"] == {"hours": 0.5, "false_episodes": 0}


def test_an_episode_that_was_open_before_a_fault_is_told() -> None:
    opened = episode(ONSET - 9, ONSET - 5, closed=ONSET + 2)
    hog, loss = judged((HOG, LOSS), [opened])
    assert (hog.episode, hog.open_before) == (None, opened)
    assert (loss.episode, loss.open_before) == (None, None)
    lasting = episode(ONSET - 9, ONSET - 5)
    assert [each.open_before for each in judged((HOG, LOSS, SKIPPED), [lasting])] == [lasting, lasting, None]
