"""What is counted on a machine: groups of events, each for one CPU.

All events of a group count over the same time, so a group must fit the counters that a core has: three or more fixed
ones and four for anything, of which the kernel's watchdog may hold one. What belongs into one ratio is in one group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from producers.perf.kernel import Event
from producers.perf.pmu import Pmu, pmu_names, read_pmu

HARDWARE, SOFTWARE, CACHE, RAW = 0, 1, 3, 4
# Cache events: which cache, read is 0 << 8, miss is 1 << 16.
READ_MISS: Final = 1 << 16
L1D, LAST_LEVEL, DTLB, NODE = 0, 2, 3, 6

KERNEL: Final = (
    Event("cpu.perf.context_switches", SOFTWARE, 3),
    Event("cpu.perf.migrations", SOFTWARE, 4),
    Event("cpu.perf.minor_faults", SOFTWARE, 5),
    Event("cpu.perf.major_faults", SOFTWARE, 6),
)
CYCLES: Final = (
    Event("cpu.perf.cycles", HARDWARE, 0),
    Event("cpu.perf.instructions", HARDWARE, 1),
    Event("cpu.perf.ref_cycles", HARDWARE, 9),
)
STALLS: Final = Event("cpu.perf.stalled_cycles_backend", HARDWARE, 8)
# CYCLE_ACTIVITY.STALLS_L3_MISS: event 0xA3, umask 6, counter mask 6.
L3_STALLS: Final = Event("cpu.perf.l3_miss_stall_cycles", RAW, 0x060006A3)
RATIOS: Final = (
    Event("cpu.perf.cache_references", HARDWARE, 2),
    Event("cpu.perf.cache_misses", HARDWARE, 3),
    Event("cpu.perf.branches", HARDWARE, 4),
    Event("cpu.perf.branch_misses", HARDWARE, 5),
)
MISSES: Final = (
    Event("cpu.perf.llc_load_misses", CACHE, LAST_LEVEL | READ_MISS),
    Event("cpu.perf.node_load_misses", CACHE, NODE | READ_MISS),
    Event("cpu.perf.dtlb_load_misses", CACHE, DTLB | READ_MISS),
    Event("cpu.perf.l1d_load_misses", CACHE, L1D | READ_MISS),
)
# Skylake, Cascade and Cooper Lake, Ice Lake, Tiger Lake, Rocket Lake, Sapphire and Emerald Rapids. On others the same
# code counts something else or nothing (perf's lists of Intel's events, pmu-events/arch/x86).
L3_STALL_MODELS: Final = frozenset(
    {0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6, 0x55, 0x66, 0x7D, 0x7E, 0x6A, 0x6C, 0x8C, 0x8D, 0xA7, 0x8F, 0xCF}
)
TSC, APERF, MPERF = "msr.tsc", "msr.aperf", "msr.mperf"
"""Counts that are no metrics, but what clock rates are made from."""
MSR: Final = {"tsc": TSC, "aperf": APERF, "mperf": MPERF, "smi": "cpu.smi"}
CORE_C6: Final = "cpu.cstate.core_c6"
CONTROLLER: Final = re.compile(r"(uncore_imc(_free_running)?|amd_umc)(_\d+)?$")
# Names of the events that add up to what a controller read or wrote: of Intel's servers, since Granite Rapids one a
# channel; and of the counters that always run, of servers and of clients.
TRAFFIC: Final = {
    "mem.bw.read": re.compile(r"cas_count_read(_sch\d+)?$|data_reads?$|read$"),
    "mem.bw.write": re.compile(r"cas_count_write(_sch\d+)?$|data_writes?$|write$"),
}
# The kernel lists no events of AMD's controllers: CAS commands by kind, 64 bytes each (perf's amdzen4).
AMD_TRAFFIC: Final = {"mem.bw.read": b"event=0x0a,rdwrmask=0x1", "mem.bw.write": b"event=0x0a,rdwrmask=0x2"}
MIB: Final = 2.0**20
CAS_BYTES: Final = 64
UNITS: Final = {"MiB": 1.0, "Bytes": 1 / MIB, "KiB": 2.0**-10, "GiB": 2.0**10, "MB": 1e6 / MIB}


@dataclass(frozen=True, slots=True)
class Group:
    """Events to count together on `cpu` for `instance`. `core`: with the counters that all users of a core share."""

    cpu: int
    instance: str
    events: tuple[Event, ...]
    core: bool = False


def groups(roots: Mapping[str, str], cpus: Sequence[int]) -> tuple[list[Group], list[str]]:
    """All groups for the online `cpus`, and what of the kernel's description cannot be used, in words."""
    sysfs = roots["sys"]
    flaws: list[str] = []
    pmus = _pmus(sysfs, flaws)
    with_kernel = (*KERNEL, *_events(pmus.get("msr"), MSR, flaws))
    stalls = (L3_STALLS,) if _has_l3_stalls(roots["proc"]) else ()
    cores = pmus.get("cstate_core")
    c6 = _events(cores, {"c6-residency": CORE_C6}, flaws)
    found = []
    for cpu in cpus:
        name = f"cpu{cpu}"
        found.append(Group(cpu, name, with_kernel))
        found += [Group(cpu, name, events, True) for events in ((*CYCLES, STALLS, *stalls), RATIOS, MISSES)]
        if cores is not None and c6 and (cores.cpus is None or cpu in cores.cpus):
            found.append(Group(cpu, name, c6))
    for pmu, events in _controllers(pmus, flaws):
        for cpu in pmu.cpus if pmu.cpus is not None else cpus[:1]:
            if cpu in cpus:
                found.append(Group(cpu, f"{_package(sysfs, cpu)}-{pmu.name.removeprefix('uncore_')}", events))
    return found, flaws


