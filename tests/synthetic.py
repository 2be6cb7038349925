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

from schemas.catalogue import metrics_of
from schemas.records import Telemetry
from schemas.versions import published

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
    "cpu.time.user": 1.0,
    "cpu.time.idle": -0.8,
    "cpu.busy_pct": 0.9,
    "cpu.irq.local_timer": 0.6,
    "cpu.procs_running": 0.5,
    "cpu.psi.some": 0.7,
    "cpu.load1": 0.4,
}
WRITEBACK = {
    "mem.dirty": 2.0,
    "mem.writeback": 3.0,
    "vm.dirtied": 2.0,
    "vm.written": 2.0,
    "disk.write_sectors": 2.5,
    "disk.io_ms": 1.5,
    "disk.queue_ms": 2.0,
    "disk.writes": 1.0,
    "io.psi.some": 1.0,
}


@dataclass(frozen=True)
class Fault:
    """Adds `effects` (metric -> share of its usual level) to the first instance from second `begin` to before `end`."""

    begin: int
    end: int
    effects: dict[str, float] = field(default_factory=lambda: CPU_HOG)


def second(host: str, subsystem: str, index: int, fault: Fault | None = None, session: str = "s1") -> Telemetry:
    """Second `index` of the run of `host`: the same arguments give the same values."""
    # A stream of its own, so that any second can be made without those before it.
    seed = zlib.crc32(f"{host}/{subsystem}".encode())
    rng = np.random.default_rng([seed, index])
    times = index + np.arange(10) / 10
    load = np.mean([np.sin(times / period + seed % 1000 + period) for period in (1.1, 3.3, 7.7)], axis=0)
    instances: dict[str, tuple[str, ...]] = {}
    metrics: dict[str, NDArray[np.float32]] = {}
    # A host that has the metrics of the first schemas, and stays the same when the catalogue grows.
    for number, metric in enumerate(metrics_of(subsystem, published(subsystem)[0])):
        names = instances[metric.dimension] = INSTANCES[metric.dimension]
        level = 1000.0 + 70.0 * number
        noise = 0.02 * rng.standard_normal((10, len(names)))
        values = level * (1 + noise + 0.05 * load[:, None])
        if number % 4 == 0 or metric.name == "tcp.dsack_recv":
            values = np.zeros((10, len(names)))  # most counters of errors never move
        if fault is not None and fault.begin <= index < fault.end:
            values[:, 0] += fault.effects.get(metric.name, 0.0) * level
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
