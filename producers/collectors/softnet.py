"""/proc/net/softnet_stat: packets of each CPU's receive backlog, in hexadecimal.

Kernels print 9 to 15 columns; from 13 on, the 13th is the CPU. Older ones have a row for each online CPU, in order.
"""

from __future__ import annotations

from typing import Final

from producers.collector import Collector, Layout, ParseError, Reading, plain
from producers.reading import Texts

STAT: Final = "proc/net/softnet_stat"
ONLINE: Final = "sys/devices/system/cpu/online"
METRICS: Final = ("softnet.processed", "softnet.dropped", "softnet.time_squeeze")


class Softnet:
    """Parser of softnet_stat, with the list of online CPUs where rows do not name theirs."""

    def __init__(self) -> None:
        self._cpus: list[int] = []
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Packets, drops and squeezes, CPU by CPU."""
        if STAT not in texts:
            raise ParseError("no softnet_stat")
        rows = [row for line in texts[STAT].splitlines() if len(row := line.split()) >= 3]
        if not rows:
            raise ParseError("no row with three columns")
        if all(len(row) >= 13 for row in rows):
            cpus = [int(row[12], 16) for row in rows]
        else:
            cpus = cpu_list(texts[ONLINE]) if ONLINE in texts else list(range(len(rows)))
            if len(cpus) != len(rows):
                raise ParseError(f"{len(rows)} rows without CPU numbers for {len(cpus)} online CPUs")
        if len(set(cpus)) != len(cpus):
            raise ParseError("two rows for one CPU")
        if cpus != self._cpus:
            self._cpus = cpus
            self._layout = Layout(tuple((metric, f"cpu{cpu}") for cpu in cpus for metric in METRICS))
        return self._layout, [int(cell, 16) for row in rows for cell in row[:3]]


def cpu_list(text: bytes) -> list[int]:
    """CPUs in a list such as 0-3,8. Raises ValueError for anything else."""
    cpus: list[int] = []
    for part in text.strip().split(b","):
        first, _, last = part.partition(b"-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


# The counters are unsigned 32 bit in every kernel.
SOFTNET = Collector("softnet", (STAT, ONLINE), plain(Softnet), METRICS, wraps=dict.fromkeys(METRICS, 2.0**32))
