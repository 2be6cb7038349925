"""Faults while a host is learnt hide none that come after: on the simulated fleet, bursts of different faults make up a
tenth of the warm-up of one of two twins.
"""

from __future__ import annotations

import copy
from functools import cache

import pytest

from producers.fleet.faults import faults
from producers.fleet.schedule import Request, Schedule, make_hosts
from producers.fleet.simulation import Fleet
from schemas.settings import PipelineSettings
from stream_processors.pipeline import Pipeline
from tests.simulated.test_case_studies import CALM_S, FAULT_S, SETTLE_S, START, STEADY, Play, expected

KINDS = ("packet-loss", "irq-imbalance", "slow-disk", "memory-pressure", "cpu-contention", "writeback-storm")
BURSTS = {
    1: ((60, 13),),
    3: ((40, 4), (78, 4), (109, 4)),
    6: ((33, 2), (47, 2), (66, 2), (90, 2), (112, 2), (124, 2)),
}
"""Second and length, by their number."""
MOST_WARM_S = 200


@cache
def learnt(bursts: int) -> Play:
    """Twins that are known, of which the first was struck while it was learnt; to be copied."""
    hosts = make_hosts([("epyc-cpu", 2)])
    schedule = Schedule(hosts)
    schedule.add(
        Request(faults()[KINDS[(number + bursts) % len(KINDS)]], float(begin), float(length), 0)
        for number, (begin, length) in enumerate(BURSTS[bursts])
    )
    fleet = Fleet(hosts, schedule, start_ns=START * 10**9, timing=STEADY)
    for index in range(SETTLE_S):
        list(fleet.records(index))
    play = Play(fleet, Pipeline(PipelineSettings()), SETTLE_S)
    while not play.pipeline.hosts or any(host.baseline is None for host in play.pipeline.hosts.values()):
        assert play.second < MOST_WARM_S, "nothing was learnt"
        play.go(1)
    play.go(CALM_S)
    return play


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("bursts", BURSTS)
def test_a_fault_is_opened_and_named_after_a_contaminated_warm_up(bursts: int, name: str) -> None:
    play = copy.deepcopy(learnt(bursts))
    onset = play.second
    play.fleet.schedule.add([Request(faults()[name], float(onset), float(FAULT_S), 0)])
    told = [each for each in play.go(FAULT_S) if each.start_ns >= (START + onset - 2) * 10**9]
    mine = [each for each in told if each.host == play.fleet.hosts[0].name]
    assert mine, "no episode"
    assert (mine[-1].subsystem, mine[-1].cause) == expected("epyc-cpu", name), mine[-1].explanation
    assert {each.cause for each in told if each.host != play.fleet.hosts[0].name} <= {None}
