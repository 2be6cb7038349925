"""What an anomalous window looks like: what it moves, what of it speaks of a fault, and what the host gets done."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.catalogue import Metric
from stream_processors.features import DISCARDS, RARE_METRICS, RARE_UNITS, by_metric, feature_table
from stream_processors.scaling import USUAL
from stream_processors.seconds import Singles

MOVED: Final = 2 * USUAL
"""A level of an allocation, or of a metric that speaks of faults, counts from here on."""
TRADED: Final = 1.0
"""The same in a shape, which holds log2 of multiples of USUAL: so far work of a kind rises that is taken up."""
GIVEN_UP: Final = 0.5
"""Work of a kind is given up when less than such a part of what is usual is left. Robust deviations do not say so:
where work comes in bursts, its scale is as large as its level.
"""
FADING: Final = 0.8
"""At the edge of a phase, where a window holds what was before as well, it is on its way from here on."""
SUBSYSTEMS: Final = 3
METRICS: Final = 3
"""A phase moves at least so many metrics in each of SUBSYSTEMS subsystems."""
ALLOCATIONS: Final = frozenset({"gpu.mem_used", "mem.anon", "mem.committed"})
WORK: Final = frozenset(
    {
        *("cpu.time.user", "gpu.power_instant", "gpu.nvlink_rx", "gpu.nvlink_tx", "gpu.pcie_rx_bytes"),
        *("gpu.pcie_tx_bytes", "ib.rx_data", "ib.tx_data", "net.rx_bytes", "net.tx_bytes"),
        *("disk.read_sectors", "disk.write_sectors"),
    }
)
"""What a host gets done, by kind."""
FAULT_WORDS: Final = (
    "cpu.psi.", "mem.psi.", "cpu.run_delay", "cpu.time.steal", "cpu.throttle.", "gpu.throttle_ns.", "gpu.throttled.",
    "numa.miss", "numa.foreign", "vm.scan_direct", "vm.alloc_stall", "vm.compact_stall", "vm.swap_in", "vm.swap_out",
    "zone.below_low", "mem.hugetlb", "softnet.time_squeeze", "tcp.retrans_segs", "tcp.timeouts", "tcp.lost_retransmit",
    "ip.ecn_ce", "ib.hw.adp_retrans", "ib.hw.cnp_", "ib.hw.ecn_marked", "ib.hw.out_of_", "ib.hw.packet_seq_err",
    "ib.hw.rnr_nak",
)  # fmt: skip
"""Metrics, by the beginning of their names, whose rise is no work. Pressure on storage is not among them: checkpoints
and data sets press on it.
"""
NOT_FAULTS: Final = frozenset({"gpu.throttled.idle"})
TRAFFIC_WORDS: Final = ("softnet.time_squeeze", "ip.ecn_ce", "ib.hw.cnp_", "ib.hw.ecn_marked")
"""Of them, those that more traffic alone makes rise: with a change of work they are a part of it."""
LOAD_WORDS: Final = (*TRAFFIC_WORDS, "cpu.psi.", "cpu.run_delay")
"""Those that more work makes rise. A fault of its own would be one at first; what lasts is what the new work does."""
COST_UNITS: Final = frozenset({"faults/s", "interrupts/s", "softirqs/s", "switches/s"})
COST_METRICS: Final = frozenset(
    {*(f"cpu.perf.{name}" for name in ("context_switches", "major_faults", "migrations", "minor_faults")), "vm.pgfree"}
)
"""What a host spends on itself."""


def speaks_of_fault(metric: Metric) -> bool:
    """Whether a rise of `metric` says that something is wrong, rather than that there is more to do."""
    if metric.name in NOT_FAULTS:
        return False
    return metric.unit in RARE_UNITS or metric.name in RARE_METRICS or metric.name.startswith(FAULT_WORDS)


@dataclass(frozen=True, slots=True)
class Look:
    """What an anomalous window looks like.

    shape        float32 (metrics,): strongest deviation of a level of each metric, signed, as log2 of multiples of
                 USUAL, 0 below. Levels alone, since at the edges of a phase they lie between before and after
    words        metrics that speak of a fault
    allocations  float32 (allocation features,): deviations
    sizes        float32 (metrics,): strongest deviation of any feature of each metric, in the same measure, unsigned
    work         float32 (kinds of WORK,): what there is of it, as a share of what is usual; 1 where nothing is usual or
                 nothing of it is strange
    """

    shape: Singles
    words: tuple[str, ...]
    allocations: Singles
    work: Singles
    sizes: Singles

    @property
    def moved(self) -> tuple[str, ...]:
        """Subsystems of which at least METRICS metrics moved."""
        count: dict[str, int] = {}
        for metric in np.flatnonzero(self.shape):
            name = feature_table().metrics[metric].subsystem
            count[name] = count.get(name, 0) + 1
        return tuple(name for name, metrics in count.items() if metrics >= METRICS)

    @property
    def trades(self) -> bool:
        """Whether work of one subsystem takes the place of work of another, and moves all of the host."""
        return self._traded(TRADED, GIVEN_UP) and len(self.moved) >= SUBSYSTEMS

    @property
    def may_trade(self) -> bool:
        """Whether it may be the beginning of a window that does."""
        return not self.words and self._traded(0.0, FADING)

    @property
    def half_trades(self) -> bool:
        """Whether work is given up already, and what takes its place rises, however little."""
        return not self.words and self._traded(0.0, GIVEN_UP)

    def lacks_work_of(self, shape: Singles) -> bool:
        """Whether nothing of the work that is taken up in `shape` (metrics,) is more than usual."""
        places = _places().work
        taken_up = shape[places] >= TRADED
        return bool(taken_up.any() and not (self.shape[places][taken_up] > 0).any())

    def _traded(self, risen: float, left: float) -> bool:
        levels = self.shape[_places().work]
        names = np.array([feature_table().metrics[metric].subsystem for metric in _places().work])
        # What one disk does more of while all of them do less is not taken up.
        more = set(names[(levels > 0) & (levels >= risen) & (self.work >= 1)])
        less = set(names[self.work < left])
        return len(more | less) > 1 and bool(more and less)

    @property
    def allocated(self) -> bool:
        """Whether allocations moved."""
        return bool((np.abs(self.allocations) > MOVED).any())


@dataclass(frozen=True, slots=True)
class _Places:
    words: NDArray[np.intp]
    allocations: NDArray[np.intp]
    speaking: NDArray[np.bool_]
    levels: NDArray[np.intp]
    metrics: NDArray[np.intp]
    work: NDArray[np.intp]
    work_levels: NDArray[np.intp]


@cache
def _places() -> _Places:
    table = feature_table()
    speaking = np.array([speaks_of_fault(f.metric) and f.kind == "level" for f in table.features])
    allocating = np.array([f.metric.name in ALLOCATIONS and f.kind == "level" for f in table.features])
    means = np.array([f.summary == "mean" for f in table.features])
    levels = np.flatnonzero(np.array([f.kind == "level" for f in table.features]))
    work = np.flatnonzero([metric.name in WORK for metric in table.metrics])
    totals = {table.metric_of[p]: p for p in levels if means[p]}
    return _Places(
        np.flatnonzero(speaking),
        np.flatnonzero(allocating & means),
        speaking,
        levels,
        table.metric_of[levels],
        work,
        np.array([totals[metric] for metric in work]),
    )


def look(deviations: Singles, shares: Singles) -> Look:
    """What a window looks like that deviates so, and has such shares of what is usual, (len(feature_table()),) each."""
    table, places = feature_table(), _places()
    there = np.nan_to_num(deviations, nan=0.0)
    highest, lowest = np.zeros((2, len(table.metrics)), dtype=np.float32)
    np.maximum.at(highest, places.metrics, there[places.levels])
    np.minimum.at(lowest, places.metrics, there[places.levels])
    strongest = np.where(highest >= -lowest, highest, lowest)
    shape = np.sign(strongest) * np.log2(np.maximum(np.abs(strongest) / USUAL, 1.0))
    spoke = places.words[there[places.words] > MOVED]
    words = tuple(dict.fromkeys(table.features[position].metric.name for position in spoke))
    work = np.nan_to_num(shares[places.work_levels], nan=1.0, posinf=1.0, neginf=1.0)
    work[by_metric(there)[places.work] <= USUAL] = 1.0
    sizes = np.log2(np.maximum(by_metric(there) / np.float32(USUAL), 1.0)).astype(np.float32)
    return Look(shape.astype(np.float32), words, there[places.allocations].astype(np.float32), work, sizes)


def speaking() -> NDArray[np.bool_]:
    """Which features (len(feature_table()),) are levels of metrics that speak of faults."""
    return _places().speaking


@cache
def costs() -> NDArray[np.bool_]:
    """Which features (len(feature_table()),) are of metrics that speak of a fault or of time that is not spent on work,
    so that less of them is no fault.
    """
    metrics = feature_table().metrics
    mine = [m.unit in COST_UNITS or m.name in COST_METRICS or speaks_of_fault(m) for m in metrics]
    return np.array(mine)[feature_table().metric_of]


@cache
def _rare() -> NDArray[np.intp]:
    rare = [m.unit in RARE_UNITS or m.name in RARE_METRICS - DISCARDS for m in feature_table().metrics]
    return np.flatnonzero(np.array(rare)[feature_table().metric_of])


def one_matters(deviations: Singles) -> bool:
    """Whether something is strange of which a single event matters, such as an error of memory."""
    return bool((np.abs(deviations.take(_rare())) > USUAL).any())


def only_words(deviations: Singles, rest: Singles | None = None) -> Singles:
    """The deviations of metrics that speak of faults; of the others `rest`, or 0, since the work has moved them."""
    return np.where(_places().speaking, deviations, np.float32(0) if rest is None else rest).astype(np.float32)
