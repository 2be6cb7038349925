"""Noise: how much a metric scatters around its course, and how long a deviation lasts; measured on a recording."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.fleet.profiles import read_toml
from schemas.catalogue import Metric, catalogue
from schemas.recording import read_recording
from schemas.records import Telemetry

Floats = NDArray[np.float32]
COURSE: Final = 31
"""Samples of the running mean that is taken for the course of a metric: 3 s at 10 Hz, the detection's window."""
LARGEST: Final = 0.3
"""Largest coefficient of variation: above it the scatter is that of single events, which counting makes by itself."""
LARGEST_AMOUNT: Final = 0.002
"""The same of amounts of memory: what comes and goes with a process is a smaller share of a larger host."""
COUNTED_UNITS: Final = frozenset(
    {
        "events/s",
        "packets/s",
        "segments/s",
        "interrupts/s",
        "softirqs/s",
        "switches/s",
        "forks/s",
        "faults/s",
        "ticks/s",
    }
    | {"pages/s", "requests/s", "errors/s", "connections/s", "datagrams/s", "rows/s", "slices/s", "sectors/s"}
    | {"readings/s", "samples/s"}
)
"""Units of rates that count single things."""
FEWEST: Final = 10 * COURSE
FEWEST_EVENTS: Final = 5.0
"""Events a sample below which a counter's scatter is that of counting, which says nothing of a busier host."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """cv: robust standard deviation of the residuals over the mean level, their coefficient of variation. rho: their
    autocorrelation from sample to sample.
    """

    cv: float
    rho: float


def measure(records: Iterable[Telemetry]) -> dict[str, Scatter]:
    """Scatter of every metric that moves, from telemetry of any number of hosts.

    Of each channel the residuals against its running mean over COURSE samples are taken; the median over the channels
    of a metric counts. Channels that never move, are mostly absent, shorter than FEWEST samples or count fewer than
    FEWEST_EVENTS a sample say nothing.
    """
    series: dict[tuple[str, str, str], list[Floats]] = defaultdict(list)
    period_s = 0.1
    for record in records:
        period_s = record.period_ms / 1000
        for metric, matrix in record.metrics.items():
            for column, instance in enumerate(record.instances[catalogue()[metric].dimension]):
                series[record.host, metric, instance].append(matrix[:, column])
    found: dict[str, list[Scatter]] = defaultdict(list)
    for (_, metric, _), parts in series.items():
        least = FEWEST_EVENTS / period_s if catalogue()[metric].unit in COUNTED_UNITS else 0.0
        scatter = _scatter(np.concatenate(parts).astype(np.float64), least)
        if scatter is not None:
            found[metric].append(scatter)
    return {
        metric: Scatter(
            round(float(np.median([each.cv for each in scatters])), 3),
            round(float(np.median([each.rho for each in scatters])), 2),
        )
        for metric, scatters in sorted(found.items())
    }


@dataclass(frozen=True, slots=True)
class NoiseTable:
    """Scatter by metric, and by unit for those that were not measured."""

    metrics: Mapping[str, Scatter]
    units: Mapping[str, Scatter]
    default: Scatter

    def of(self, metric: Metric) -> Scatter:
        """Scatter of `metric`, at most LARGEST."""
        found = self.metrics.get(metric.name) or self.units.get(metric.unit) or self.default
        largest = LARGEST_AMOUNT if metric.unit in {"kB", "B"} else LARGEST
        return Scatter(min(found.cv, largest), min(max(found.rho, 0.0), 0.99))

    def updated(self, measured: Mapping[str, Scatter]) -> NoiseTable:
        """This table with what was `measured` in the place of its own."""
        return NoiseTable({**self.metrics, **measured}, self.units, self.default)


@cache
def built_in() -> NoiseTable:
    """The table of this package; its header says how it was measured."""
    table = read_toml("noise")
    return NoiseTable(
        {name: Scatter(*row) for name, row in table["metrics"].items()},
        {name: Scatter(*row) for name, row in table["units"].items()},
        Scatter(*table["default"]),
    )


def _scatter(values: NDArray[np.float64], least: float) -> Scatter | None:
    # A source that is read less often than every sample leaves rows without a value.
    values = values[~np.isnan(values)]
    if len(values) < FEWEST or np.ptp(values) == 0:
        return None
    window = np.full(COURSE, 1.0 / COURSE)
    residuals = values[COURSE // 2 : -(COURSE // 2)] - np.convolve(values, window, "valid")
    level = float(np.mean(np.abs(values)))
    # From the median: single bursts are what the host does, not noise.
    deviation = 1.4826 * float(np.median(np.abs(residuals - np.median(residuals))))
    if level <= least or deviation == 0:
        return None
    usual = np.clip(residuals, -3 * deviation, 3 * deviation)
    rho = float(np.corrcoef(usual[1:], usual[:-1])[0, 1])
    return Scatter(deviation / level, max(rho, 0.0))


def main(argv: list[str]) -> int:
    """`python -m producers.fleet.noise DIR` prints the [metrics] part of noise.toml for a recording."""
    if len(argv) != 2:
        print("usage: python -m producers.fleet.noise RECORDING", file=sys.stderr)
        return 2
    print("[metrics]")
    for metric, scatter in measure(read_recording(Path(argv[1]))).items():
        print(f'"{metric}" = [{scatter.cv:g}, {scatter.rho:g}]')
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
