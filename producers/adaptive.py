"""Adaptive sampling: a quiet host is sampled less often, and at once often again when something happens."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from producers.collector import Layout
from producers.frame import Frame

log = logging.getLogger(__name__)

NS: Final = 1e-9
QUIET_S: Final = 30.0
MEMORY_S: Final = 60.0
FACTOR: Final = 3.0
SUSPECT_S: Final = 15.0
LONGEST_QUIET_S: Final = 3600.0
"""Averages over a longer period are smoother, and extremes of fewer samples lower, so that falling slow may itself look
strange. When an episode follows within SUSPECT_S, the next fall takes twice as long, up to this.
"""


@dataclass(frozen=True, slots=True)
class Indicator:
    """What is looked at: the sum over the instances of some metrics that one collector reads.

    counter  whether it counts up, so that its rate is what matters
    scale    from raw value to the unit of `floor` and `ceiling`
    floor    what is never activity
    ceiling  what always is, whatever the host is used to
    """

    metrics: tuple[str, ...]
    counter: bool
    scale: float
    floor: float
    ceiling: float


BUSY: Final = tuple(f"cpu.time.{name}" for name in ("user", "nice", "system", "irq", "softirq", "steal"))
INDICATORS: Final[tuple[Indicator, ...]] = (
    # Cores, stalled shares of the time, sectors of 512 bytes as MB/s, MB/s, tasks, %.
    Indicator(BUSY, True, 0.01, 0.4, 1.0),
    Indicator(("cpu.psi.some",), True, 1e-6, 0.05, 0.15),
    Indicator(("mem.psi.some",), True, 1e-6, 0.01, 0.05),
    Indicator(("io.psi.some",), True, 1e-6, 0.05, 0.15),
    Indicator(("disk.read_sectors", "disk.write_sectors"), True, 512e-6, 2.0, 20.0),
    Indicator(("net.rx_bytes", "net.tx_bytes"), True, 1e-6, 1.0, 10.0),
    Indicator(("cpu.procs_running",), False, 1.0, 4.0, 8.0),
    Indicator(("cpu.procs_blocked",), False, 1.0, 1.0, 4.0),
    Indicator(("gpu.util",), False, 1.0, 5.0, 5.0),
)


class _Watch:
    """An indicator at work: knows the value before, and the level of quiet times."""

    def __init__(self, indicator: Indicator) -> None:
        self.indicator = indicator
        self._layout: Layout | None = None
        self._columns: Sequence[int] = ()
        self._before = math.nan
        self._before_ns = 0
        self._level = math.nan

    def value(self, reading: tuple[int, Layout, list[float]] | None) -> float:
        """Present value; NaN when it is not known."""
        if reading is None:
            self._before = math.nan
            return math.nan
        time_ns, layout, values = reading
        if layout is not self._layout:
            # Other instances make another sum.
            names = self.indicator.metrics
            self._columns = [index for index, (metric, _) in enumerate(layout.channels) if metric in names]
            self._layout, self._before = layout, math.nan
        present = [values[index] for index in self._columns if values[index] == values[index]]
        total = sum(present) * self.indicator.scale if present else math.nan
        if not self.indicator.counter:
            return total
        elapsed_s, change = (time_ns - self._before_ns) * NS, total - self._before
        if elapsed_s <= 0:
            return math.nan
        self._before, self._before_ns = total, time_ns
        return change / elapsed_s if change >= 0 else math.nan

    def active(self, value: float) -> bool:
        """Whether `value` is more than this host's quiet."""
        usual = 0.0 if math.isnan(self._level) else FACTOR * self._level
        return value > min(max(self.indicator.floor, usual), self.indicator.ceiling)

    def settle(self, value: float, elapsed_s: float) -> None:
        """Take `value` for a part of the quiet level."""
        if math.isnan(value):
            return
        share = 1.0 if math.isnan(self._level) else min(elapsed_s / MEMORY_S, 1.0)
        self._level = value if share == 1.0 else self._level + share * (value - self._level)


class Pace:
    """Chooses the sampling period of a frame for every second: that of the frame as it is now, or `quiet_ms`.

    One look at activity is enough for the short period, QUIET_S without any are needed for the long one.
    A host of which not even the processors' time is known counts as active.

    attention  whether something about this host, such as an open episode, asks for a close look
    """

    def __init__(
        self, frame: Frame, quiet_ms: int, attention: Callable[[], bool] = lambda: False, *, quiet_s: float = QUIET_S
    ) -> None:
        self._frame = frame
        self._fast_ms = frame.period_ms
        self._quiet_ms = quiet_ms
        self._attention = attention
        self._quiet_s = quiet_s
        self._watches = [_Watch(indicator) for indicator in INDICATORS]
        self._patience_s = quiet_s
        self._fell_ns: int | None = None
        self._since_ns: int | None = None
        self._before_ns = 0
        self._why = ""

    @property
    def slow(self) -> bool:
        """Whether the long period is in force."""
        return self._frame.period_ms != self._fast_ms

    def look(self, now_ns: int) -> None:
        """Judge what has been read by monotonic `now_ns`: at every sample while they are few, else once a second."""
        elapsed_s = (now_ns - self._before_ns) * NS
        self._before_ns = now_ns
        values = [watch.value(self._frame.latest(watch.indicator.metrics[0])) for watch in self._watches]
        busy = [watch for watch, value in zip(self._watches, values, strict=True) if watch.active(value)]
        if busy or math.isnan(values[0]):
            self._since_ns = None
            self._why = ", ".join(watch.indicator.metrics[0] for watch in busy) or "nothing is known of the processors"
            return
        for watch, value in zip(self._watches, values, strict=True):
            watch.settle(value, elapsed_s)
        if self._since_ns is None:
            self._since_ns = now_ns

    def choose(self, now_ns: int) -> int:
        """Period for the second that begins now, ms, after a look at its first sample."""
        attention = self._attention()
        quiet = self._since_ns is not None and (now_ns - self._since_ns) * NS >= self._patience_s and not attention
        period_ms = self._quiet_ms if quiet else self._fast_ms
        if period_ms < self._frame.period_ms:
            self._rise(now_ns, attention=attention)
        elif period_ms > self._frame.period_ms:
            self._fell_ns = now_ns
            log.info("quiet: sampling every %d ms", period_ms)
        if attention and self._since_ns is not None:
            self._since_ns = now_ns
        return period_ms

    def _rise(self, now_ns: int, *, attention: bool) -> None:
        assert self._fell_ns is not None
        calm_s = (now_ns - self._fell_ns) * NS
        if attention and self._since_ns is not None and calm_s < SUSPECT_S:
            self._patience_s = min(2 * self._patience_s, LONGEST_QUIET_S)
        elif calm_s > self._patience_s:
            self._patience_s = self._quiet_s
        why = "an episode is open" if attention else self._why
        log.info("sampling every %d ms again: %s", self._fast_ms, why)
