"""Features of a window: numbers that say how its series look, the same for every host.

FEATURES of every series of every subsystem, in a fixed order (`feature_table`), so that a position names a feature
everywhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.catalogue import SUBSYSTEMS, Metric
from stream_processors.compiled import compiled
from stream_processors.seconds import (
    M2,
    MAX,
    MEAN,
    MIN,
    ROUGH,
    SUM_T,
    SUM_TT,
    SUM_TX,
    Floats,
    Lineup,
    N,
    Series,
    Statistics,
    layout,
)

Singles = NDArray[np.float32]

FEATURES: Final = ("level", "maximum", "variability", "roughness", "trend", "minimum")
# The order in which pruning prefers them: a level explains itself, a minimum hardly ever says more than the others.
# `describe` has it, too.

FLOORS: Final[Mapping[str, float]] = {
    "%": 5.0,
    "s/s": 0.05,
    "kHz": 50_000.0,
    "MHz": 50.0,
    "kB": 8192.0,
    "B": 8_388_608.0,
    "B/s": 262_144.0,
    "KiB/s": 2048.0,
    "sectors/s": 4096.0,
    "us/s": 20_000.0,
    "ms/s": 50.0,
    "ns/s": 20_000_000.0,
    "ms": 5.0,
    "mC": 2_000.0,
    "C": 2.0,
    "mW": 5_000.0,
    "mJ/s": 5_000.0,
    "tasks": 1.0,
    "sockets": 5.0,
    "connections": 5.0,
    "connections/s": 5.0,
    "forks/s": 5.0,
    "pages": 512.0,
    "pages/s": 512.0,
    "faults/s": 500.0,
    "events/s": 5.0,
    "interrupts/s": 200.0,
    "softirqs/s": 200.0,
    "switches/s": 500.0,
    "packets/s": 100.0,
    "segments/s": 100.0,
    "datagrams/s": 100.0,
    "cycles/s": 50_000_000.0,
    "tsc ticks/s": 100_000_000.0,
    "instructions/cycle": 0.2,
    "MiB/s": 100.0,
    "uJ/s": 5_000_000.0,
    "uW": 5_000_000.0,
    "rpm": 300.0,
    "blocks": 2000.0,
    "objects": 20_000.0,
    "requests/s": 20.0,
    "requests": 2.0,
    "entries": 500.0,
    "files": 500.0,
    "inodes": 10_000.0,
    "ticks/s": 100_000.0,
}
"""Smallest scale of a level by unit: a change below it is of no interest to an operator, however constant the
baseline was; without it the kernel writing back a megabyte every five seconds would be strange on a host that was
idle while it was learnt. Other units: DEFAULT_FLOOR.
"""
DEFAULT_FLOOR: Final = 1.0
CHURN_FLOORS: Final[Mapping[str, float]] = {
    # A sleep is counted when it is over, so the time comes in leaps.
    "cpu.cstate.deepest": 300_000.0,
    "cpu.cstate.residency": 300_000.0,
    # Some per mille of what a busy core of some GHz counts.
    **{f"cpu.perf.{name}": 5e7 for name in ("cycles", "instructions", "ref_cycles", "stalled_cycles_backend")},
    "cpu.perf.branches": 1e7,
    "cpu.perf.cache_references": 1e6,
    **{f"cpu.perf.{name}": 5e5 for name in ("branch_misses", "cache_misses", "dtlb_load_misses")},
    "cpu.perf.l1d_load_misses": 2e6,
    **{f"cpu.perf.{name}": 1e5 for name in ("llc_load_misses", "node_load_misses")},
    "cpu.perf.context_switches": 500.0,
    "cpu.perf.migrations": 20.0,
    "cpu.perf.minor_faults": 500.0,
    # What is left of a file system says something when it is nearly full, and fs.used_pct says it then.
    "fs.free_bytes": 5e10,
    "fs.free_inodes": 1e7,
    "disk.read_merges": 200.0,
    "disk.write_merges": 200.0,
    "disk.discards": 100.0,
    "numa.hit": 4096.0,
    "vm.pgfault": 2000.0,
    "vm.pgfree": 4096.0,
}
"""Floors of metrics that come in larger numbers than others of their unit, and mean less."""
GAUGE_SHARES: Final[Mapping[str, float]] = {
    "level": 1.0,
    "maximum": 3.0,
    "variability": 1.0,
    "roughness": 2.0,
    "trend": 1.0,
    "minimum": 3.0,
}
"""Floor of each kind of feature, as a share of that of the level: single samples are noisier than a mean of thirty."""
RATE_SHARES: Final[Mapping[str, float]] = {**GAUGE_SHARES, "maximum": 10.0, "variability": 3.0}
"""The same for rates, where what comes at once in one sample of 100 ms is ten times the rate over a second."""
RARE_UNITS: Final = frozenset(
    {"errors/s", "errors", "rows", "bool", "enum", "level", "lanes", "gen", "disks", "bitmask"}
)
RARE_METRICS: Final = frozenset(
    {
        *("cpu.online", "cpu.smi", "cpu.throttle.core", "cpu.throttle.package"),
        *("cpu.irq.mce", "cpu.irq.thermal", "vm.oom_kill", "vm.hugetlb_alloc_fail", "softnet.dropped"),
        *(f"net.{name}" for name in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_fifo", "tx_carrier")),
        *(f"tcp.{name}" for name in ("in_errs", "backlog_drop", "rcvq_drop", "listen_overflows", "memory_pressures")),
        *("tcp.abort_on_timeout", "ip.in_discards", "udp.in_errors", "udp.rcvbuf_errors"),
        *("ip6.in_discards", "udp6.in_errors", "udp6.rcvbuf_errors"),
        *("net.rx_missed", "net.rx_crc", "net.carrier_changes"),
        *(f"ib.{name}" for name in ("rx_errors", "link_downed", "link_error_recovery", "hw.cqe_errors")),
        *(f"gpu.{name}" for name in ("missing", "pcie_replay", "pcie_l0_recovery", "remapped_rows", "implausible")),
        *("gpu.nvlink_link_recovery_events", "conntrack.drop", "conntrack.early_drop", "conntrack.insert_failed"),
    }
)
RARE_FLOOR: Final = 0.1
"""Floor of what counts faults: a single one matters."""
DISCARDS: Final = frozenset(
    {
        *("net.rx_dropped", "net.tx_dropped", "net.rx_missed", "softnet.dropped", "ip.in_discards", "ip6.in_discards"),
        *("tcp.backlog_drop", "tcp.rcvq_drop", "udp.in_errors", "udp.rcvbuf_errors"),
        *("udp6.in_errors", "udp6.rcvbuf_errors"),
    }
)
DISCARD_FLOOR: Final = 1.0
"""Of RARE_METRICS, those that count packets have a floor of their own: one now and then is every day's business."""
AGAIN_FLOORS: Final[Mapping[str, float]] = {
    **{f"tcp.{name}": 2.0 for name in ("retrans_segs", "fast_retrans", "slow_start_retrans", "lost_retransmit")},
    "tcp.timeouts": 1.0,
    "tcp.dsack_recv": 20.0,
    "ip.ecn_ce": 5.0,
}
"""Floors of what is sent again: few among the packets of a host, and each costs as much time as thousands of them."""
SPECIAL_FLOORS: Final = {**CHURN_FLOORS, **AGAIN_FLOORS}
MEMORY_SHARES: Final[Mapping[str, float]] = {
    **{f"mem.{name}": 0.004 for name in ("anon", "anon_huge", "available", "committed", "mapped", "shmem")},
    "numa.anon_pages": 0.004,
    # The page cache and what it leaves free drift with every file that is read or deleted.
    **{f"mem.{name}": 0.02 for name in ("active", "buffers", "cached", "free", "inactive")},
    **{f"numa.{name}": 0.02 for name in ("file_pages", "mem_free", "mem_used")},
    # In pages, of 4 kB on most hosts.
    "zone.free": 0.005,
}
"""Floors of amounts that come and go with every process and file, as shares of the host's memory."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: `kind` (of FEATURES) of one series of one subsystem."""

    subsystem: str
    metric: Metric
    summary: str
    kind: str

    @property
    def words(self) -> str:
        """What it is, for people: "trend of the spread over cores"."""
        over = {"mean": "", "maximum": f" of the highest {self.metric.dimension}", "spread": " of the spread over "}[
            self.summary
        ]
        if self.summary == "spread":
            over += f"{self.metric.dimension}s"
        elif self.summary == "mean" and self.metric.dimension != "host":
            over = f" of the mean over {self.metric.dimension}s"
        return f"{self.kind}{over}"


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """All features in order, and arrays over them.

    features    by position
    slices      positions of a subsystem
    metric_of   position -> index into `metrics`
    metrics     all metrics, in order
    preference  position -> rank of its kind in FEATURES
    floors      position -> smallest scale, in the unit of the feature
    memory_shares  position -> its share in MEMORY_SHARES, 0 for others
    memory_total   position of the level of mem.total
    places         (len(FEATURES), series of all subsystems): positions of the features of each series
    mark           tells tables of different catalogues apart
    """

    features: tuple[Feature, ...]
    slices: Mapping[str, slice]
    metrics: tuple[Metric, ...]
    metric_of: NDArray[np.intp]
    preference: NDArray[np.intp]
    floors: Floats
    memory_shares: Floats
    memory_total: int
    places: NDArray[np.intp]
    mark: str

    def __len__(self) -> int:
        return len(self.features)


