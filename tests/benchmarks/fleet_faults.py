"""How well faults are found on simulated twins at their work: jobs that start and end, checkpoints, evaluations.

    python -m tests.benchmarks.fleet_faults [--profile P]... [--hosts N] [--minutes M] [--rate R] [--seed S]
                                            [--steady] [--json]

With --steady one job lasts, with its checkpoints and evaluations. Of two twins one has random faults, the other none;
the episodes of the other are false, and told by what its job did; a line of each is written to standard error.
Faults begin when the host is known. One that comes while an episode is open is found if that episode takes it up: it is
`joined`. All times are simulated, so figures do not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from rich.console import Console

from deploy.demo.watch import Advance, progress
from producers.fleet.jobs import Timeline, usual_timing
from producers.fleet.schedule import DEFAULT_START_S, Injection, Schedule, make_hosts
from producers.fleet.simulation import Fleet
from schemas.records import Episode, Verdict
from schemas.settings import PipelineSettings
from stream_processors.pipeline import Pipeline

START: Final = 1_790_000_000
NANO: Final = 10**9
PROFILES: Final = ("hgx-h100", "dgx-v100", "epyc-cpu", "small-vm")
EARLY_S: Final = 3.0
"""An episode that begins at most so long before a fault, since windows overlap, is of it."""
AFTER_S: Final = 15.0
"""For so long after something an episode is put down to it."""
MATTERS: Final = {"checkpoint": "checkpoint", "evaluation": "evaluation", "job-end": "job end"}
"""Other changes are a job that starts."""


@dataclass
class Told:
    """An episode with all its states."""

    states: list[Episode] = field(default_factory=list)

    @property
    def start(self) -> float:
        """Seconds from the beginning of the simulation."""
        return self.states[0].start_ns / NANO - START

    @property
    def until(self) -> float:
        """Last strange second that was told."""
        return self.states[-1].updated_ns / NANO - START

    def words(self, about: str) -> str:
        """One line of it; `about` is what its job did."""
        last = self.states[-1]
        return (
            f"{self.start:.0f} to {self.until:.0f} s, opened after {self.opened - self.start:.0f} s, {about}: "
            f"{last.subsystem}, {last.cause or 'unknown'}, peak {last.peak_severity:.1f}, {last.state}"
        )

    @property
    def opened(self) -> float:
        """When it was told first, as `start`."""
        return self.states[0].opened_ns / NANO - START

    def by(self, second: float) -> Episode | None:
        """The state as it was told by then."""
        told = [each for each in self.states if each.updated_ns / NANO - START <= second]
        return told[-1] if told else None


@dataclass
class Figures:
    """What became of the faults and healthy hours of a profile."""

    faults: int = 0
    found: int = 0
    joined: int = 0
    right_subsystem: int = 0
    right_cause: int = 0
    other_cause: int = 0
    delays: list[float] = field(default_factory=list)
    missed: Counter[str] = field(default_factory=Counter)
    healthy_hours: float = 0.0
    changed_hours: float = 0.0
    false: Counter[str] = field(default_factory=Counter)
    false_causes: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)
    """A line of each false episode."""

    def judge(self, injection: Injection, episodes: Iterable[Told]) -> None:
        """Count a fault, given all episodes of its host."""
        self.faults += 1
        end = injection.end_s + injection.fault.settles_s
        there = [e for e in episodes if e.start < end and e.until >= injection.onset_s]
        own = [e for e in there if e.start >= injection.onset_s - EARLY_S]
        chosen, state = None, None
        for each in (*own, *there):
            last = each.by(end + AFTER_S)
            # An episode that was there before says nothing of the fault unless the fault makes it grow.
            if last is not None and (each in own or last.peak_ns / NANO - START >= injection.onset_s):
                chosen, state = each, last
                if state.cause == injection.fault.cause:
                    break
        if chosen is None or state is None:
            self.missed[injection.fault.name] += 1
            return
        self.found += 1
        self.joined += chosen not in own
        if chosen in own:
            self.delays.append(chosen.opened - injection.onset_s)
        self.right_subsystem += state.subsystem == injection.fault.expected(injection.host.profile)
        self.right_cause += state.cause == injection.fault.cause
        self.other_cause += state.cause not in (injection.fault.cause, None)

    def summary(self) -> dict[str, object]:
        """Shares, rates and the rest, as JSON values."""
        some = max(1, self.faults)
        hours = max(self.healthy_hours, 1e-9)
        return {
            "faults": self.faults,
            "found": round(self.found / some, 3),
            "joined": round(self.joined / some, 3),
            "right_subsystem": round(self.right_subsystem / some, 3),
            "right_cause": round(self.right_cause / some, 3),
            "other_cause": round(self.other_cause / some, 3),
            "median_delay_s": round(median(self.delays), 1) if self.delays else None,
            "missed": dict(self.missed.most_common()),
            "healthy_hours": round(self.healthy_hours, 2),
            "changed_share": round(self.changed_hours / hours, 3),
            "false_an_hour": round(self.false.total() / hours, 2),
            "false_by_matter": {name: round(count / hours, 2) for name, count in sorted(self.false.items())},
            "false_causes": dict(self.false_causes.most_common()),
        }


def measure(
    profile: str,
    hosts: int,
    minutes: float,
    rate: float,
    seed: int,
    *,
    steady: bool = False,
    advance: Advance = lambda done, note: None,
) -> Figures:
    """Simulate `hosts` of `profile`, of which every other one has `rate` faults an hour; with 0 all are healthy. When
    `steady`, the first job outlasts the simulation. `advance` is told the minutes that were simulated.
    """
    members = make_hosts([(profile, hosts)])
    schedule = Schedule(members, seed, rate)
    timing = replace(usual_timing(), job_minutes=(2 * minutes, 3 * minutes)) if steady else None
    fleet = Fleet(members, schedule, seed=seed, start_ns=START * NANO, timing=timing)
    pipeline = Pipeline(PipelineSettings())
    names = {host.name: host.number for host in members}
    told: dict[int, dict[str, Told]] = {host.number: {} for host in members}
    figures = Figures()
    healthy = {host.number for host in members if host.number % 2 or not rate}
    for index in range(round(60 * minutes)):
        now = START + index + 1.0
        advance((index + 1) / 60, "")
        results = [result for event in fleet.events(index) for result in pipeline.feed_event(event, now)]
        results += [result for record in fleet.records(index) for result in pipeline.feed(record, now)]
        for result in results:
            if isinstance(result, Episode):
                told[names[result.host]].setdefault(result.id, Told()).states.append(result)
            elif isinstance(result, Verdict) and names[result.host] in healthy and result.state != "warming":
                figures.healthy_hours += 1 / 3600
                figures.changed_hours += (result.state == "changed") / 3600
    for injection in schedule.injections:
        if DEFAULT_START_S <= injection.onset_s < 60 * minutes - AFTER_S and not injection.fault.silent:
            figures.judge(injection, told[injection.host.number].values())
    for number in healthy:
        for episode in told[number].values():
            figures.false[about := matter(fleet.timeline(members[number]), episode.start)] += 1
            figures.told.append(f"{members[number].name}: {episode.words(about)}")
            if (cause := episode.states[-1].cause) is not None:
                figures.false_causes[cause] += 1
    return figures


def matter(timeline: Timeline, second: float) -> str:
    """What a job did in the `second` in which something became strange."""
    timeline.until(second + 60)
    near = [
        segment
        for segment in timeline.segments
        if segment.change and segment.start - EARLY_S <= second <= timeline.end_of(segment) + AFTER_S
    ]
    return MATTERS.get(near[-1].change, "job start") if near else "none"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", action="append", choices=PROFILES, help="all of them by default")
    parser.add_argument("--hosts", type=int, default=2, help="of a profile, an even number")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=20.0, help="faults an hour on every other host, or 0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steady", action="store_true", help="one job that lasts")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.hosts < 2 or args.hosts % 2:
        parser.error("--hosts must be even: twins come in pairs")
    found = {}
    for profile in args.profile or PROFILES:
        with progress(Console(stderr=True), f"{profile}, minutes", args.minutes) as advance:
            figures = measure(
                profile, args.hosts, args.minutes, args.rate, args.seed, steady=args.steady, advance=advance
            )
        for line in figures.told:
            print(line, file=sys.stderr)
        found[profile] = figures.summary()
    if args.json:
        print(json.dumps(found))
        return
    for profile, summary in found.items():
        print(profile)
        assert isinstance(summary, dict)
        for name, value in summary.items():
            print(f"  {name:<18} {value}")


if __name__ == "__main__":
    main()
