"""Features of a window: numbers that say how its series look, the same for every host.

FEATURES of every series of every subsystem, in a fixed order (`feature_table`), so that a position names a feature
everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from schemas.catalogue import SUBSYSTEMS, Metric
from stream_processors.seconds import M2, MAX, MEAN, MIN, ROUGH, SUM_T, SUM_TT, SUM_TX, Floats, N, Series, layout

Singles = NDArray[np.float32]

FEATURES: Final = ("level", "maximum", "variability", "roughness", "trend", "minimum")
# The order in which pruning prefers them: a level explains itself, a minimum hardly ever says more than the others.

FLOORS: Final[Mapping[str, float]] = {
    "%": 2.0,
    "s/s": 0.02,
    "kHz": 20_000.0,
    "kB": 4096.0,
    "B": 4_194_304.0,
    "B/s": 65_536.0,
    "KiB/s": 64.0,
    "sectors/s": 128.0,
    "us/s": 5_000.0,
    "ms/s": 5.0,
    "ns/s": 5_000_000.0,
    "ms": 1.0,
    "mC": 1_000.0,
    "C": 1.0,
    "mW": 2_000.0,
    "MHz": 20.0,
    "tasks": 0.5,
    "sockets": 2.0,
    "connections": 2.0,
    "pages": 256.0,
    "pages/s": 256.0,
    "faults/s": 100.0,
    "interrupts/s": 50.0,
    "softirqs/s": 50.0,
    "switches/s": 100.0,
    "packets/s": 20.0,
    "segments/s": 20.0,
    "datagrams/s": 20.0,
    "requests/s": 5.0,
    "requests": 1.0,
}
"""Smallest scale of a level by unit: a change below it is of no interest to an operator, however constant the
baseline was. Other units: DEFAULT_FLOOR.
"""
DEFAULT_FLOOR: Final = 1.0
RARE: Final = frozenset({"errors/s", "events/s", "errors", "events", "rows", "bool", "enum", "level", "lanes", "gen"})
"""Units of metrics whose single events matter: their floor is RARE_FLOOR."""
RARE_FLOOR: Final = 0.1

MEMORY_SHARE: Final = 0.004
OF_MEMORY: Final = frozenset(
    {
        *(f"mem.{name}" for name in ("active", "anon", "anon_huge", "available", "buffers", "cached", "committed")),
        *(f"mem.{name}" for name in ("free", "inactive", "mapped", "shmem")),
        *(f"numa.{name}" for name in ("anon_pages", "file_pages", "mem_free", "mem_used")),
    }
)
"""Amounts that come and go with every process: what of them matters depends on how much memory there is."""


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
    of_memory   position -> whether it is an amount of the host's memory
    memory_total  position of the level of mem.total
    """

    features: tuple[Feature, ...]
    slices: Mapping[str, slice]
    metrics: tuple[Metric, ...]
    metric_of: NDArray[np.intp]
    preference: NDArray[np.intp]
    floors: Floats
    of_memory: NDArray[np.bool_]
    memory_total: int

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
        of_memory=np.array([feature.metric.name in OF_MEMORY for feature in features]),
        memory_total=next(i for i, f in enumerate(features) if (f.metric.name, f.kind) == ("mem.total", "level")),
    )


def window_features(stats: Mapping[str, Floats]) -> Singles:
    """Features (len(feature_table()),) of the merged statistics of a window, by subsystem; NaN for what is absent.

    level: mean; variability: standard deviation; trend: least-squares slope per second; roughness: mean absolute step
    between neighbouring samples.
    """
    table = feature_table()
    features = np.full(len(table), np.nan, dtype=np.float32)
    for subsystem, block in stats.items():
        n = block[N]
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = n * block[SUM_TT] - block[SUM_T] * block[SUM_T]
            trend = np.where(spread > 1e-9, (n * block[SUM_TX] - block[SUM_T] * n * block[MEAN]) / spread, np.nan)
            rough = np.where(n > 1, block[ROUGH] / (n - 1), np.nan)
            rows = {
                "level": block[MEAN],
                "maximum": block[MAX],
                "variability": np.where(n > 1, np.sqrt(block[M2] / n), np.nan),
                "roughness": rough,
                "trend": trend,
                "minimum": block[MIN],
            }
        features[table.slices[subsystem]] = np.concatenate([rows[kind] for kind in FEATURES])
    return features


def smallest_scales(matrix: Singles) -> Floats:
    """Smallest scale of each feature (len(feature_table()),) on a host with these rows (n, len(feature_table())).

    Of a host's memory, MEMORY_SHARE is of no interest, however large the host is.
    """
    table = feature_table()
    total = matrix[:, table.memory_total]
    if np.isnan(total).all():
        return table.floors
    share = MEMORY_SHARE * float(np.nanmedian(total))
    return np.where(table.of_memory, np.maximum(table.floors, share), table.floors)


def _feature(subsystem: str, series: Series, kind: str) -> Feature:
    return Feature(subsystem, series.metric, series.summary, kind)


def _floor(feature: Feature) -> float:
    unit = feature.metric.unit
    floor = RARE_FLOOR if unit in RARE else FLOORS.get(unit, DEFAULT_FLOOR)
    # Extremes and steps of single samples are noisier than means of thirty.
    return (
        floor
        * {"level": 1.0, "maximum": 3.0, "minimum": 3.0, "variability": 1.0, "roughness": 2.0, "trend": 1.0}[
            feature.kind
        ]
    )
