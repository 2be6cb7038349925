"""Faults of the simulated fleet through the real pipeline: opened, put down to the right subsystem, and named; the twin
that does the same job without the fault is not.

The five case studies of the paper come first. Each profile is learnt once, and each fault strikes a copy of what was
learnt, so that faults do not see each other.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache

import pytest

from producers.fleet.faults import faults
from producers.fleet.jobs import Timing
from producers.fleet.schedule import Request, Schedule, make_hosts
from producers.fleet.simulation import Fleet
from schemas.codec import decode, encode
from schemas.records import Episode
from schemas.settings import PipelineSettings
from stream_processors.causes import NAMED, causes
from stream_processors.pipeline import Pipeline

START = 1_790_000_000
SETTINGS = PipelineSettings(warmup_windows=60, rows=64, refit_windows=100_000)
# One long phase of training: changes of the job are a matter of their own.
STEADY = Timing(
    job_minutes=(600.0, 601.0),
    gap_seconds=(15.0, 60.0),
    start_seconds=(1.0, 1.1),
    checkpoint_every_seconds=(3000.0, 3001.0),
    checkpoint_seconds=(6.0, 7.0),
    evaluate_every=3,
    evaluate_seconds=(15.0, 16.0),
)
SETTLE_S = 20
MOST_WARM_S = 140
CALM_S = 6
FAULT_S = 25
CASE_STUDIES = ("numa-placement", "single-queue-pair", "irq-imbalance", "huge-pages", "packet-loss")
GPU = (
    *("thermal-throttling", "power-cap", "gpu-clock-cap", "ecc-burst", "fallen-off-the-bus", "pcie-width"),
    *("nvlink-errors", "ib-link-errors", "roce-congestion"),
)
HOST = (
    *("slow-disk", "writeback-storm", "memory-pressure", "cpu-contention", "softirq-overload", "clock-cap"),
    *("memory-ecc", "stalled-host"),
)
FULL = [
    *(("hgx-h100", name) for name in (*CASE_STUDIES, *GPU, *HOST)),
    *(("dgx-v100", name) for name in (*CASE_STUDIES, "gpu-clock-cap", "ib-link-errors", "stalled-host")),
    *(("epyc-cpu", name) for name in (*CASE_STUDIES, *HOST)),
    *(("small-vm", name) for name in (*CASE_STUDIES, *HOST)),
]
WEAK = [
    *(("hgx-h100", name, 0.4) for name in (*CASE_STUDIES, "power-cap", "slow-disk")),
    *(("epyc-cpu", name, 0.3) for name in (*CASE_STUDIES, *HOST)),
    *(("small-vm", name, 0.4) for name in ("irq-imbalance", *HOST)),
]


@dataclass
class Play:
    """Two twins, as far as they were simulated and judged."""

    fleet: Fleet
    pipeline: Pipeline
    second: int = 0

    def go(self, seconds: int) -> list[Episode]:
        """States of episodes in the next `seconds`."""
        told: list[Episode] = []
        for index in range(self.second, self.second + seconds):
            for event in self.fleet.events(index):
                self.pipeline.feed_event(event, START + index + 1.0)
            for record in self.fleet.records(index):
                results = self.pipeline.feed(record, START + index + 1.0)
                told += [each for each in results if isinstance(each, Episode)]
        self.second += seconds
        return told


@cache
def learnt(profile: str) -> Play:
    """Twins of `profile` that are known; to be copied."""
    hosts = make_hosts([(profile, 2)])
    fleet = Fleet(hosts, Schedule(hosts), start_ns=START * 10**9, timing=STEADY)
    for index in range(SETTLE_S):  # temperatures and caches settle
        list(fleet.records(index))
    play = Play(fleet, Pipeline(SETTINGS), SETTLE_S)
    while not play.pipeline.hosts or any(host.baseline is None for host in play.pipeline.hosts.values()):
        assert play.second < MOST_WARM_S, "nothing was learnt"
        play.go(1)
    play.go(CALM_S)
    return play


@cache
def struck(profile: str, name: str, intensity: float = 1.0) -> tuple[list[Episode], list[Episode]]:
    """States of the episodes that began with the fault: of the host that it struck, and of its twin."""
    play = copy.deepcopy(learnt(profile))
    onset = play.second
    play.fleet.schedule.add([Request(faults()[name], float(onset), float(FAULT_S), 0, intensity)])
    told = [each for each in play.go(FAULT_S) if each.start_ns >= (START + onset - 2) * 10**9]
    first, second = (host.name for host in play.fleet.hosts)
    return [each for each in told if each.host == first], [each for each in told if each.host == second]


def can(profile: str, name: str) -> bool:
    return make_hosts([(profile, 1)])[0].profile.can(faults()[name].needs)


def expected(profile: str, name: str) -> tuple[str, str]:
    """Subsystem and cause."""
    fault = faults()[name]
    return fault.expected(make_hosts([(profile, 1)])[0].profile), fault.cause


@pytest.mark.parametrize(("profile", "name"), [pair for pair in FULL if can(*pair)])
def test_a_fault_is_opened_attributed_and_named(profile: str, name: str) -> None:
    states, twin = struck(profile, name)
    assert states, "no episode"
    last = states[-1]
    assert (last.subsystem, last.cause) == expected(profile, name), (last.candidates, last.explanation)
    assert last.confidence >= NAMED
    assert last.confidence == last.candidates[last.cause or ""]
    assert causes()[last.cause or ""].title in last.explanation
    assert last.explanation.startswith(f"{last.host}: {last.subsystem} (")
    assert last.checks
    assert last.remedy
    assert {each.cause for each in twin} <= {None}
    assert decode(encode(last)) == last


@pytest.mark.parametrize(("profile", "name", "intensity"), [each for each in WEAK if can(*each[:2])])
def test_a_weak_fault_is_named_or_unknown_and_never_something_else(profile: str, name: str, intensity: float) -> None:
    states, twin = struck(profile, name, intensity)
    if states:
        assert states[-1].cause in (expected(profile, name)[1], None), states[-1].candidates
        assert states[-1].cause is not None or "cause unknown" in states[-1].explanation
    assert {each.cause for each in twin} <= {None}


@pytest.mark.parametrize("name", CASE_STUDIES)
def test_a_case_study_is_opened_and_named_even_when_weak(name: str) -> None:
    states, _ = struck("hgx-h100", name, 0.4)
    assert expected("hgx-h100", name)[1] in {each.cause for each in states}


def test_layers_stay_visible_in_their_order() -> None:
    """Lost packets first, GPUs that wait for them later."""
    states, _ = struck("hgx-h100", "packet-loss")
    since: dict[str, int] = {}
    for row in states[-1].evidence:
        assert row.since_ns is not None
        since[row.subsystem] = min(since.get(row.subsystem, row.since_ns), row.since_ns)
    assert since["network"] < since["gpu"]
    assert "First " in states[-1].explanation
    assert len({row.metric for row in states[-1].evidence}) == len(states[-1].evidence)


def test_evidence_names_the_instance_and_the_direction() -> None:
    states, _ = struck("hgx-h100", "pcie-width")
    [row] = [row for row in states[-1].evidence if row.metric == "gpu.pcie_width_lost"]
    assert row.instance.startswith("gpu")
    assert (row.direction, row.instance_observed, row.instance_expected) == ("up", 12.0, 0.0)
    for row in states[-1].evidence:
        assert 0 <= row.contribution <= 1
        assert row.direction in ("up", "down")
    assert sum(row.contribution for row in states[-1].evidence) > 0.2
