"""Values of one subsystem of some hosts over a batch: what models write, with noise and counting laid on it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.collectors import COLLECTORS
from producers.fleet.noise import COUNTED_UNITS, NoiseTable
from producers.fleet.profiles import Profile
from producers.rates import round_mantissa
from schemas.catalogue import Metric

Floats = NDArray[np.float32]

# Metrics that are sums, parts or ratios of others, or states: noise is in what they are made of.
EXACT: Final = frozenset(
    {
        *(
            f"cpu.time.{name}"
            for name in ("guest", "idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")
        ),
        *("cpu.busy_pct", "cpu.interrupts_total", "cpu.softirqs_total", "cpu.online", "cpu.load1", "cpu.load5"),
        *("cpu.perf.ipc", "cpu.perf.branch_miss_pct", "cpu.perf.cache_miss_pct", "cpu.perf.l3_stall_pct"),
        *("cpu.perf.running_pct", "cpu.freq.busy_tsc_pct", "cpu.irq.device", "cpu.irq.source_top_pct"),
        *(
            "disk.await_read",
            "disk.await_write",
            "disk.reads",
            "disk.writes",
            "disk.read_sectors",
            "disk.write_sectors",
        ),
        *("disk.queue_ms", "io.pgpgin", "io.pgpgout", "nvme.available_spare", "nvme.percentage_used", "fs.used_pct"),
        *("md.recovery_pct", "agent.memory", "agent.period_ms", "gpu.power_avg", "gpu.power_instant", "gpu.energy"),
        *("net.rx_packets", "net.tx_packets", "tcp.in_segs", "tcp.out_segs", "ip.in_octets", "ip.out_octets"),
        *("ib.rx_packets", "ib.tx_packets", "gpu.clock_sm", "gpu.clock_sm_max", "gpu.clock_mem", "gpu.mem_util"),
        *(f"gpu.throttle_ns.{name}" for name in ("power_cap", "sw_thermal", "hw_thermal")),
    }
)
EXACT_UNITS: Final = frozenset(
    {"kB", "B", "bool", "enum", "level", "lanes", "gen", "bitmask", "gpus", "cpus", "Gbit/s", "Mbit/s", "GT/s", "QPs"}
    | {"entries", "inodes", "files", "disks", "pages", "C", "mC", "blocks", "objects", "sources", "collectors", "s"}
)
HIGHEST: Final[Mapping[str, float]] = {"%": 100.0, "us/s": 1e6}
"""What noise must not exceed: all of a whole, all of the time."""
WHOLE_UNITS: Final = frozenset(
    {"C", "MHz", "rpm", "tasks", "sockets", "connections", "requests", "pages", "kB", "B", "mW", "entries", "inodes"}
    | {"files", "blocks", "objects", "messages", "level", "bitmask", "QPs"}
)


class Sheet:
    """One subsystem of hosts of one profile.

    A batch goes: `begin` draws the noise, models set metrics, `finish` lays noise and counting on them, models may
    then set what is derived from the finished values, `seal` leaves the rows in which an agent reads a metric, and
    `matrices` gives them host by host. Setting a metric that the profile lacks does nothing, so models need not ask.
    """

    def __init__(self, profile: Profile, subsystem: str, hosts: int, noise: NoiseTable, period_ms: int) -> None:
        self._period_s = period_ms / 1000
        names = profile.instances()
        metrics = sorted(profile.metrics(subsystem), key=_rank)
        self.metrics: Mapping[str, Metric] = {metric.name: metric for metric in metrics}
        used = {metric.dimension for metric in metrics}
        self.instances = {dimension: names[dimension] for dimension in names if dimension in used}
        self._columns: dict[str, slice] = {}
        scatter: list[tuple[float, float]] = []
        absent: list[NDArray[np.bool_]] = []
        for metric in metrics:
            width = len(names[metric.dimension])
            self._columns[metric.name] = slice(len(scatter), len(scatter) + width)
            found = noise.of(metric)
            scatter += [(found.cv, found.rho)] * width
            absent.append(~profile.present(metric))
        self._absent = np.flatnonzero(np.concatenate(absent)) if absent else np.zeros(0, np.intp)
        table = np.array(scatter, np.float32).reshape(-1, 2)
        self._cv, self._rho = table[:, 0], table[:, 1]
        self._fresh = np.sqrt(1 - self._rho**2)
        # Metrics are ordered by what is done to them, so that each step works on one block.
        ranks = np.repeat([_rank(metric) for metric in metrics], [len(names[metric.dimension]) for metric in metrics])
        first = np.searchsorted(ranks, range(7)).tolist()
        self._counted = slice(0, first[2])
        self._noisy = slice(first[1], first[4])
        self._rates = (slice(0, first[3]), slice(first[4], first[5]))
        self._whole = [self._columns[metric.name] for metric in metrics if metric.unit in WHOLE_UNITS]
        self._bounded = [
            (self._columns[metric.name], HIGHEST[metric.unit]) for metric in metrics if metric.unit in HIGHEST
        ]
        # Samples and whole seconds from one reading of a slow source to the next.
        self._steps: dict[str, int] = {}
        self._every: dict[str, int] = {}
        self._held: dict[str, Floats] = {}
        for name in self.metrics:
            every_ms = _every_ms().get(name, 0)
            if every_ms > period_ms:
                self._steps[name] = min(every_ms, 1000) // period_ms
            if every_ms > 1000:
                self._every[name] = every_ms // 1000
        self._index = 0
        self._last = np.zeros((hosts, len(scatter)), np.float32)
        self._begun = False
        self._set: set[str] = set()
        self.values: Floats = np.zeros((hosts, 0, len(scatter)), np.float32)
        self._deviation = self.values
        self._chance = self.values

    def begin(self, rng: np.random.Generator, index: int, samples: int) -> None:
        """Start the batch of second `index`. Noise of a host does not depend on how many hosts come after it."""
        self._index = index
        hosts, width = self._last.shape
        # A stream each: where one ends depends on the number of hosts.
        scatter, chance, first = rng.spawn(3)
        draws = scatter.standard_normal((hosts, samples, width), np.float32)
        self._chance = chance.random((hosts, samples, self._counted.stop), np.float32)
        if not self._begun:
            self._last[:] = first.standard_normal((hosts, width), np.float32)
            self._begun = True
        draws *= self._fresh
        last = self._last
        for row in range(samples):
            draws[:, row] += self._rho * last
            last = draws[:, row]
        self._last = last.copy()
        draws *= self._cv
        self._deviation = draws
        self.values = np.full((hosts, samples, width), np.nan, np.float32)

    def noise(self, name: str) -> Floats:
        """Relative deviation of a metric in this batch, (hosts, samples, instances), for models that sum parts up; 0
        for one that the profile lacks.
        """
        columns = self._columns.get(name)
        return np.zeros((1, 1, 1), np.float32) if columns is None else self._deviation[:, :, columns]

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __setitem__(self, name: str, value: NDArray[Any] | float) -> None:
        columns = self._columns.get(name)
        if columns is not None:
            self.values[:, :, columns] = value
            self._set.add(name)

    def __getitem__(self, name: str) -> Floats:
        return self.values[:, :, self._columns[name]]

    def zero(self, *names: str) -> None:
        """Set metrics of which nothing ever happens on a healthy host."""
        for name in names:
            self[name] = 0.0

    def finish(self) -> None:
        """Lay noise on what is no sum, and make whole events of what is counted: a rate of 0.3/s is an interval with
        one event every few seconds, not a third of an event in each.
        """
        noisy = self.values[:, :, self._noisy]
        noisy *= np.maximum(1.0 + self._deviation[:, :, self._noisy], 0.0)
        counted = self.values[:, :, self._counted]
        counted *= np.float32(self._period_s)
        counted += self._chance
        np.floor(counted, out=counted)
        counted /= np.float32(self._period_s)
        for columns, highest in self._bounded:
            block = self.values[:, :, columns]
            np.minimum(block, highest, out=block)
        for columns in self._whole:
            block = self.values[:, :, columns]
            np.rint(block, out=block)
        for name, step in self._steps.items():
            if self.metrics[name].kind == "counter":
                self._average(self[name], step)

    def seal(self) -> None:
        """The last step: precision as on the wire, and no value where an instance lacks a metric or nobody read it."""
        for name, step in self._steps.items():
            block = self[name]
            if self.metrics[name].kind == "counter":
                self._average(block, step)
            unread = np.arange(block.shape[1]) % step != step - 1
            block[:, unread] = np.nan
        for name, every in self._every.items():
            # What is read every few seconds is told again in between.
            if self._index % every == 0 or name not in self._held:
                self._held[name] = self[name].copy()
            else:
                self[name][:] = self._held[name]
        for columns in self._rates:
            self.values[:, :, columns] = round_mantissa(self.values[:, :, columns])
        if len(self._absent):
            self.values[:, :, self._absent] = np.nan

    def silence(self, names: Mapping[str, NDArray[Any]]) -> None:
        """Take away the values of instances of a dimension where `names[dimension]` (hosts, samples, instances) is
        above zero.
        """
        for name, metric in self.metrics.items():
            gone = names.get(metric.dimension)
            if gone is not None:
                self[name][np.broadcast_to(gone > 0, self[name].shape)] = np.nan

    def matrices(self, host: int) -> dict[str, Floats]:
        """Matrices of a host by metric, (samples, instances). Not there are metrics that no model knows yet."""
        values = self.values[host]
        return {name: values[:, columns] for name, columns in self._columns.items() if name in self._set}

    @staticmethod
    def _average(block: Floats, step: int) -> None:
        """Make the rate of `step` samples that of the time between two readings."""
        hosts, samples, width = block.shape
        parts = block.reshape(hosts, samples // step, step, width)
        block[:] = np.repeat(parts.mean(axis=2), step, axis=1)


@cache
def _every_ms() -> Mapping[str, int]:
    """Time between readings by metric, as the agent's collectors have it."""
    return {metric: collector.every_ms for collector in COLLECTORS for metric in collector.metrics}


def _rank(metric: Metric) -> int:
    """Counted without noise, counted with noise, a rate with noise, a gauge with noise, a rate without, a gauge
    without.
    """
    exact = metric.name in EXACT or metric.unit in EXACT_UNITS or metric.kind == "state"
    counter = metric.kind == "counter"
    if counter and metric.unit in COUNTED_UNITS:
        return 0 if exact else 1
    return (4 if exact else 2) + (0 if counter else 1)
