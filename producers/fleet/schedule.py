"""Which fault strikes which host when: as asked for on the command line, in a file, or at random."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from producers.fleet.faults import Fault, faults
from producers.fleet.profiles import Profile, profiles

DEFAULT_START_S: Final = 180.0
DEFAULT_DURATION_S: Final = 60.0
REST_S: Final = 60.0
"""Least time between two random faults of a host."""
RANDOM_DURATION_S: Final = (30.0, 180.0)
RANDOM_INTENSITY: Final = (0.5, 1.0)
_SPEC: Final = re.compile(r"(?P<name>[a-z0-9-]+)(?:=(?P<start>[^+@]*)(?:\+(?P<duration>[^@]+))?)?(?:@(?P<host>\d+))?")
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|)")
_FACTOR: Final[Mapping[str, float]] = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class ScheduleError(ValueError):
    """What was asked for cannot be simulated; the message says why."""


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """A host of the fleet. `number` counts over all, from 0; `twin` is the number of the host that does the same job,
    `job` that of its job.
    """

    number: int
    name: str
    profile: Profile
    job: int
    twin: int | None


@dataclass(frozen=True, slots=True)
class Request:
    """A fault that somebody wants. Times in s from the beginning; without a host, the next one that can have it."""

    fault: Fault
    start_s: float = DEFAULT_START_S
    duration_s: float = DEFAULT_DURATION_S
    host: int | None = None
    intensity: float = 1.0
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Injection:
    """A fault on a host from `onset_s` to before `end_s`; `instance` is the name of the instance that it strikes."""

    fault: Fault
    host: SimulatedHost
    onset_s: float
    end_s: float
    intensity: float
    instance: str

    def overlaps(self, begin_s: float, end_s: float) -> bool:
        """Whether it moves anything in [begin_s, end_s), its fading included."""
        return self.onset_s < end_s and begin_s < self.end_s + self.fault.settles_s


def make_hosts(wanted: Sequence[tuple[str, int]]) -> list[SimulatedHost]:
    """Hosts of (profile, number of hosts); two after another of a profile are twins. Raises ScheduleError."""
    hosts: list[SimulatedHost] = []
    per_profile: dict[str, int] = {}
    for name, count in wanted:
        if name not in profiles():
            raise ScheduleError(f"there is no profile {name}; there are {', '.join(profiles())}")
        if count < 1:
            raise ScheduleError(f"{count} hosts of profile {name} are none")
        per_profile[name] = per_profile.get(name, 0) + count
    for name, count in per_profile.items():
        profile, first = profiles()[name], len(hosts)
        for index in range(count):
            other = index ^ 1
            number = first + index
            twin = first + other if other < count else None
            # A job keeps its number, and so its course, whatever other profiles there are.
            job = index // 2
            hosts.append(SimulatedHost(number, f"sim-{profile.short}-{index + 1:04d}", profile, job, twin))
    return hosts


def parse_fault(text: str) -> Request:
    """NAME[=START+DURATION][@HOST], times as 90, 90s, 1.5m or 1h. Raises ScheduleError."""
    match = _SPEC.fullmatch(text)
    if match is None:
        raise ScheduleError(f"{text!r} is not NAME[=START+DURATION][@HOST]")
    return _request(
        match["name"],
        seconds(match["start"]) if match["start"] else DEFAULT_START_S,
        seconds(match["duration"]) if match["duration"] else DEFAULT_DURATION_S,
        host=int(match["host"]) if match["host"] else None,
    )


def parse_schedule(table: Mapping[str, Any]) -> list[Request]:
    """Requests of a schedule file: tables [[fault]] with name, start, duration, and perhaps host or hosts, intensity,
    instance. Raises ScheduleError.
    """
    if set(table) != {"fault"} or not isinstance(table["fault"], list):
        raise ScheduleError("a schedule holds tables [[fault]] and nothing else")
    requests: list[Request] = []
    for number, row in enumerate(table["fault"], 1):
        known = {"name", "start", "duration", "host", "hosts", "intensity", "instance"}
        if strange := set(row) - known:
            raise ScheduleError(f"fault {number} of the schedule: there is no {', '.join(sorted(strange))}")
        if "name" not in row:
            raise ScheduleError(f"fault {number} of the schedule has no name")
        hosts = row.get("hosts", [row["host"]] if "host" in row else [None])
        requests += [
            _request(
                str(row["name"]),
                seconds(str(row.get("start", DEFAULT_START_S))),
                seconds(str(row.get("duration", DEFAULT_DURATION_S))),
                host=host,
                intensity=float(row.get("intensity", 1.0)),
                instance=str(row.get("instance", "")),
            )
            for host in hosts
        ]
    return requests


def seconds(text: str) -> float:
    """A time such as 90, 90s, 1.5m or 1h in s. Raises ScheduleError."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise ScheduleError(f"{text!r} is no time such as 90, 90s, 1.5m or 1h")
    return float(match[1]) * _FACTOR[match[2]]


def _request(
    name: str, start_s: float, duration_s: float, *, host: int | None, intensity: float = 1.0, instance: str = ""
) -> Request:
    if name not in faults():
        raise ScheduleError(f"there is no fault {name}; there are {', '.join(faults())}")
    if duration_s <= 0:
        raise ScheduleError(f"{name}: a fault lasts longer than {duration_s:g} s")
    if not 0 < intensity <= 1:
        raise ScheduleError(f"{name}: intensity must be above 0 and at most 1, not {intensity:g}")
    return Request(faults()[name], start_s, duration_s, host, intensity, instance)


