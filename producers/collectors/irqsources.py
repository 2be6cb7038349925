"""The busiest devices in /proc/interrupts by themselves: how many interrupts, and how many of them on one CPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import sub
from typing import Final

from producers.collector import NAN
from producers.collectors.busiest import Busiest
from producers.collectors.cputable import Row

DEVICE: Final = "cpu.irq.device"
COUNT: Final = 8
# Samples between two looks at who is the busiest, and interrupts in that time that make a device worth a channel.
BLOCK: Final = 10
WORTH: Final = 20.0
# Interrupts of a block below which the share of one CPU says nothing.
ENOUGH: Final = 50
LONGEST: Final = 40
TRIGGER: Final = re.compile(r"(?:\d+[- ]?)?(?:edge|level|fasteoi)", re.IGNORECASE)


def source_name(row: Row) -> str:
    """Number and device, such as 27:mlx5_comp0; the number alone where no device is named."""
    index = row.prefix.decode("ascii", "replace").strip().removesuffix(":")
    parts = re.split(r"\s{2,}", row.suffix.decode("utf-8", "replace").strip())
    # Chip and trigger stand before the name of the device, two blanks apart.
    if len(parts) < 2 or TRIGGER.fullmatch(parts[-1]):
        return index
    return f"{index}:{parts[-1].partition('@')[0][:LONGEST]}"


class IrqSources:
    """Follows the rows of a table from sample to sample.

    The busiest are chosen by what came in the last samples, older ones half as much, and at first by all since boot.
    The table replaces the counts of a row that moved, so a row that did not costs nothing.
    """

    def __init__(self) -> None:
        self._busiest = Busiest(COUNT, WORTH)
        self._rows: list[Row | None] = []
        self._sources: dict[str, Row] = {}
        self._before: dict[str, list[int]] = {}
        self._recent: dict[str, float] = {}
        self._samples = 0
        self._shown: list[Row] = []
        self._shares: list[float] = []
        self.channels: tuple[tuple[str, str], ...] = ()

    def __call__(self, rows: list[Row | None]) -> list[float]:
        """Interrupts since boot of those shown, then the share of the busiest CPU in the last samples, %."""
        if rows is not self._rows:
            self._learn(rows)
        else:
            self._samples += 1
            if self._samples == BLOCK:
                self._look()
        return [*(float(sum(row.counts)) for row in self._shown), *self._shares]

    def _learn(self, rows: list[Row | None]) -> None:
        self._rows = rows
        self._sources = {source_name(row): row for row in rows if row is not None and DEVICE in row.metrics}
        total = {name: float(sum(row.counts)) for name, row in self._sources.items()}
        # A device that is new is judged by what it does from now on, unless all are.
        self._recent = {name: self._recent.get(name, 0.0) for name in total} if self._recent else total
        self._before = {name: row.counts for name, row in self._sources.items()}
        self._choose({})

    def _look(self) -> None:
        changes: dict[str, list[int]] = {}
        before, recent = self._before, self._recent
        for name, row in self._sources.items():
            recent[name] /= 2
            if row.counts is not before[name]:
                change = changes[name] = list(map(sub, row.counts, before[name]))
                recent[name] += max(0, sum(change))
                before[name] = row.counts
        self._choose(changes)

    def _choose(self, changes: dict[str, list[int]]) -> None:
        self._samples = 0
        names = self._busiest(self._recent)
        self._shown = [self._sources[name] for name in names]
        self._shares = [_share(changes.get(name, ())) for name in names]
        channels = (
            *(("cpu.irq.source", name) for name in names),
            *(("cpu.irq.source_top_pct", name) for name in names),
        )
        if channels != self.channels:
            self.channels = channels


def _share(change: Sequence[int]) -> float:
    """Share of the busiest CPU, %; NaN for too few interrupts, or after a reset."""
    total = sum(change)
    return 100.0 * max(change) / total if total >= ENOUGH and min(change) >= 0 else NAN
