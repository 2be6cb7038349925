"""/proc/pressure/*: pressure stall times. `total` alone is used: the averages are too slow for a sample of 100 ms."""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Layout, Reading, plain
from producers.reading import Texts

ROWS: Final = {
    "proc/pressure/cpu": {b"some": "cpu.psi.some"},
    "proc/pressure/irq": {b"full": "cpu.psi.irq_full"},
    "proc/pressure/memory": {b"some": "mem.psi.some", b"full": "mem.psi.full"},
    "proc/pressure/io": {b"some": "io.psi.some", b"full": "io.psi.full"},
}
TOTAL: Final = re.compile(rb"^(some|full) .*?\btotal=(\d+)", re.MULTILINE)


class Pressure:
    """Parser of the four files; each may be missing."""

    def __init__(self) -> None:
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Stall totals, µs."""
        channels: list[tuple[str, str]] = []
        values: list[float] = []
        for path, text in texts.items():
            rows = ROWS[path]
            for name, total in TOTAL.findall(text):
                if name in rows:
                    channels.append((rows[name], ""))
                    values.append(int(total))
        if tuple(channels) != self._layout.channels:
            self._layout = Layout(tuple(channels))
        return self._layout, values


PRESSURE = Collector(
    "pressure", tuple(ROWS), plain(Pressure), tuple(metric for rows in ROWS.values() for metric in rows.values())
)
