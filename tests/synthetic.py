"""Telemetry made up for tests: deterministic, with the shape of a small host, and faults that can be switched on.

It says nothing about how well real faults are found (the demo and the recordings do); it says whether the machinery
works.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from schemas.catalogue import subsystem_metrics
from schemas.records import Telemetry

START = 1_790_000_000
SUBSYSTEMS = ("cpu", "memory", "network", "storage")
INSTANCES = {
    "host": ("",),
    "core": ("0", "1"),
    "node": ("0",),
    "hugepool": ("node0/2048kB",),
    "interface": ("eth0", "lo"),
    "disk": ("vda",),
}
CPU_HOG = {
    "cpu.time.user": 0.9,
    "cpu.busy_pct": 90.0,
    "cpu.procs_running": 1.0,
    "cpu.psi.some": 3e5,
    "cpu.time.idle": -0.8,
}
WRITEBACK = {
    "mem.dirty": 8e5,
    "mem.writeback": 2e5,
    "vm.dirtied": 4e4,
    "vm.written": 4e4,
    "disk.write_sectors": 3e5,
    "disk.io_ms": 900.0,
    "disk.queue_ms": 5e3,
}


@dataclass(frozen=True)
class Fault:
    """Adds `effects` (metric -> how much) to the first instance from second `begin` to before second `end` of the
    run.
    """

    begin: int
    end: int
    effects: dict[str, float] = field(default_factory=lambda: CPU_HOG)


def second(host: str, subsystem: str, index: int, fault: Fault | None = None, session: str = "s1") -> Telemetry:
    """Second `index` of the run of `host`: the same arguments give the same values."""
    # Streams of their own, so that any second can be made without those before it.
    rng = np.random.default_rng([zlib.crc32(host.encode()), SUBSYSTEMS.index(subsystem), index])
    instances: dict[str, tuple[str, ...]] = {}
    metrics: dict[str, NDArray[np.float32]] = {}
    for number, metric in enumerate(subsystem_metrics(subsystem).values()):
        names = instances[metric.dimension] = INSTANCES[metric.dimension]
        level = 10.0 + 7.0 * number
        values = level + level / 20 * rng.standard_normal((10, len(names)))
        if number % 3 == 0:
            values = np.full((10, len(names)), 0.0)
        if fault is not None and fault.begin <= index < fault.end and metric.name in fault.effects:
            values[:, 0] += fault.effects[metric.name]
        metrics[metric.name] = values.astype(np.float32)
    return Telemetry(
        subsystem=subsystem,
        host=host,
        session=session,
        sequence=index,
        start_ns=(START + index) * 1_000_000_000,
        period_ms=100,
        count=10,
        instances=instances,
        metrics=metrics,
        agent="test",
    )


def run(hosts: Collection[str], seconds: int, fault: Fault | None = None, begin: int = 0) -> Iterator[Telemetry]:
    """Seconds `begin` to before `seconds` of all hosts, in order of time; `fault` strikes the first host."""
    first = next(iter(hosts))
    for index in range(begin, seconds):
        for host in hosts:
            for subsystem in SUBSYSTEMS:
                yield second(host, subsystem, index, fault if host == first else None)