def _pmus(sysfs: str, flaws: list[str]) -> dict[str, Pmu]:
    """The units that are of use, by name in numeric order."""
    pmus = {}
    for name in pmu_names(sysfs):
        if name in ("msr", "cstate_core") or CONTROLLER.match(name):
            try:
                pmus[name] = read_pmu(sysfs, name)
            except (OSError, ValueError) as error:
                flaws.append(f"the kernel's description of {name} cannot be used: {error}")
    return pmus


def _events(pmu: Pmu | None, names: Mapping[str, str], flaws: list[str]) -> tuple[Event, ...]:
    """Those events of `pmu` that it has; `names` is metric by event."""
    found = []
    for name, metric in names.items():
        if pmu is not None and name in pmu.events:
            try:
                found.append(pmu.event(metric, name))
            except (OSError, ValueError) as error:
                flaws.append(f"event {pmu.name}/{name} cannot be used: {error}")
    return tuple(found)


def _controllers(pmus: Mapping[str, Pmu], flaws: list[str]) -> Iterator[tuple[Pmu, tuple[Event, ...]]]:
    """Memory controllers with the events that count MiB."""
    found = [(pmu, events) for name, pmu in pmus.items() if CONTROLLER.match(name) and (events := _traffic(pmu, flaws))]
    # Counters that always run see the same traffic once more.
    programmed = [item for item in found if "free_running" not in item[0].name]
    yield from programmed or found


def _traffic(pmu: Pmu, flaws: list[str]) -> tuple[Event, ...]:
    events = []
    for metric, pattern in TRAFFIC.items():
        for name in sorted(name for name in pmu.events if pattern.match(name)):
            try:
                scale, unit = pmu.scale(name)
                events.append(pmu.event(metric, name, scale * UNITS[unit]))
            except KeyError:
                flaws.append(f"event {pmu.name}/{name} counts in {unit!r}, which is no unit that Reveal knows")
            except (OSError, ValueError) as error:
                flaws.append(f"event {pmu.name}/{name} cannot be used: {error}")
    if not pmu.events and "rdwrmask" in pmu.fields:
        events = [pmu.coded(metric, text, CAS_BYTES / MIB) for metric, text in AMD_TRAFFIC.items()]
    return tuple(events)


def _has_l3_stalls(procfs: str) -> bool:
    """Whether the processor is one whose code for stalls on L3 misses is known, by the first CPU of cpuinfo."""
    try:
        text = Path(procfs, "cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return False
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    first = {name.strip(): value.strip() for name, _, value in lines}
    if (first.get("vendor_id"), first.get("cpu family")) != ("GenuineIntel", "6"):
        return False
    model = first.get("model", "")
    return model.isdecimal() and int(model) in L3_STALL_MODELS


def _package(sysfs: str, cpu: int) -> str:
    try:
        text = Path(sysfs, f"devices/system/cpu/cpu{cpu}/topology/physical_package_id").read_text()
        return f"package{int(text)}"
    except (OSError, ValueError):
        return f"cpu{cpu}"