@dataclass(slots=True)
class Schedule:
    """All injections, with random ones made as time goes on: `rate` a host and hour, on one of two twins only."""

    hosts: Sequence[SimulatedHost]
    seed: int = 0
    rate: float = 0.0
    injections: list[Injection] = field(default_factory=list)
    _random: dict[int, tuple[np.random.Generator, float]] = field(default_factory=dict)

    def add(self, requests: Iterable[Request]) -> None:
        """Place requests on hosts. Raises ScheduleError for one that no host, or not the host it names, can have."""
        for request in requests:
            host = self._host_for(request)
            instance = request.instance or self._instance(request.fault, host, request.start_s)
            known = host.profile.instances().get(request.fault.dimension, ())
            if request.fault.dimension != "host" and instance not in known:
                raise ScheduleError(
                    f"{request.fault.name}: {host.name} has no {request.fault.dimension} {instance}; "
                    f"there are {', '.join(known[:8])}{' ...' if len(known) > 8 else ''}"
                )
            end_s = request.start_s + request.duration_s
            self.injections.append(Injection(request.fault, host, request.start_s, end_s, request.intensity, instance))

    def until(self, time_s: float) -> None:
        """Make all random injections that begin before `time_s`."""
        if not self.rate:
            return
        for host in self.hosts:
            if host.twin is not None and host.twin < host.number:
                continue
            rng, at = self._random.get(host.number) or self._first(host)
            while at < time_s:
                at = self._strike(host, rng, at)
            self._random[host.number] = (rng, at)

    def moving(self, begin_s: float, end_s: float) -> list[Injection]:
        """Injections that move anything in [begin_s, end_s)."""
        return [injection for injection in self.injections if injection.overlaps(begin_s, end_s)]

    def twin(self, injection: Injection) -> str:
        """Name of the host to compare with; empty if there is none, or it has a fault of its own meanwhile."""
        number = injection.host.twin
        if number is None:
            return ""
        busy = any(
            other.host.number == number and other.overlaps(injection.onset_s, injection.end_s)
            for other in self.injections
        )
        return "" if busy else self.hosts[number].name

    def _first(self, host: SimulatedHost) -> tuple[np.random.Generator, float]:
        rng = np.random.default_rng([self.seed, host.number, 0xFA])
        return rng, DEFAULT_START_S + float(rng.exponential(3600 / self.rate))

    def _strike(self, host: SimulatedHost, rng: np.random.Generator, at: float) -> float:
        """Perhaps inject at `at`; when the next one is due."""
        kinds = [fault for fault in faults().values() if host.profile.can(fault.needs)]
        fault = kinds[int(rng.integers(len(kinds)))]
        end = at + float(rng.uniform(*RANDOM_DURATION_S))
        intensity = float(rng.uniform(*RANDOM_INTENSITY))
        pause = REST_S + float(rng.exponential(3600 / self.rate))
        taken = any(
            other.host.number in {host.number, host.twin} and other.overlaps(at - REST_S, end + REST_S)
            for other in self.injections
        )
        if not taken:
            self.injections.append(Injection(fault, host, at, end, intensity, self._instance(fault, host, at)))
        return end + pause

    def _host_for(self, request: Request) -> SimulatedHost:
        fault = request.fault
        if request.host is not None:
            if not 0 <= request.host < len(self.hosts):
                raise ScheduleError(f"{fault.name}: there is no host {request.host}, only 0 to {len(self.hosts) - 1}")
            host = self.hosts[request.host]
            if not host.profile.can(fault.needs):
                raise ScheduleError(f"{fault.name}: {host.name} has no {_missing(fault, host.profile)}")
            return host
        end_s = request.start_s + request.duration_s
        able = [host for host in self.hosts if host.profile.can(fault.needs)]
        # One of two twins, so that the other stays healthy; a host without a fault at that time; any.
        free = [
            host
            for host in able
            if not any(
                other.host.number in {host.number, host.twin} and other.overlaps(request.start_s, end_s)
                for other in self.injections
            )
        ]
        leaders = [host for host in free if host.twin is not None and host.number < host.twin]
        # Spread over the fleet: the host that has had the fewest faults.
        counts = {host.number: sum(other.host.number == host.number for other in self.injections) for host in able}
        for choice in (leaders, free):
            if choice:
                return min(choice, key=lambda host: (counts[host.number], host.number))
        if not able:
            raise ScheduleError(f"{fault.name}: no host has {_missing(fault, self.hosts[0].profile)}")
        raise ScheduleError(
            f"{fault.name}: all {len(able)} hosts that can have it have a fault then, or their twins do"
        )

    def _instance(self, fault: Fault, host: SimulatedHost, at: float) -> str:
        names = host.profile.instances().get(fault.dimension, ())
        if fault.dimension == "host" or not names:
            return ""
        if fault.dimension == "interface":
            return names[0]
        rng = np.random.default_rng([self.seed, host.number, int(at * 1000)])
        return names[int(rng.integers(len(names)))]


def _missing(fault: Fault, profile: Profile) -> str:
    lacking = sorted(need for need in fault.needs if not profile.can(frozenset({need})))
    return " and ".join("second NUMA node" if need == "nodes" else need for need in lacking)


def describe() -> Iterator[str]:
    """Profiles and faults, in words, a line each."""
    yield "profiles:"
    for profile in profiles().values():
        yield f"  {profile.name:<20} {profile.words}; {profile.channels()} channels"
    yield "faults:"
    for fault in faults().values():
        needs = f" (needs {', '.join(sorted(fault.needs))})" if fault.needs else ""
        yield f"  {fault.name:<20} {fault.subsystem:<8} {fault.words}{needs}"
