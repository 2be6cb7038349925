"""The table of connections that netfilter keeps: how full it is, and what it refused, CPU by CPU."""

from __future__ import annotations

from typing import Final

from producers.collector import NAN, Collector, Layout, ParseError, Reading, number, plain
from producers.collectors.softnet import cpu_list
from producers.reading import Texts

STAT: Final = "proc/net/stat/nf_conntrack"
POSSIBLE: Final = "sys/devices/system/cpu/possible"
SIZES: Final = {
    "proc/sys/net/netfilter/nf_conntrack_count": "conntrack.entries",
    "proc/sys/net/netfilter/nf_conntrack_max": "conntrack.limit",
}
COLUMNS: Final = {
    "drop": "conntrack.drop",
    "early_drop": "conntrack.early_drop",
    "insert_failed": "conntrack.insert_failed",
    "invalid": "conntrack.invalid",
}


class Conntrack:
    """Parser of the sizes, and of the counters: columns by name, in hexadecimal, a row for each possible CPU."""

    def __init__(self) -> None:
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Entries, and packets by CPU."""
        channels = [(metric, "") for path, metric in SIZES.items() if path in texts]
        values = [number(texts[path]) for path in SIZES if path in texts]
        if STAT in texts:
            header, *rows = [line.split() for line in texts[STAT].splitlines() if line.strip()] or [[]]
            names = [name.decode("ascii", "replace") for name in header]
            columns = {metric: names.index(name) for name, metric in COLUMNS.items() if name in names}
            if not columns:
                raise ParseError("no header with the names of columns")
            cpus = cpu_list(texts[POSSIBLE]) if POSSIBLE in texts else list(range(len(rows)))
            if len(rows) > len(cpus):
                raise ParseError(f"{len(rows)} rows for {len(cpus)} possible CPUs")
            for cpu, row in zip(cpus, rows, strict=False):
                # A row that is cut short says nothing of its CPU.
                if len(row) >= len(header):
                    channels += [(metric, f"cpu{cpu}") for metric in columns]
                    values += [hexadecimal(row[column]) for column in columns.values()]
        if not channels:
            raise ParseError("neither sizes nor counters")
        if tuple(channels) != self._layout.channels:
            self._layout = Layout(tuple(channels))
        return self._layout, values


def hexadecimal(token: bytes) -> float:
    """Number in `token`, NaN for any other text."""
    try:
        return int(token, 16)
    except ValueError:
        return NAN


# The counters are unsigned 32 bit in every kernel.
CONNTRACK: Final = Collector(
    "conntrack",
    (STAT, *SIZES, POSSIBLE),
    plain(Conntrack),
    (*SIZES.values(), *COLUMNS.values()),
    every_ms=1000,
    wraps=dict.fromkeys(COLUMNS.values(), 2.0**32),
)
