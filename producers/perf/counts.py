"""Running sums of what counters counted, scaled for the time that they shared with others, and what is made of them.

When more is to be counted than there are counters, the kernel lets groups take turns. What a group would have counted
is estimated from an interval between readings in which it ran: d count * d enabled / d running, perf-stat's scaling. A
group that did not run at all says nothing. The sums are of estimates of single intervals, because a factor over the
whole life of a counter would let the past bend the present.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.perf.events import APERF, MPERF, TSC
from producers.perf.kernel import Event

Floats = NDArray[np.float64]

WORD: Final = 8
HEAD: Final = 3
OF_CORES: Final = "cpu.perf."
RUNNING_PCT: Final = "cpu.perf.running_pct"
BUSY_MHZ: Final = "cpu.freq.busy_mhz"
BUSY_PCT: Final = "cpu.freq.busy_tsc_pct"
TICKS_PER_NS_TO_MHZ: Final = 1e3


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A group that counts: descriptors of `events`, the first of which reads them all."""

    instance: str
    events: tuple[Event, ...]
    descriptors: tuple[int, ...]
    core: bool

    @property
    def size(self) -> int:
        """Bytes of a reading: number of counters, time enabled, time running, counts."""
        return WORD * (HEAD + len(self.events))


class Counts:
    """From readings of `opened` groups, one after the other, to values of `channels`.

    A counter's sum begins at 0 with its first reading and goes on from `before`, the object for the groups opened until
    now. Metrics of the cores' counters have all cores as instances, so that ratios can be made of them.
    """

    def __init__(self, opened: Sequence[Opened], before: Counts | None = None) -> None:
        self.opened = tuple(opened)
        columns = [(group, event) for group in self.opened for event in group.events]
        sizes = [len(group.events) for group in self.opened]
        starts = np.cumsum([0, *(HEAD + size for size in sizes)])[:-1]
        self._heads = starts
        self._count_at = np.array(
            [s + HEAD + k for s, size in zip(starts, sizes, strict=True) for k in range(size)], int
        )
        self._group_of = np.repeat(np.arange(len(sizes)), sizes)
        self._first = {group: int(first) for group, first in zip(self.opened, np.cumsum([0, *sizes])[:-1], strict=True)}
        # Count, time enabled, time running at the last reading in which the counter had run; -1 before the first.
        self._last = np.full((3, len(columns)), -1, np.int64)
        self._sums = np.zeros(len(columns))
        self._times = np.full((2, len(sizes)), -1, np.int64)
        if before is not None:
            self._go_on(before)
        self._lay_out(columns)

    def _go_on(self, before: Counts) -> None:
        groups = {group: index for index, group in enumerate(before.opened)}
        for index, group in enumerate(self.opened):
            if group in groups:
                here, there, size = self._first[group], before._first[group], len(group.events)
                self._last[:, here : here + size] = before._last[:, there : there + size]
                self._sums[here : here + size] = before._sums[there : there + size]
                self._times[:, index] = before._times[:, groups[group]]

    def _lay_out(self, columns: Sequence[tuple[Opened, Event]]) -> None:
        cores = list(dict.fromkeys(group.instance for group, event in columns if event.metric.startswith(OF_CORES)))
        found: dict[str, dict[str, None]] = {}
        for group, event in columns:
            found.setdefault(event.metric, {})[group.instance] = None
        clocks = [found.pop(metric, {}) for metric in (TSC, APERF, MPERF)]
        shared = list(dict.fromkeys(group.instance for group in self.opened if group.core))
        channels = [
            (metric, instance)
            for metric in sorted(found, key=lambda metric: not metric.startswith(OF_CORES))
            for instance in (cores if metric.startswith(OF_CORES) else found[metric])
        ]
        channels += [(RUNNING_PCT, core) for core in shared]
        self._clocked = [core for core in clocks[0] if core in clocks[1] and core in clocks[2]]
        channels += [(metric, core) for metric in (BUSY_MHZ, BUSY_PCT) for core in self._clocked]
        self.channels: tuple[tuple[str, str], ...] = tuple(channels)
        place = {channel: index for index, channel in enumerate(channels)}
        self._counted = np.array([event.metric not in (TSC, APERF, MPERF) for _, event in columns], bool)
        kept = [(group, event) for group, event in columns if event.metric not in (TSC, APERF, MPERF)]
        self._to = np.array([place[event.metric, group.instance] for group, event in kept], int)
        self._scale = np.array([event.scale for _, event in kept])
        self._filled = np.zeros(len(channels), bool)
        self._filled[self._to] = True
        position = {(event.metric, group.instance): index for index, (group, event) in enumerate(columns)}
        self._clock_at = np.array(
            [[position[metric, core] for core in self._clocked] for metric in (TSC, APERF, MPERF)], int
        ).reshape(3, -1)
        self._shared = np.array([index for index, group in enumerate(self.opened) if group.core], int)
        order = {core: index for index, core in enumerate(shared)}
        self._core_of = np.array([order[self.opened[index].instance] for index in self._shared], int)
        self._cores = len(shared)

    def __call__(self, words: bytes) -> tuple[Floats, tuple[Opened, ...]]:
        """Values of the channels, NaN where absent, and groups that are dead: whose time stands still.

        `words` are the readings of all groups. A counter falls only if the kernel started it anew: so does its sum.
        """
        raw = np.frombuffer(words, np.int64)
        times = np.stack([raw[self._heads + 1], raw[self._heads + 2]])
        now = np.stack([raw[self._count_at], *times[:, self._group_of]])
        change = (now - self._last).astype(float)
        known = self._last[1] >= 0
        fresh = ~known | (change[0] < 0)
        ran = ~fresh & (change[1] > 0) & (change[2] > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            grown = np.where(ran, change[0] * change[1] / change[2], np.nan)
        self._sums[ran] += grown[ran]
        self._sums[fresh] = 0.0
        moved = fresh | ran
        self._last[:, moved] = now[:, moved]
        sums = np.where(moved & (now[2] > 0), self._sums, np.nan)[self._counted]
        values: Floats = np.bincount(self._to, sums * self._scale, len(self.channels)).astype(float)
        values[~self._filled] = np.nan
        values[len(values) - self._cores - 2 * len(self._clocked) :] = np.concatenate(
            [self._share(times), *self._busy(grown, change[1])]
        )
        dead = (self._times[0] >= 0) & (times[0] == self._times[0])
        self._times = times
        return values, tuple(self.opened[index] for index in np.flatnonzero(dead))

    def starving(self) -> tuple[Opened, ...]:
        """Groups that never got a counter."""
        return tuple(self.opened[index] for index in np.flatnonzero((self._times[0] > 0) & (self._times[1] == 0)))

    def _share(self, times: NDArray[np.int64]) -> Floats:
        """Share of the time that the least scheduled group of each core ran, %."""
        share = np.full(self._cores, np.nan)
        enabled, running = (times - self._times)[:, self._shared]
        measured = (self._times[0, self._shared] >= 0) & (enabled > 0)
        np.fmin.at(share, self._core_of[measured], 100.0 * running[measured] / enabled[measured])
        return share

    def _busy(self, grown: Floats, enabled_ns: Floats) -> tuple[Floats, Floats]:
        """Clock rate while busy, MHz, and share of time busy, %: as turbostat's Bzy_MHz and Busy%."""
        tsc, aperf, mperf = grown[self._clock_at]
        elapsed = enabled_ns[self._clock_at[0]]
        with np.errstate(invalid="ignore", divide="ignore"):
            mhz = np.where(mperf > 0, TICKS_PER_NS_TO_MHZ * tsc / elapsed * aperf / mperf, np.nan)
            return mhz, np.where(tsc > 0, 100.0 * mperf / tsc, np.nan)
