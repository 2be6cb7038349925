"""/proc/zoneinfo: free pages of each node, and how many it is short of its low watermarks.

Below the low watermark of a zone the kernel begins to reclaim. Only the lines after `pages free` are of interest, which
have been there since 2.6; the rest, with a paragraph a CPU, is most of the text.
"""

from __future__ import annotations

import math
import re
from typing import Final

from producers.collector import NAN, Collector, Layout, ParseError, Parser, Reading, number, only, plain
from producers.reading import Texts

NODE: Final = re.compile(rb"(\d+), zone")
# Long enough for the amounts of a zone, each on a line of its own.
ENOUGH: Final = 400
SIZES: Final = (b"managed", b"present")


class Zones:
    """Parser of /proc/zoneinfo."""

    def __init__(self) -> None:
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Pages, by node: free ones, then missing ones."""
        free: dict[str, float] = {}
        short: dict[str, float] = {}
        for zone in only(texts).split(b"Node ")[1:]:
            node = NODE.match(zone)
            start = zone.find(b"pages free ")
            if not node or start < 0:
                continue
            name = f"node{int(node[1])}"
            amounts = _amounts(zone[start + len(b"pages ") : start + ENOUGH])
            low = amounts.get(b"low", NAN)
            # A number at the very end of a text may have lost digits.
            pages = NAN if math.isnan(low) else amounts[b"free"]
            # A zone without memory has a watermark in some kernels all the same.
            empty = next((amounts[size] for size in SIZES if size in amounts), NAN) == 0
            free[name] = free.get(name, 0.0) + pages
            short[name] = short.get(name, 0.0) + (0.0 if empty or pages >= low else low - pages)
        if not free:
            raise ParseError("no zone")
        channels = (*(("zone.free", name) for name in free), *(("zone.below_low", name) for name in short))
        if channels != self._layout.channels:
            self._layout = Layout(channels)
        return self._layout, [*free.values(), *short.values()]


def _amounts(text: bytes) -> dict[bytes, float]:
    """Numbers by name, of lines with a name and a number."""
    found: dict[bytes, float] = {}
    for line in text.splitlines():
        tokens = line.split()
        if len(tokens) != 2:
            break
        found[tokens[0]] = number(tokens[1])
    return found


def _parser() -> Parser:
    return Zones()


ZONES = Collector("zones", ("proc/zoneinfo",), plain(_parser), ("zone.free", "zone.below_low"), every_ms=1000)
