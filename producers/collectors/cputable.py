"""Tables with one column a CPU: /proc/interrupts and /proc/softirqs.

/proc/interrupts is the dearest file of all (2 ms to parse with 96 CPUs), and few of its rows move in 100 ms: raw rows
are compared with those of the last sample, and only what changed is parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import add, ne, sub

from producers.collector import Layout, ParseError, Reading, only
from producers.reading import Texts


@dataclass(slots=True)
class Row:
    """A row: its label with the colon, the text after its counts, the metrics it adds to, its counts."""

    prefix: bytes
    suffix: bytes
    metrics: Sequence[str]
    counts: list[int]


class CpuTable:
    """Parser of such a table. `classify` says, from label and the words after the counts, which metrics a row adds to.

    CPU ids come from the header, which leaves out CPUs that are offline. `rows` are those of the last sample; the list
    is a new one when the table was learnt anew, and so is the list of counts of a row that moved.
    """

    def __init__(self, classify: Callable[[str, str], Sequence[str]]) -> None:
        self._classify = classify
        self._lines: list[bytes] = []
        self.rows: list[Row | None] = []
        self._cpus = 0
        self._sums: dict[str, list[int]] = {}
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Counts, metric by metric."""
        lines = only(texts).split(b"\n")
        if len(lines) != len(self._lines) or lines[0] != self._lines[0] or not self._update(lines):
            self._learn(lines)
        self._lines = lines
        values: list[float] = []
        for counts in self._sums.values():
            values += counts
        return self._layout, values

    def _update(self, lines: list[bytes]) -> bool:
        """Take over the rows that changed; False when the table has to be learnt again."""
        rows, cpus, sums = self.rows, self._cpus, self._sums
        for index in compress(count(), map(ne, lines, self._lines)):
            row = rows[index]
            line = lines[index]
            if row is None or not line.startswith(row.prefix):
                return False
            if not row.metrics:
                continue
            tokens = line[len(row.prefix) :].split(None, cpus)
            if b"".join(tokens[cpus:]) != row.suffix:
                return False
            try:
                counts = list(map(int, tokens[:cpus]))
            except ValueError:
                return False
            change = list(map(sub, counts, row.counts))
            for metric in row.metrics:
                sums[metric] = list(map(add, sums[metric], change))
            row.counts = counts
        return True

    def _learn(self, lines: list[bytes]) -> None:
        self._lines = []
        header = lines[0].split()
        if not header or not all(cpu.startswith(b"CPU") and cpu[3:].isdigit() for cpu in header):
            raise ParseError("no header of CPUs")
        if len(set(header)) < len(header):
            raise ParseError("a CPU has two columns")
        cpus = len(header)
        rows: list[Row | None] = [None]
        sums: dict[str, list[int]] = {}
        flaws = []
        for line in lines[1:]:
            label, colon, tail = line.partition(b":")
            if not colon:
                rows.append(None)
                continue
            name = label.decode("ascii", "replace").strip()
            tokens = tail.split(None, cpus)
            suffix = b"".join(tokens[cpus:])
            metrics = self._classify(name, suffix.decode("utf-8", "replace"))
            counts: list[int] = []
            if metrics:
                try:
                    counts = list(map(int, tokens[:cpus]))
                except ValueError:
                    metrics = ()
                if len(counts) < cpus:
                    # ERR and MIS have one number for the host; whatever else is short is no row of CPUs either.
                    flaws.append(f"{name}: {len(counts)} counts for {cpus} CPUs")
                    metrics = ()
            rows.append(Row(label + colon, suffix, metrics, counts))
            for metric in metrics:
                sums[metric] = list(map(add, sums[metric], counts)) if metric in sums else counts
        self.rows, self._cpus, self._sums = rows, cpus, sums
        names = [f"cpu{int(cpu[3:])}" for cpu in header]
        channels = tuple((metric, name) for metric in sums for name in names)
        if channels != self._layout.channels or tuple(flaws) != self._layout.flaws:
            self._layout = Layout(channels, tuple(flaws))
