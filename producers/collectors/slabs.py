"""/proc/slabinfo: objects in the kernel's caches, and the size of the largest caches. Only root may read it.

The kernel walks every cache to answer, and holds a lock meanwhile, so it is rarely asked.
"""

from __future__ import annotations

from typing import Final

from producers.collector import Collector, Layout, ParseError, Parser, Reading, number, only, plain
from producers.collectors.busiest import Busiest
from producers.reading import Texts

LARGEST: Final = 10
# A cache below that leaks nothing that matters yet, kB.
WORTH: Final = 1024.0
# Columns after the name: version 2 ends them with a colon; version 1 has other ones after the first three.
COLUMNS: Final = {b"2": 5, b"1": 6}


class Slabs:
    """Parser of /proc/slabinfo, versions 1 and 2."""

    def __init__(self) -> None:
        self._largest = Busiest(LARGEST, WORTH)
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Active objects of all caches, and sizes in kB: of the objects that a cache has room for."""
        header, _, body = only(texts).partition(b"\n")
        _, found, version = header.partition(b"version:")
        columns = COLUMNS.get(version.strip()[:1])
        if not found or columns is None:
            raise ParseError(f"{header[:60]!r} is no version of slabinfo that is known")
        active: list[float] = []
        sizes: dict[str, float] = {}
        for line in body.splitlines():
            if line.startswith(b"#"):
                continue
            # Names may have blanks in them.
            cells = line.partition(b" : ")[0].rsplit(None, columns)
            if len(cells) <= columns:
                # Version 1.0 knows no sizes.
                cells = line.split()
                if columns != COLUMNS[b"1"] or len(cells) != 3:
                    raise ParseError(f"{line[:60]!r} is cut short")
            active.append(number(cells[1]))
            if len(cells) > 3:
                name = cells[0].decode("utf-8", "replace")
                sizes[name] = sizes.get(name, 0.0) + number(cells[2]) * number(cells[3]) / 1024
        if not active:
            raise ParseError("no cache")
        chosen = self._largest(sizes)
        channels = (("slab.objects", ""), *(("slab.size", name) for name in chosen))
        if channels != self._layout.channels:
            self._layout = Layout(channels)
        return self._layout, [sum(active), *(sizes[name] for name in chosen)]


def _parser() -> Parser:
    return Slabs()


SLABS = Collector("slabs", ("proc/slabinfo",), plain(_parser), ("slab.objects", "slab.size"), every_ms=30_000)
