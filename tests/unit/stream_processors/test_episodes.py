"""Episodes: when they open, close and open again, and what they say of why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from schemas.records import DetectorScore, Episode, Verdict
from schemas.settings import PipelineSettings
from stream_processors.backtest import backtest
from stream_processors.episodes import Tracker
from tests.synthetic import START, Fault, run

SETTINGS = PipelineSettings()
NANO = 10**9
KINDS: Mapping[str, tuple[str, str | None, float]] = {
    "c": ("scored", "cpu", 6.0),
    "m": ("scored", "memory", 6.0),
    "w": ("scored", "cpu", 2.0),  # keeps an episode open, opens none
    ".": ("scored", None, 0.3),
    "-": ("withheld", None, 0.0),
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
                states = self.tracker.follow(self.verdict(*KINDS[letter]), (), "strange")
                self.told += states
            self.second += 1
        return states

    def verdict(self, state: str, subsystem: str | None, severity: float) -> Verdict:
        return Verdict(
            host="h",
            window_start_ns=self.second * NANO,
            window_end_ns=(self.second + 3) * NANO,
            state=state,
            coverage=1.0,
            scores=(DetectorScore("zscore", 1.0, 1.0, 0.1, subsystem is not None),),
            severity=severity,
            anomalous=subsystem is not None,
            subsystem=subsystem,
            shares={subsystem: 1.0} if subsystem else {},
        )


def ids(states: Iterable[Episode]) -> list[str]:
    """Different ids, in the order of their coming."""
    return list(dict.fromkeys(state.id for state in states))


def test_one_window_opens_nothing_and_two_do() -> None:
    story = Story()
    assert story.tell("..c.c.w.w") == []
    [opened] = story.tell("..cc")
    assert (opened.state, opened.windows, opened.revision) == ("opened", 2, 0)
    assert opened.start_ns == (story.second - 2 + 3 - SETTINGS.step_s) * NANO


@pytest.mark.parametrize("gap", ["   ", "          "])
def test_a_gap_between_two_windows_breaks_the_streak(gap: str) -> None:
    story = Story()
    assert story.tell(f"...c{gap}c") == []
    assert len(story.tell("c")) == 1


def test_overlapping_windows_with_one_missing_are_still_a_streak() -> None:
    assert len(Story().tell("...c c")) == 1


def test_a_withheld_window_breaks_the_streak() -> None:
    assert Story().tell("..c-c") == []


def test_windows_that_are_withheld_close_an_episode_and_say_so() -> None:
    story = Story()
    story.tell("..cccc")
    assert story.tell("----") == []
    [closed] = story.tell("-")
    assert closed.state == "closed"
    assert closed.closed_ns == (story.second - 6 + 3) * NANO
    assert closed.explanation.endswith("Closed because too little data comes")
    assert story.tell("-----") == []


def test_calm_windows_close_an_episode_and_weak_ones_do_not() -> None:
    story = Story()
    story.tell("..cc....w....w....")
    assert story.tracker.open is not None
    [closed] = story.tell(".")
    assert (closed.state, closed.explanation) == ("closed", "strange")


def test_a_long_gap_closes_an_episode_and_says_so() -> None:
    story = Story()
    story.tell("..cccc" + " " * 100)
    [closed] = story.tell(".")
    assert closed.explanation == "strange. Closed because nothing came for 98 s"


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
    whole = Story()
    whole.tell("..cccmmc.....ccc.......cc......ccccccc")
    for cut in range(38):
        story = Story()
        story.tell("..cccmmc.....ccc.......cc......ccccccc"[:cut])
        story.tracker = Tracker.restore(SETTINGS, story.tracker.state())
        story.tell("..cccmmc.....ccc.......cc......ccccccc"[cut:])
        assert story.told == whole.told


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
    assert [verdict.state for verdict in after] == ["warming"] * 40 + ["scored"] * (len(after) - 40)
    assert len(after) > 80
    assert {verdict.model_version for verdict in after[40:]} == {2}
    assert sum(verdict.anomalous for verdict in after[40:]) <= 2
