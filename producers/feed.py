"""A collector at work: its source, its parser, what it has read of the batch, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np

from producers.collector import Collector, Layout, ParseError, Parser
from producers.matrices import Piece, Plan, first_row
from producers.rates import Rates
from producers.reading import Source, Texts
from producers.source import SECOND_NS

SLOWER: Final = 10
SLOWEST_MS: Final = 60_000
NORMAL, SLOWED, SHED = range(3)
# A reading in so many ms is measured: with another step than that of the batches, so that every row has its turn.
MEASURE_MS: Final = 700


@runtime_checkable
class Elsewhere(Protocol):
    """A source that works in a thread or process of its own and can tell what that costs."""

    def cpu_s(self) -> float:
        """Processor time so far, s."""


@dataclass(slots=True, eq=False)
class Feed:
    """A collector at work.

    own_ms    time between readings as configured, ms; 0 is every sample
    every_ms  time between readings at the present period and level
    level     NORMAL, SLOWED or SHED, the last two to save processor time
    before_s  processor time of sources that this one has replaced
    time_ns   monotonic time of the newest values
    asleep_ns monotonic time until which a source that has nothing on this machine is left alone
    held      newest values of a source that is read less often than batches end, each in the first row of a batch
    """

    collector: Collector
    source: Source
    parser: Parser
    rates: Rates
    own_ms: int
    cpu_clock: Callable[[], int]
    every_ms: int = 0
    level: int = NORMAL
    slot: int = -1
    texts: Texts = field(default_factory=dict)
    values: tuple[Layout, list[float]] | None = None
    time_ns: int = 0
    readings: list[tuple[int, int, Texts]] = field(default_factory=list)
    plans: dict[Layout, Plan] = field(default_factory=dict)
    runs: list[tuple[Layout, list[int], list[int], list[list[float]]]] = field(default_factory=list)
    refused: str = ""
    flaws: int = 0
    notes: tuple[str, ...] = ()
    stride: int = 1
    turn: int = 0
    cost_ns: int = 0
    before_s: float = 0.0
    asleep_ns: int = 0
    held: tuple[Piece, ...] = ()

    @property
    def name(self) -> str:
        """Name of the collector."""
        return self.collector.name

    @property
    def errors(self) -> int:
        """Reads that failed, texts that could not be used, whole or in part, and values beyond belief."""
        return self.source.errors + self.flaws + self.rates.implausible

    def pace(self, period_ms: int) -> None:
        """Go over to a sampling period, and to the level."""
        self.every_ms = max(self.own_ms, period_ms)
        if self.level == SLOWED:
            self.every_ms = min(self.every_ms * SLOWER, max(self.every_ms, SLOWEST_MS))
        self.stride = max(1, MEASURE_MS // self.every_ms)

    def replace(self, source: Source) -> None:
        """Go on with another source."""
        self.flaws += self.source.errors - source.errors
        self.before_s = self.cpu_s() - self.cost_ns * 1e-9
        self.source = source

    def cpu_s(self) -> float:
        """Processor time so far, s: measured now and then, and extrapolated."""
        apart = self.source.cpu_s() if isinstance(self.source, Elsewhere) else 0.0
        return self.cost_ns * 1e-9 + self.before_s + apart

    def hold(self, pieces: Sequence[Piece], count: int) -> None:
        """Keep the newest row of `pieces`, to be told again in batches of `count` rows until the next reading."""
        self.held = ()
        rows = [rows[-1] for _, rows, _, _ in self.runs if rows]
        if rows:
            newest = [Piece(piece.metric, piece.instances, piece.values[rows[-1]]) for piece in pieces]
            self.held = tuple(first_row(piece, count) for piece in newest if not np.isnan(piece.values).all())

    def told_again(self, now_ns: int, count: int) -> tuple[Piece, ...]:
        """What is held, as long as no newer reading is overdue: values that are stale are not passed off as fresh."""
        if self.held and (now_ns - self.time_ns > 1_100_000 * self.every_ms + SECOND_NS or self.level == SHED):
            self.held = ()
        if self.held and len(self.held[0].values) != count:
            self.held = tuple(first_row(replace(piece, values=piece.values[0]), count) for piece in self.held)
        return self.held

    def digest(self) -> None:
        """Parse the texts read so far into runs of one layout: rows, times and values."""
        if not self.readings:
            return
        began = self.cpu_clock()
        for row, time_ns, texts in self.readings:
            if self.values is None or texts != self.texts:
                try:
                    self.values = self.parser(texts)
                except Exception as error:
                    # Whatever a parser makes of a text must not stop the others.
                    self.flaws += 1
                    self.values = None
                    self.refused = str(error) if isinstance(error, ParseError) else f"{type(error).__name__}: {error}"
                    continue
                self.texts = texts
            layout, values = self.values
            self.time_ns = time_ns
            if layout.flaws:
                self.flaws += 1
            if not self.runs or self.runs[-1][0] is not layout:
                self.runs.append((layout, [], [], []))
            _, rows, times, cells = self.runs[-1]
            rows.append(row)
            times.append(time_ns)
            cells.append(values)
        self.readings.clear()
        self.cost_ns += self.cpu_clock() - began
