"""Counters of the processor, the memory controllers and the kernel, by perf_event_open.

To read the counters of another CPU interrupts it and waits for its answer: 75 µs in a virtual machine, a few µs on
bare metal, and up to five times per CPU, so twice a second is enough. One reading gives the exact number of events
since the last, however long ago that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.collector import Collector, Layout, ParseError, Reading, plain
from producers.perf.counts import BUSY_MHZ, BUSY_PCT, RUNNING_PCT
from producers.perf.events import CORE_C6, CYCLES, KERNEL, L3_STALLS, MISSES, RATIOS, STALLS, TRAFFIC
from producers.perf.source import CHANNELS, COUNTS, NOTES, perf_source
from producers.reading import Texts

COUNTED: Final = tuple(event.metric for event in (*KERNEL, *CYCLES, STALLS, L3_STALLS, *RATIOS, *MISSES))
# Made from two counters of one group: numerator, denominator, factor.
MADE: Final = {
    "cpu.perf.ipc": ("cpu.perf.instructions", "cpu.perf.cycles", 1.0),
    "cpu.perf.cache_miss_pct": ("cpu.perf.cache_misses", "cpu.perf.cache_references", 100.0),
    "cpu.perf.branch_miss_pct": ("cpu.perf.branch_misses", "cpu.perf.branches", 100.0),
    "cpu.perf.l3_stall_pct": ("cpu.perf.l3_miss_stall_cycles", "cpu.perf.cycles", 100.0),
}


class Perf:
    """Parser of what PerfSource gives."""

    def __init__(self) -> None:
        self._said: tuple[bytes, bytes] | None = None
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Sums of events, MHz, %."""
        if CHANNELS not in texts or COUNTS not in texts:
            raise ParseError("no counters")
        said = texts[CHANNELS], texts.get(NOTES, b"")
        if said != self._said:
            channels = [line.split(" ") for line in said[0].decode().splitlines()]
            notes = tuple(said[1].decode().splitlines())
            self._layout = Layout(tuple((metric, instance) for metric, instance in channels), notes=notes)
            self._said = said
        values: list[float] = np.frombuffer(texts[COUNTS]).tolist()
        if len(values) != len(self._layout.channels):
            raise ParseError(f"{len(values)} counts of {len(self._layout.channels)} channels")
        return self._layout, values


def derive(rates: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Ratios over the interval; absent where nothing was counted that they are shares of."""
    return {
        metric: factor * rates[part] / np.where(rates[whole] > 0, rates[whole], np.nan)
        for metric, (part, whole, factor) in MADE.items()
        if part in rates and whole in rates
    }


PERF = Collector(
    "perf",
    ("perf_event_open",),
    plain(Perf),
    (*COUNTED, RUNNING_PCT, *MADE, "cpu.smi", BUSY_MHZ, BUSY_PCT, CORE_C6, *TRAFFIC),
    every_ms=1000,
    may_block=True,
    source=perf_source,
    derive=derive,
)
