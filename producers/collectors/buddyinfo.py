"""/proc/buddyinfo: free blocks of memory of each order, all zones together."""

from __future__ import annotations

from typing import Final

from producers.collector import Collector, Layout, ParseError, Parser, Reading, only, plain
from producers.reading import Texts

# Node 0, zone Normal
WORDS: Final = 4


class Buddyinfo:
    """Parser of rows `Node N, zone NAME` and a count for each order of two pages."""

    def __init__(self) -> None:
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Free blocks by order."""
        rows = []
        for line in only(texts).splitlines():
            tokens = line.split()
            if len(tokens) > WORDS and tokens[0] == b"Node" and tokens[2] == b"zone":
                rows.append(list(map(int, tokens[WORDS:])))
        if not rows:
            raise ParseError("no zone")
        if len(set(map(len, rows))) > 1:
            # A sum over some of the zones would be a wrong number.
            raise ParseError(f"{len(rows[-1])} orders in a zone, {len(rows[0])} in another")
        if len(rows[0]) != len(self._layout.channels):
            self._layout = Layout(tuple(("mem.free_blocks", f"order{order}") for order in range(len(rows[0]))))
        return self._layout, [float(sum(column)) for column in zip(*rows, strict=True)]


def _parser() -> Parser:
    return Buddyinfo()


BUDDYINFO = Collector("buddyinfo", ("proc/buddyinfo",), plain(_parser), ("mem.free_blocks",), every_ms=1000)
