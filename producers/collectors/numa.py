"""/sys/devices/system/node: memory, allocations and huge pages of each NUMA node.

/proc/meminfo knows huge pages of the default size only, so pools are read from here: one channel a node and size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from producers.collector import Collector, Layout, Reading, number, plain
from producers.collectors.fields import Fields, Found, find_lines
from producers.reading import Texts

NODE: Final = "sys/devices/system/node/node[0-9]*"
MEMORY: Final = {
    "AnonPages": "numa.anon_pages",
    "FilePages": "numa.file_pages",
    "MemFree": "numa.mem_free",
    "MemUsed": "numa.mem_used",
}
ALLOCATIONS: Final = {
    "numa_hit": "numa.hit",
    "numa_miss": "numa.miss",
    "numa_foreign": "numa.foreign",
    "other_node": "numa.other_node",
}
POOLS: Final = {
    "nr_hugepages": "numa.hugepages_total",
    "free_hugepages": "numa.hugepages_free",
    "surplus_hugepages": "numa.hugepages_surplus",
}
PATH: Final = re.compile(r"/(node\d+)/(?:hugepages/hugepages-(\d+kB)/)?(\w+)$")


def find_memory(text: bytes, found: Found) -> tuple[str, ...]:
    """Walks lines `Node N Name: NUMBER [kB]`."""
    position = 0
    for line in text.splitlines():
        tokens = line.split()
        if len(tokens) in (4, 5) and tokens[2].endswith(b":"):
            found(tokens[2][:-1].decode("ascii", "replace"), position + 3, (position + 2,))
        position += len(tokens)
    return ()


def _chooser(names: dict[str, str]) -> Fields:
    def choose(found: Sequence[str]) -> dict[tuple[str, str], tuple[str, ...]]:
        return {(names[name], ""): (name,) for name in found if name in names}

    return Fields(find_memory if names is MEMORY else find_lines, choose)


class Numa:
    """Parser of the files of all nodes."""

    def __init__(self) -> None:
        self._fields: dict[str, Fields] = {}
        self._layouts: list[Layout] = []
        self._paths: tuple[str, ...] = ()
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Sizes in kB, allocations in pages, pools in pages of their size."""
        values: list[float] = []
        layouts: list[Layout] = []
        for path, text in texts.items():
            if "/hugepages/" in path:
                values.append(number(text))
                continue
            fields = self._fields.get(path)
            if fields is None:
                fields = self._fields[path] = _chooser(MEMORY if path.endswith("meminfo") else ALLOCATIONS)
            layout, cells = fields(text)
            layouts.append(layout)
            values += cells
        if tuple(texts) != self._paths or layouts != self._layouts:
            self._paths, self._layouts = tuple(texts), layouts
            self._layout = Layout(tuple(self._channels()))
        return self._layout, values

    def _channels(self) -> list[tuple[str, str]]:
        layouts = iter(self._layouts)
        channels: list[tuple[str, str]] = []
        for path in self._paths:
            match = PATH.search(path)
            assert match is not None, path
            node, size, name = match.groups()
            if size:
                channels.append((POOLS[name], f"{node}/{size}"))
            else:
                channels += [(metric, node) for metric, _ in next(layouts).channels]
        return channels


NUMA = Collector(
    "numa",
    (
        f"{NODE}/meminfo",
        f"{NODE}/numastat",
        *(f"{NODE}/hugepages/hugepages-*kB/{name}" for name in POOLS),
    ),
    plain(Numa),
    (*MEMORY.values(), *ALLOCATIONS.values(), *POOLS.values()),
    every_ms=1000,
)
