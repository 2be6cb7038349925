"""Counters to rates, and what counts as plausible.

A counter that falls was reset, or the sample is stray: there is no rate for that interval, and for a while both values,
before and after, are kept to compare with. So neither the reset nor the return of a counter that showed zero for one
sample makes a spike. A counter that leaps beyond what is possible is treated alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.collector import Collector, Layout
from schemas.catalogue import Metric

Floats = NDArray[np.float64]

# Highest plausible rate by published unit: a CPU spends no more than a second a second in a state (ticks of 10 ms and a
# late accounting allow for more within 100 ms), a pressure no more than the time that passes, a link no 8 Tb/s.
HIGHEST_RATE: Final[Mapping[str, float]] = {
    "s/s": 2.0,
    "us/s": 2e6,
    "B/s": 1e12,
    "KiB/s": 1e9,
    # A package that seems to draw more than 5 kW is a register misread.
    "uJ/s": 5e9,
    # A GPU that seems to draw more than 10 kW.
    "mJ/s": 1e7,
    "packets/s": 1e9,
    "softirqs/s": 1e8,
    "ms/s": 1e7,
    # Counters of a core: ten instructions a cycle of 10 GHz; of a memory controller: 2 TB/s.
    "events/s": 1e11,
    "cycles/s": 2e10,
    "tsc ticks/s": 1e10,
    "MiB/s": 2e6,
}
# The same by metric, where the unit's is not right: the time of an idle state is counted when the CPU leaves it, so a
# nap of many seconds comes as one leap.
HIGHEST_RATE_OF: Final[Mapping[str, float]] = {
    "cpu.cstate.residency": 1e10,
    "cpu.cstate.deepest": 1e10,
}
# Time that an interval may seem shorter than it is, by tick rounding, s.
SLACK_S: Final = 0.05
# Plausible range of raw values by published unit. 2^53 ticks are three million years.
RANGE: Final[Mapping[str, tuple[float, float]]] = {
    "s/s": (0, 2.0**53),
    "kHz": (1, 2e7),
    "MHz": (0, 20_000),
    "mC": (-100_000, 200_000),
    "uW": (0, 1e11),
    # 65535 is what a controller says of a fan that is not there.
    "rpm": (0, 60_000),
    "level": (0, 2.0**31),
    "cpus": (1, 2.0**20),
    "blocks": (0, 2.0**40),
    "objects": (0, 2.0**40),
    "kB": (0, 2.0**50),
    "pages": (0, 2.0**50),
    "tasks": (0, 2.0**30),
    "requests": (0, 2.0**30),
    "sockets": (0, 2.0**30),
    "connections": (0, 2.0**30),
    "entries": (0, 2.0**40),
    "files": (0, 2.0**40),
    "QPs": (0, 2.0**32),
    "disks": (0, 2.0**20),
    "Mbit/s": (1, 1e8),
    "Gbit/s": (0.1, 1e5),
    "GT/s": (0.1, 1e4),
    "lanes": (0, 32),
    "bool": (0, 1),
    "bitmask": (0, 2.0**32),
}
WIDEST: Final = (0, 2.0**64)
# How long a counter is compared with its value before a break.
DOUBT_S: Final = 10.0
ROUND_BITS: Final = 11
SHIFT: Final = np.uint32(ROUND_BITS)
ONE: Final = np.uint32(1)
HALF: Final = np.uint32((1 << (ROUND_BITS - 1)) - 1)
KEPT: Final = np.uint32(0xFFFFFFFF << ROUND_BITS & 0xFFFFFFFF)


class Rates:
    """The channels of one source: remembers each counter's last value and its time.

    `metrics` is the catalogue. Gauges pass unchanged; whatever is implausible becomes NaN, and is counted in
    `implausible`.
    """

    def __init__(self, collector: Collector, metrics: Mapping[str, Metric]) -> None:
        self.implausible = 0
        # Whether some channel has no value to begin with, or two: then every sample is looked at by itself.
        self._odd = True
        self._collector = collector
        self._metrics = metrics
        self._layout: Layout | None = None
        self._channels: tuple[tuple[str, str], ...] = ()
        self._counters: NDArray[np.intp] | slice = slice(0, 0)
        self._low = self._high = self._scale = self._limit = self._wrap = self._falls = np.zeros(0)
        self._base = self._base_s = self._other = self._other_s = np.zeros(0)

    def _adopt(self, layout: Layout) -> None:
        """Go over to `layout`; channels that it shares with the last one go on, new ones start afresh."""
        if layout is self._layout:
            return
        metrics = [self._metrics[metric] for metric, _ in layout.channels]
        collector = self._collector
        ranges = np.array([RANGE.get(metric.unit, WIDEST) for metric in metrics], float).reshape(-1, 2)
        self._low, self._high = ranges[:, 0], ranges[:, 1]
        counters = [index for index, metric in enumerate(metrics) if metric.kind == "counter"]
        names = [metrics[index].name for index in counters]
        self._counters = columns(counters)
        self._scale = np.array([collector.scales.get(name, 1.0) for name in names])
        units = [metrics[index].unit for index in counters]
        highest = [
            HIGHEST_RATE_OF.get(name, HIGHEST_RATE.get(unit, np.inf)) for name, unit in zip(names, units, strict=True)
        ]
        self._limit = np.array(highest) / self._scale
        self._falls = np.array([collector.falls.get(name, 0.0) for name in names])
        channels = tuple(layout.channels[index] for index in counters)
        self._wrap = np.array(
            [layout.wraps.get(channel, collector.wraps.get(channel[0], np.nan)) for channel in channels]
        )
        old = {channel: index for index, channel in enumerate(self._channels)}
        known = [(new, old[channel]) for new, channel in enumerate(channels) if channel in old]
        to, source = np.array(known, np.intp).reshape(-1, 2).T
        state = []
        for values in (self._base, self._base_s, self._other, self._other_s):
            moved = np.full(len(channels), np.nan)
            moved[to] = values[source]
            state.append(moved)
        self._base, self._base_s, self._other, self._other_s = state
        self._channels = channels
        self._layout = layout
        self._odd = True

    def __call__(self, layout: Layout, times_s: Floats, values: Floats) -> Floats:
        """Published values of raw `values` of `layout`, both (samples, channels), read at monotonic `times_s`."""
        self._adopt(layout)
        with np.errstate(invalid="ignore"):
            if ((values >= self._low) & (values <= self._high)).all():
                result = values.copy()
            else:
                beyond = (values < self._low) | (values > self._high)
                self.implausible += int(np.count_nonzero(beyond))
                result = np.where(beyond, np.nan, values)
            if not self._channels:
                return result
            counts = result[:, self._counters]
            rates = self._steady(times_s, counts)
            if rates is None:
                rates = np.empty_like(counts)
                for row, (time_s, count) in enumerate(zip(times_s.tolist(), counts, strict=True)):
                    rates[row] = self._step(time_s, count)
        result[:, self._counters] = rates * self._scale
        return result

    def _steady(self, times_s: Floats, counts: Floats) -> Floats | None:
        """Rates of all samples at once, if nothing is odd; else None."""
        if self._odd:
            return None
        times = np.concatenate((self._base_s[:1], times_s))
        elapsed = times[1:] - times[:-1]
        stacked = np.concatenate((self._base[None, :], counts))
        change = stacked[1:] - stacked[:-1]
        # The shortest interval allows least: what is beyond it is looked at step by step.
        shortest = elapsed.min()
        if not (
            shortest > 0 and change.min() >= 0 and (change.max(axis=0) <= self._limit * (shortest + SLACK_S)).all()
        ):
            return None
        self._base = stacked[-1]
        self._base_s = np.full(len(self._base), times_s[-1])
        return change / elapsed[:, None]

    def _step(self, time_s: float, count: Floats) -> Floats:
        """Rates of one sample, with every rule."""
        seen = ~np.isnan(count)
        rate, good, tolerated = self._from(self._base, self._base_s, time_s, count, lenient=True)
        late = time_s - self._other_s > DOUBT_S
        self._other[late] = np.nan
        other_rate, other_good, _ = self._from(self._other, self._other_s, time_s, count, lenient=False)
        # Of two values to compare with, the one closer below is the one that this counter grew from.
        use_other = other_good & (~good | (self._other > self._base))
        rate = np.where(use_other, other_rate, np.where(good, rate, np.nan))
        # Exactly zero, soon after a fall, is no news of a counter at rest.
        rate[~use_other & (count == 0) & ~np.isnan(self._other)] = np.nan
        broken = seen & ~good & ~use_other & ~np.isnan(self._base)
        self.implausible += int(np.count_nonzero(broken & (count > self._base)))
        self._other_s = np.where(broken & np.isnan(self._other), self._base_s, self._other_s)
        self._other = np.where(broken & np.isnan(self._other), self._base, self._other)
        self._other[use_other] = np.nan
        moved = seen & ~(tolerated & good & ~use_other)
        self._base = np.where(moved, count, self._base)
        self._base_s = np.where(seen, time_s, self._base_s)
        self._odd = not np.isnan(self._other).all() or not (self._base_s == self._base_s[0]).all()
        return rate

    def _from(
        self, base: Floats, base_s: Floats, time_s: float, count: Floats, *, lenient: bool
    ) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
        """Rates since `base`, where they are plausible, and where a fall was let pass as standing still.

        Only the last value, which is `lenient`, explains a fall: by a counter that may fall, or one that came round.
        """
        elapsed = time_s - base_s
        change = count - base
        tolerated = (change < 0) & (change >= -self._falls) & lenient
        wrapped = change + self._wrap
        round_ = (change < 0) & (wrapped >= 0) & (wrapped < self._wrap / 2) & lenient
        change = np.where(tolerated, 0.0, np.where(round_, wrapped, change))
        good = (elapsed > 0) & (change >= 0) & (change <= self._limit * (elapsed + SLACK_S))
        return change / np.where(elapsed > 0, elapsed, np.nan), good, tolerated


def columns(positions: list[int]) -> NDArray[np.intp] | slice:
    """What picks these columns of a matrix: a slice where they are neighbours, which copies nothing."""
    first = positions[0] if positions else 0
    if positions == list(range(first, first + len(positions))):
        return slice(first, first + len(positions))
    return np.array(positions, np.intp)


def round_mantissa(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """`values` to 12 bits of mantissa, so that equal work in unequal intervals compresses; relative error ≤ 2^-13.

    Rounds half to even on the bits themselves; NaN stays NaN.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    kept = bits >> SHIFT
    kept &= ONE
    kept += bits
    kept += HALF
    kept &= KEPT
    rounded = kept.view(np.float32)
    rounded[np.isnan(values)] = np.nan
    return rounded
