"""/proc/schedstat: time that tasks waited for each CPU. The file exists only with CONFIG_SCHEDSTATS."""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Layout, ParseError, Reading, only, plain
from producers.reading import Texts

METRICS: Final = ("cpu.run_delay", "cpu.timeslices")
# cpuN and nine numbers, of which the last two are the wait and the number of time slices.
ROW: Final = re.compile(rb"^(cpu\d+)(?: \d+){7} (\d+) (\d+)", re.MULTILINE)


class Schedstat:
    """Parser of /proc/schedstat."""

    def __init__(self) -> None:
        self._cpus: tuple[bytes, ...] = ()
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Wait in ns and time slices of each CPU."""
        rows = ROW.findall(only(texts))
        if not rows:
            raise ParseError("no CPU row with nine numbers")
        cpus, delays, slices = zip(*rows, strict=True)
        if cpus != self._cpus:
            self._cpus = cpus
            self._layout = Layout(tuple((metric, cpu.decode()) for metric in METRICS for cpu in cpus))
        return self._layout, [*map(int, delays), *map(int, slices)]


SCHEDSTAT = Collector("schedstat", ("proc/schedstat",), plain(Schedstat), METRICS)