@cache
def feature_table() -> FeatureTable:
    """The table of the current catalogue. Within a subsystem, positions run over kinds, then series."""
    features: list[Feature] = []
    slices: dict[str, slice] = {}
    metrics: dict[str, int] = {}
    for subsystem in SUBSYSTEMS:
        start = len(features)
        for kind in FEATURES:
            features += [_feature(subsystem, series, kind) for series in layout(subsystem).series]
        slices[subsystem] = slice(start, len(features))
    for feature in features:
        metrics.setdefault(feature.metric.name, len(metrics))
    ordered = {feature.metric.name: feature.metric for feature in features}
    return FeatureTable(
        features=tuple(features),
        slices=slices,
        metrics=tuple(ordered[name] for name in metrics),
        metric_of=np.array([metrics[feature.metric.name] for feature in features]),
        preference=np.array([FEATURES.index(feature.kind) for feature in features]),
        floors=np.array([_floor(feature) for feature in features]),
        memory_shares=np.array([MEMORY_SHARES.get(feature.metric.name, 0.0) for feature in features]),
        memory_total=next(i for i, f in enumerate(features) if (f.metric.name, f.kind) == ("mem.total", "level")),
        places=np.concatenate(
            [np.arange(place.start, place.stop).reshape(len(FEATURES), -1) for place in slices.values()], axis=1
        ),
        mark=f"{zlib.crc32('/'.join(f'{f.metric.name} {f.summary} {f.kind}' for f in features).encode()):08x}",
    )


