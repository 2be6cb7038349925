"""The fleet: telemetry, events and ground truth of all its hosts, second by second."""

from __future__ import annotations

import hashlib
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.fleet.activity import Flow, flow
from producers.fleet.cpu import fill_cpu
from producers.fleet.faults import Occurrence
from producers.fleet.gpu import fill_gpu
from producers.fleet.group import Group
from producers.fleet.jobs import Segment, Timeline, Timing
from producers.fleet.knobs import KNOBS, Turned
from producers.fleet.memory import fill_memory
from producers.fleet.network import fill_network
from producers.fleet.noise import NoiseTable, built_in
from producers.fleet.schedule import Injection, Schedule, SimulatedHost
from producers.fleet.sheet import Sheet
from producers.fleet.storage import fill_storage
from schemas.catalogue import SUBSYSTEMS
from schemas.records import Event, Telemetry
from schemas.truth import Truth

SECOND_NS: Final = 1_000_000_000
TOGETHER: Final = 16
"""Hosts of a group: enough that numpy's cost a call is shared, few enough that their values stay in the cache."""
Fill = Callable[[Group, Flow, Turned, Sheet], None]
FILLS: Final[Mapping[str, Fill]] = {
    "cpu": fill_cpu,
    "gpu": fill_gpu,
    "memory": fill_memory,
    "network": fill_network,
    "storage": fill_storage,
}


@dataclass(frozen=True, slots=True)
class Crew:
    """A group with its hosts and the sheets of its subsystems."""

    group: Group
    hosts: tuple[SimulatedHost, ...]
    sheets: Mapping[str, Sheet]
    widths: Mapping[str, int]


