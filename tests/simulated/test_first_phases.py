"""The first evaluation that a healthy host is seen to do is no fault: that it sends less is plain seconds before it is
plain that it reads more. Seeds differ in the job, and in the part of a second in which the evaluation begins.
"""

from __future__ import annotations

import pytest

from producers.fleet.faults import faults
from producers.fleet.jobs import Timing
from producers.fleet.schedule import Request, Schedule, make_hosts
from producers.fleet.simulation import Fleet
from schemas.records import Episode, Verdict
from schemas.settings import PipelineSettings
from stream_processors.pipeline import Pipeline
from tests.simulated.test_case_studies import START

TIMING = Timing((90.0, 91.0), (15.0, 60.0), (1.0, 1.1), (55.0, 65.0), (6.0, 7.0), 5, (15.0, 16.0))
"""A checkpoint a minute, two of them after the warm-up, and an evaluation after five trainings."""
KNOWN_S = 160
"""Hosts are known by then."""
AFTER_S = 10


def twins(seed: int) -> tuple[Fleet, float]:
    """Two hosts with the same job, and when its first evaluation begins, s."""
    hosts = make_hosts([("small-vm", 2)])
    fleet = Fleet(hosts, Schedule(hosts), seed=seed, start_ns=START * 10**9, timing=TIMING)
    timeline = fleet.timeline(hosts[0])
    [first, *_] = [each for each in timeline.changes(0.0, 600.0) if each.change == "evaluation"]
    return fleet, first.start


def judged(fleet: Fleet, seconds: int) -> tuple[list[Verdict], list[Episode]]:
    """Verdicts and episodes as they were opened."""
    pipeline, verdicts, opened = Pipeline(PipelineSettings()), [], []
    for index in range(seconds):
        for record in fleet.records(index):
            for result in pipeline.feed(record, START + index + 1.0):
                if isinstance(result, Verdict):
                    verdicts.append(result)
                elif isinstance(result, Episode) and result.state == "opened":
                    opened.append(result)
    return verdicts, opened


@pytest.mark.parametrize("seed", [1, 5, 6])
def test_the_first_evaluation_opens_nothing(seed: int) -> None:
    fleet, begin = twins(seed)
    verdicts, opened = judged(fleet, int(begin) + AFTER_S)
    assert opened == []
    for host in fleet.hosts:
        after = [v for v in verdicts if v.host == host.name and v.window_end_ns > (START + begin) * 10**9]
        assert sum(each.anomalous for each in after) >= 3, "it was plain at once that it is a phase"
        assert after[-1].state == "changed"


def test_a_stalled_host_on_which_nothing_rises_does_not_wait() -> None:
    fleet, _ = twins(1)
    fleet.schedule.add([Request(faults()["stalled-host"], KNOWN_S + 0.5, 20.0, 0)])
    _, opened = judged(fleet, KNOWN_S + AFTER_S)
    [only] = opened
    assert only.host == fleet.hosts[0].name
    assert only.opened_ns <= (START + KNOWN_S + 3) * 10**9
