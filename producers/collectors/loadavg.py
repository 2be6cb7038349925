"""/proc/loadavg: load of 1 and 5 minutes."""

from __future__ import annotations

from producers.collector import Collector, Layout, ParseError, Parser, Reading, only, plain
from producers.reading import Texts

METRICS = ("cpu.load1", "cpu.load5")
LAYOUT = Layout(tuple((metric, "") for metric in METRICS))


def parse(texts: Texts) -> Reading:
    """Loads in `proc/loadavg`."""
    tokens = only(texts).split(None, 2)
    if len(tokens) < 2:
        raise ParseError("fewer than two numbers")
    return LAYOUT, [float(tokens[0]), float(tokens[1])]


def _parser() -> Parser:
    return parse


LOADAVG = Collector("loadavg", ("proc/loadavg",), plain(_parser), METRICS)