class Fleet:
    """Simulates `hosts`, whose faults are in `schedule`, from `start_ns` (a whole second).

    Seconds are asked for in order; the same arguments give the same values. Hosts do not depend on those after them.
    """

    def __init__(
        self,
        hosts: Sequence[SimulatedHost],
        schedule: Schedule,
        *,
        seed: int = 0,
        start_ns: int = SECOND_NS,
        noise: NoiseTable | None = None,
        period_ms: int = 100,
        timing: Timing | None = None,
        agent: str = "",
    ) -> None:
        self.hosts = tuple(hosts)
        self.schedule = schedule
        self.run = f"{seed}-{start_ns // SECOND_NS}"
        self._seed = seed
        self._start_ns = start_ns
        self._period_ms = period_ms
        self._samples = 1000 // period_ms
        self._agent = agent
        self._timelines: dict[tuple[str, int], Timeline] = {}
        for host in self.hosts:
            key = (host.profile.name, host.job)
            if key not in self._timelines:
                number = zlib.crc32(f"{key[0]}/{key[1]}".encode())
                self._timelines[key] = Timeline(seed, number, timing)
        self._crews = [self._crew(rows, noise or built_in()) for rows in _together(self.hosts)]
        self._sessions = {host.number: self._digest(host.name) for host in self.hosts}
        self._events = dict.fromkeys((host.number for host in self.hosts), 0)
        self._open: dict[str, Truth] = {}

    def timeline(self, host: SimulatedHost) -> Timeline:
        """What `host` is asked to do."""
        return self._timelines[host.profile.name, host.job]

    def records(self, index: int) -> Iterator[Telemetry]:
        """Telemetry of second `index` of all hosts, host by host. Ask for each second once, in order, and read all."""
        self.schedule.until(index + 1.0)
        moving = self.schedule.moving(index, index + 1.0)
        back = self._back(index)
        for crew in self._crews:
            yield from self._records(crew, index, moving, back)

    def events(self, index: int) -> list[Event]:
        """What the hosts' agents notice in second `index`."""
        found: list[Event] = []
        for injection in self.schedule.injections:
            fault, host = injection.fault, injection.host
            due = [
                (injection.onset_s + o.delay_s, o)
                for o in fault.events
                if injection.onset_s + o.delay_s < injection.end_s
            ]
            due += [(injection.end_s + o.delay_s, o) for o in fault.ends]
            found += [self._event(injection, host, at, o) for at, o in due if index <= at < index + 1]
        return sorted(found, key=lambda event: event.time_ns)

    def truths(self, index: int) -> list[Truth]:
        """What begins or ends in second `index`, faults and changes of jobs."""
        begun = [
            self._fault_truth(injection)
            for injection in self.schedule.injections
            if index <= injection.onset_s < index + 1
        ]
        for host in self.hosts:
            timeline = self.timeline(host)
            begun += [
                self._change_truth(host, segment, timeline.end_of(segment))
                for segment in timeline.changes(index, index + 1)
            ]
        self._open |= {truth.id: truth for truth in begun}
        end_ns = self._ns(index + 1.0)
        ended = [replace(truth, state="ended") for truth in self._open.values() if truth.end_ns < end_ns]
        for truth in ended:
            del self._open[truth.id]
        return [*begun, *ended]

    def cut_off(self, seconds: float) -> list[Truth]:
        """What is still there when the simulation stops after `seconds`."""
        end_ns = self._ns(seconds)
        left = [replace(truth, state="cut off", end_ns=end_ns) for truth in self._open.values()]
        self._open.clear()
        return left

    def _crew(self, hosts: Sequence[SimulatedHost], noise: NoiseTable) -> Crew:
        profile = hosts[0].profile
        timelines = [self._timelines[profile.name, host.job] for host in hosts]
        # What is a host's by build depends on its place among those of its profile alone.
        numbers = [zlib.crc32(host.name.encode()) for host in hosts]
        group = Group(profile, numbers, timelines, self._seed, self._period_ms / 1000)
        sheets = {
            subsystem: Sheet(profile, subsystem, len(hosts), noise, self._period_ms)
            for subsystem in SUBSYSTEMS
            if profile.metrics(subsystem)
        }
        widths = {dimension: len(names) for dimension, names in profile.instances().items()}
        return Crew(group, tuple(hosts), sheets, widths)

    def _records(
        self, crew: Crew, index: int, moving: Sequence[Injection], back: Mapping[int, Sequence[float]]
    ) -> Iterator[Telemetry]:
        knobs = self._knobs(crew, index, moving)
        flows = flow(crew.group, knobs, float(index), self._samples)
        for number, (subsystem, sheet) in enumerate(crew.sheets.items()):
            seed = [self._seed, crew.group.numbers[0], index, number]
            sheet.begin(np.random.Generator(np.random.SFC64(seed)), index, self._samples)
            FILLS[subsystem](crew.group, flows, knobs, sheet)
        silent = {
            injection.host.number
            for injection in moving
            if injection.fault.silent and injection.onset_s < index + 1 and index < injection.end_s
        }
        for row, host in enumerate(crew.hosts):
            if host.number in silent:
                continue
            session, first = self._session(host, back.get(host.number, ()))
            for subsystem, sheet in crew.sheets.items():
                yield Telemetry(
                    subsystem=subsystem,
                    host=host.name,
                    session=session,
                    sequence=index - first,
                    start_ns=self._start_ns + index * SECOND_NS,
                    period_ms=self._period_ms,
                    count=self._samples,
                    instances=sheet.instances,
                    metrics=sheet.matrices(row),
                    agent=self._agent,
                )

    def _knobs(self, crew: Crew, index: int, moving: Sequence[Injection]) -> Turned:
        times = index + np.arange(self._samples, dtype=np.float64) * (self._period_ms / 1000)
        knobs = Turned(len(crew.hosts), self._samples, crew.widths)
        rows = {host.number: row for row, host in enumerate(crew.hosts)}
        instances = crew.group.profile.instances()
        for injection in moving:
            row = rows.get(injection.host.number)
            if row is None:
                continue
            for effect in injection.fault.effects:
                names = instances.get(KNOBS[effect.knob].dimension, ())
                columns: NDArray[np.intp] | slice = slice(None)
                if effect.on == "one" and injection.instance in names:
                    columns = np.array([names.index(injection.instance)])
                elif effect.on == "one":
                    # A second knob of another dimension: the first of its instances.
                    columns = np.array([0])
                elif effect.on == "quarter":
                    columns = np.arange(max(1, len(names) // 4))
                change = effect.change(times - injection.onset_s, times - injection.end_s) * np.float32(
                    injection.intensity
                )
                if change.any():
                    knobs.turn(effect.knob, row, columns, change)
        return knobs

    def _back(self, index: int) -> dict[int, list[float]]:
        """When hosts that were down came back, until second `index`, by number of the host."""
        found: dict[int, list[float]] = {}
        for injection in self.schedule.injections:
            if injection.fault.silent and injection.end_s <= index:
                found.setdefault(injection.host.number, []).append(injection.end_s)
        return found

    def _session(self, host: SimulatedHost, back: Sequence[float]) -> tuple[str, int]:
        """Session and the second it began: a host that was down comes back with a new one."""
        if not back:
            return self._sessions[host.number], 0
        return self._digest(f"{host.name}/{len(back)}"), math.ceil(max(back))

    def _event(self, injection: Injection, host: SimulatedHost, at: float, occurrence: Occurrence) -> Event:
        sequence = self._events[host.number]
        self._events[host.number] += 1
        return Event(
            host=host.name,
            session=self._sessions[host.number],
            sequence=sequence,
            time_ns=self._ns(at),
            kind=occurrence.kind,
            subsystem=injection.fault.expected(host.profile),
            severity=occurrence.severity,
            message=occurrence.message.format(code=occurrence.code, instance=injection.instance),
            source="fleet",
            instance=injection.instance,
            code=occurrence.code,
            agent=self._agent,
        )

    def _fault_truth(self, injection: Injection) -> Truth:
        fault, host = injection.fault, injection.host
        return Truth(
            id=self._digest(f"{host.name}/{fault.name}/{injection.onset_s}/{injection.instance}"),
            run=self.run,
            kind="fault",
            state="begun",
            host=host.name,
            profile=host.profile.name,
            name=fault.name,
            cause=fault.cause,
            subsystem=fault.expected(host.profile),
            onset_ns=self._ns(injection.onset_s),
            end_ns=self._ns(injection.end_s),
            intensity=round(injection.intensity, 3),
            metrics=fault.touched(host.profile),
            instance=injection.instance,
            twin=self.schedule.twin(injection),
        )

    def _change_truth(self, host: SimulatedHost, segment: Segment, end_s: float) -> Truth:
        return Truth(
            id=self._digest(f"{host.name}/{segment.change}/{segment.start}"),
            run=self.run,
            kind="change",
            state="begun",
            host=host.name,
            profile=host.profile.name,
            name=segment.change,
            cause=segment.change,
            subsystem="",
            onset_ns=self._ns(segment.start),
            end_ns=self._ns(end_s),
        )

    def _ns(self, time_s: float) -> int:
        return self._start_ns + round(time_s * 1e6) * 1000

    def _digest(self, text: str) -> str:
        return hashlib.sha256(f"{self.run}/{text}".encode()).hexdigest()[:16]


def _together(hosts: Sequence[SimulatedHost]) -> Iterator[Sequence[SimulatedHost]]:
    """Hosts of one profile, at most TOGETHER of them at a time."""
    for _, same in itertools.groupby(hosts, key=lambda host: host.profile.name):
        rows = list(same)
        for first in range(0, len(rows), TOGETHER):
            yield rows[first : first + TOGETHER]