@compiled("float64[:,::1](float64[:,::1])")
def describe(values: Floats) -> Floats:
    """Features (len(FEATURES), series) of the statistics (len(ROWS), series) of a window.

    level: mean; variability: standard deviation; trend: least-squares slope per second; roughness: mean absolute step
    between neighbouring samples.
    """
    features = np.empty((len(FEATURES), values.shape[1]))
    for place in range(values.shape[1]):
        n, sum_t, mean = values[N, place], values[SUM_T, place], values[MEAN, place]
        apart = n * values[SUM_TT, place] - sum_t * sum_t
        features[0, place] = mean
        features[1, place] = values[MAX, place]
        features[2, place] = np.sqrt(values[M2, place] / n) if n > 1 else np.nan
        features[3, place] = values[ROUGH, place] / (n - 1) if n > 1 else np.nan
        features[4, place] = (n * values[SUM_TX, place] - sum_t * n * mean) / apart if apart > 1e-9 else np.nan
        features[5, place] = values[MIN, place]
    return features


@compiled("float32[::1](float64[:,::1], int64[:,::1], int64)")
def _put(values: Floats, places: NDArray[np.intp], count: int) -> Singles:
    """The features of these statistics at their `places` among `count`."""
    features = np.full(count, np.nan, np.float32)
    described = describe(values)
    for kind in range(described.shape[0]):
        for place in range(described.shape[1]):
            features[places[kind, place]] = described[kind, place]
    return features


def window_features(stats: Statistics) -> Singles:
    """Features (len(feature_table()),) of the merged statistics of a window; NaN for what is absent."""
    return _put(stats.values, _places(stats.lineup), len(feature_table()))


@lru_cache(maxsize=64)
def _places(lineup: Lineup) -> NDArray[np.intp]:
    """Positions of the features of these series, (len(FEATURES), series)."""
    return feature_table().places.take(lineup.columns, axis=1)


@cache
def trends() -> NDArray[np.intp]:
    """Positions of the trends."""
    return np.flatnonzero(feature_table().preference == FEATURES.index("trend"))


@cache
def minima() -> NDArray[np.bool_]:
    """Which features (len(feature_table()),) are the least that there was in a window. A rise of one says that work
    keeps other time with the samples, as when steps of training are no multiple of 100 ms; where there is more of
    something, its level says so.
    """
    return np.asarray(feature_table().preference == FEATURES.index("minimum"))


def smallest_scales(matrix: Singles) -> Floats:
    """Smallest scale of each feature (len(feature_table()),) on a host with these rows (n, len(feature_table())):
    what is of no interest depends on how much memory there is.
    """
    table = feature_table()
    total = matrix[:, table.memory_total]
    if np.isnan(total).all():
        return table.floors
    return np.maximum(table.floors, table.memory_shares * float(np.nanmedian(total)))


def by_metric(deviations: Singles) -> Singles:
    """Largest absolute deviation over the features of each metric, (metrics,)."""
    table = feature_table()
    largest = np.zeros(len(table.metrics), dtype=np.float32)
    np.maximum.at(largest, table.metric_of, np.abs(np.nan_to_num(deviations, nan=0.0)))
    return largest


def _feature(subsystem: str, series: Series, kind: str) -> Feature:
    return Feature(subsystem, series.metric, series.summary, kind)


def _floor(feature: Feature) -> float:
    metric = feature.metric
    if metric.name in DISCARDS:
        floor = DISCARD_FLOOR
    elif metric.unit in RARE_UNITS or metric.name in RARE_METRICS:
        floor = RARE_FLOOR
    else:
        floor = SPECIAL_FLOORS.get(metric.name, FLOORS.get(metric.unit, DEFAULT_FLOOR))
    return floor * (RATE_SHARES if metric.kind == "counter" else GAUGE_SHARES)[feature.kind]
