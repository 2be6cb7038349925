"""/proc/stat: times of each CPU, context switches, forks, interrupts, running and blocked tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.collector import Collector, Layout, ParseError, Reading, number, only, plain
from producers.collectors.fields import Fields, Found, host_metrics
from producers.reading import Texts

# The kernel's interface to programs counts in 1/100 s on every architecture that Reveal runs on.
USER_HZ: Final = 100
TIMES: Final = tuple(
    f"cpu.time.{name}" for name in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
)
# Time of guests is part of user time (and of nice, which is the column after), so it is no part of the sum of times.
COLUMNS: Final = (*TIMES, "cpu.time.guest")
HOST: Final = {
    "cpu.interrupts_total": "intr",
    "cpu.context_switches_total": "ctxt",
    "cpu.forks_total": "processes",
    "cpu.procs_running": "procs_running",
    "cpu.procs_blocked": "procs_blocked",
    "cpu.softirqs_total": "softirq",
}
LABEL: Final = re.compile(rb"cpu\d*")
# How far iowait may fall: it is charged to the CPU that a task last waited on, and taken back.
IOWAIT_FALLS_S: Final = 3


class Stat:
    """Parser of /proc/stat."""

    def __init__(self) -> None:
        self._width = 0
        self._labels: list[bytes] = []
        self._aggregates = 0
        self._host = Fields(_find_host, host_metrics(HOST))
        self._host_layout = Layout(())
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Times in ticks, metric by metric, then the host's numbers."""
        text = only(texts)
        cpus, rest = _split(text)
        tokens = cpus.split()
        if tokens[:: self._width or 1] != self._labels or len(tokens) != self._width * len(self._labels):
            tokens = self._learn(cpus)
        host, numbers = self._host(rest)
        if host is not self._host_layout:
            self._host_layout = host
            self._lay_out()
        width = self._width
        values: list[float] = []
        start = self._aggregates * width
        for column in range(1, min(width, len(COLUMNS) + 1)):
            cells = tokens[start + column :: width]
            try:
                # As a list: what an iterator gave before it failed would stay.
                values += list(map(int, cells))
            except ValueError:
                values += map(number, cells)
        return self._layout, values + numbers

    def _learn(self, cpus: bytes) -> list[bytes]:
        rows = [row for line in cpus.splitlines() if len(row := line.split()) > 4 and LABEL.fullmatch(row[0])]
        if not rows:
            raise ParseError("no CPU row")
        labels = [row[0] for row in rows if row[0] != b"cpu"]
        if len(set(labels)) < len(labels):
            raise ParseError("a CPU has two rows")
        self._width = min(map(len, rows))
        self._labels = [row[0] for row in rows]
        # A container's view (lxcfs) may have two lines for all CPUs.
        self._aggregates = self._labels.count(b"cpu")
        rows.sort(key=lambda row: row[0] != b"cpu")
        self._labels = [row[0] for row in rows]
        self._lay_out()
        return [token for row in rows for token in row[: self._width]]

    def _lay_out(self) -> None:
        names = [label.decode("ascii", "replace") for label in self._labels[self._aggregates :]]
        times = COLUMNS[: self._width - 1]
        notes = ("a container's view of the host (two lines for all CPUs)",) if self._aggregates > 1 else ()
        channels = (*((metric, name) for metric in times for name in names), *self._host_layout.channels)
        if channels != self._layout.channels or notes != self._layout.notes:
            self._layout = Layout(channels, notes=notes)


def _split(text: bytes) -> tuple[bytes, bytes]:
    """Rows of CPUs, and the rest with the long list of single interrupts cut out."""
    cpus, _, rest = text.partition(b"\nintr ")
    if not rest:
        end = text.rfind(b"\ncpu")
        end = text.find(b"\n", end + 1)
        return (text, b"") if end < 0 else (text[:end], text[end:])
    first = rest.find(b" ")
    line = rest.find(b"\n")
    total = rest[: first if 0 <= first < line or line < 0 else line]
    return cpus, b"intr " + total + (rest[line:] if line >= 0 else b"")


def _find_host(text: bytes, found: Found) -> tuple[str, ...]:
    position = 0
    for line in text.splitlines():
        tokens = line.split()
        if len(tokens) > 1:
            found(tokens[0].decode("ascii", "replace"), position + 1, (position,))
        position += len(tokens)
    return ()


def derive(rates: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Busy share of each CPU, %: what is neither idle nor waiting for a disk. Guest time is part of user time."""
    present = [rates[metric] for metric in TIMES if metric in rates]
    if "cpu.time.idle" not in rates:
        return {}
    total = np.sum(present, axis=0)
    quiet = rates["cpu.time.idle"] + rates.get("cpu.time.iowait", 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"cpu.busy_pct": np.where(total > 0, 100.0 * (1.0 - quiet / total), np.nan)}


STAT = Collector(
    "stat",
    ("proc/stat",),
    plain(Stat),
    (*COLUMNS, "cpu.busy_pct", *HOST),
    defines="core",
    scales=dict.fromkeys(COLUMNS, 1 / USER_HZ),
    falls={"cpu.time.iowait": IOWAIT_FALLS_S * USER_HZ},
    derive=derive,
)
