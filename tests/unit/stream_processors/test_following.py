"""Several episodes of one host at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping

from schemas.records import DetectorScore, Episode, Evidence, Verdict
from schemas.settings import PipelineSettings
from stream_processors.attribution import Finding
from stream_processors.following import EVERYTHING, SPREAD_S, Following, Sight, Subsystems
from tests.synthetic import START

SETTINGS = PipelineSettings()
NANO = 10**9


class Story:
    """Windows, one a second, in which subsystems are as strange as told."""

    def __init__(self) -> None:
        self.following = Following(SETTINGS)
        self.second = START
        self.told: list[Episode] = []
        self.asked: list[Subsystems] = []

    def tell(self, seconds: int, **strangeness: float) -> list[Episode]:
        """States of episodes in the next `seconds`."""
        before = len(self.told)
        for _ in range(seconds):
            severity = max(strangeness.values(), default=0.3)
            strange = severity > 2
            verdict = Verdict(
                host="h",
                window_start_ns=self.second * NANO,
                window_end_ns=(self.second + 3) * NANO,
                state="scored",
                coverage=1.0,
                scores=(DetectorScore("zscore", 1.0, 1.0, 0.1, strange),),
                votes=2 * strange,
                severity=severity,
                anomalous=strange,
            )

            def show(seen: Subsystems, strangeness: Mapping[str, float] = strangeness) -> Sight:
                self.asked.append(seen)
                shown = {name: value for name, value in strangeness.items() if name in seen}
                rows = tuple(Evidence(f"{name}.x", name, "", "level", "", 9.0, 1.0, 9.0) for name in shown)
                whole = sum(shown.values())
                return Sight(
                    max(shown.values(), default=0.0),
                    {name: value / whole for name, value in shown.items()},
                    Finding(tuple(f"{name}.x" for name in shown), rows),
                )

            self.verdict, states = self.following.follow(verdict, show if strange else None)
            self.told += states
            self.second += 1
        return self.told[before:]

    def opened(self) -> list[str]:
        """Subsystems of the episodes, in the order in which they opened."""
        return [each.subsystem for each in self.told if each.state == "opened"]


def test_what_becomes_strange_soon_after_is_of_the_same_episode() -> None:
    story = Story()
    story.tell(5)
    story.tell(6, network=6.0)
    story.tell(SPREAD_S, network=6.0, gpu=8.0)
    story.tell(30, network=6.0, gpu=8.0)
    assert story.opened() == ["network"]
    [episode] = story.following.open
    assert set(episode.shares) == {"network", "gpu"}


def test_what_a_fault_does_elsewhere_is_of_its_episode_however_small_it_was_at_first() -> None:
    story = Story()
    story.tell(SPREAD_S - 8, network=60.0)
    story.tell(8, network=60.0, memory=3.0)
    story.tell(30, network=6.0, memory=6.0)
    assert story.opened() == ["network"]
    # A blip is nothing that it does.
    other = Story()
    other.tell(3, network=60.0, memory=3.0)
    other.tell(SPREAD_S, network=60.0)
    other.tell(5, network=6.0, memory=6.0)
    assert other.opened() == ["network", "memory"]


def test_what_begins_elsewhere_later_is_an_episode_of_its_own() -> None:
    story = Story()
    story.tell(5)
    story.tell(SPREAD_S + 10, memory=9.0)
    first = story.verdict.episode
    begin = story.second
    [opened] = [each for each in story.tell(3, memory=9.0, cpu=4.5) if each.state == "opened"]
    assert (opened.subsystem, opened.shares) == ("cpu", {"cpu": 1.0})
    assert opened.start_ns == (begin + 2) * NANO
    assert {row.subsystem for row in opened.evidence} == {"cpu"}
    assert story.verdict.episode == first  # of several the most severe
    story.tell(3, memory=5.0, cpu=9.0)
    assert story.verdict.episode == opened.id
    closed = [each for each in story.tell(10, memory=9.0) if each.state == "closed"]
    assert [each.id for each in closed] == [opened.id]
    assert [each.subsystem for each in story.following.open] == ["memory"]
    # The one that goes on knows nothing of the other.
    assert {row.subsystem for row in story.following.open[0].evidence} == {"memory"}


def test_the_first_may_close_before_the_second_and_more_of_the_second_goes_on_with_it() -> None:
    story = Story()
    story.tell(SPREAD_S + 10, memory=9.0)
    story.tell(5, memory=9.0, cpu=6.0)
    story.tell(8, cpu=6.0)
    assert [each.subsystem for each in story.following.open] == ["cpu"]
    story.tell(8)
    assert not story.following.open
    reopened = story.tell(3, cpu=6.0)
    assert reopened
    assert reopened[0].state == "updated"
    assert story.opened() == ["memory", "cpu"]


def test_no_more_episodes_at_a_time_than_subsystems() -> None:
    story = Story()
    strange: dict[str, float] = {}
    for name in ("cpu", "memory", "storage", "network", "gpu"):
        strange[name] = 9.0
        story.tell(SPREAD_S + 10, **strange)
    assert story.opened() == ["cpu", "memory", "storage", "network", "gpu"]
    story.tell(60, **strange)
    assert len(story.told) > 5
    assert len(story.following.open) == 5
    closed = story.following.end("Closed because the host fell silent")
    assert len(closed) == 5
    assert not story.following.open


def test_following_is_its_state() -> None:
    """Whatever window it is taken up at, it goes on as if it had not been."""
    plot: list[tuple[int, dict[str, float]]] = [
        (SPREAD_S + 5, {"memory": 9.0}),
        (6, {"memory": 9.0, "cpu": 5.0}),
        (7, {"cpu": 5.0}),
        (9, {}),
        (4, {"cpu": 5.0}),
    ]
    whole, parts = Story(), Story()
    for seconds, strange in plot:
        whole.tell(seconds, **strange)
        for _ in range(seconds):
            parts.tell(1, **strange)
            state = json.loads(json.dumps(parts.following.state()))
            parts.following = Following.restore(SETTINGS, state)
    assert parts.told == whole.told
    assert len(whole.opened()) == 2


def test_state_of_a_version_with_one_episode_at_a_time_is_taken_up() -> None:
    story = Story()
    story.tell(10, memory=9.0)
    [state] = [row for row in story.following.state() if row["open"] is not None]
    del state["holds"]
    following = Following.restore(SETTINGS, state)
    assert [each.subsystem for each in following.open] == ["memory"]
    assert following.strands[0].holds == {"memory"}


def test_a_window_is_looked_at_once() -> None:
    story = Story()
    story.tell(10, cpu=9.0)
    assert story.asked == 10 * [EVERYTHING]
