"""/sys/devices/system/cpu/cpuN/cpufreq: the current frequency of each CPU.

Not clamped to the nominal maximum: a CPU in turbo is above it. Reading may ask the CPU itself, or firmware, so it may
block.
"""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Layout, Reading, number, plain
from producers.reading import Texts

CPU: Final = re.compile(r"/(cpu\d+)/")


class Cpufreq:
    """Parser of the scaling_cur_freq files."""

    def __init__(self) -> None:
        self._paths: tuple[str, ...] = ()
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Frequencies, kHz; a text such as <unknown> is absent."""
        paths = tuple(texts)
        if paths != self._paths:
            self._paths = paths
            names = [match[1] for path in paths if (match := CPU.search(path))]
            self._layout = Layout(tuple(("cpu.freq.current", name) for name in names))
        return self._layout, [number(text) for text in texts.values()]


CPUFREQ = Collector(
    "cpufreq",
    ("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq",),
    plain(Cpufreq),
    ("cpu.freq.current",),
    every_ms=500,
    may_block=True,
)
