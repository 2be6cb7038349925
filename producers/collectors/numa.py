"""/sys/devices/system/node: memory, allocations, reclaim and huge pages of each NUMA node.

/proc/meminfo knows huge pages of the default size only, so pools are read from here: one channel a node and size, or
one a size from /sys/kernel/mm where the kernel knows no nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from producers.collector import Collector, Layout, Reading, number, plain
from producers.collectors.fields import Fields, Found, find_lines
from producers.reading import Texts

Chosen: TypeAlias = dict[tuple[str, str], tuple[str, ...]]

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
# The same allocations in a node's vmstat, for kernels whose numastat cannot be read.
FALLBACKS: Final = {
    "numa_hit": "numa.hit",
    "numa_miss": "numa.miss",
    "numa_foreign": "numa.foreign",
    "numa_other": "numa.other_node",
}
REFAULTS: Final = (("workingset_refault_anon", "workingset_refault_file"), ("workingset_refault",))
HOST: Final = "sys/kernel/mm"
PATH: Final = re.compile(r"(?:/(node\d+))?/(?:hugepages/hugepages-(\d+kB)/)?(\w+)$")


def find_memory(text: bytes, found: Found) -> tuple[str, ...]:
    """Walks lines `Node N Name: NUMBER [kB]`."""
    position = 0
    for line in text.splitlines():
        tokens = line.split()
        if len(tokens) in (4, 5) and tokens[2].endswith(b":"):
            found(tokens[2][:-1].decode("ascii", "replace"), position + 3, (position + 2,))
        position += len(tokens)
    return ()


def choose_memory(found: Sequence[str]) -> Chosen:
    """Sizes of a node."""
    return {(MEMORY[name], ""): (name,) for name in found if name in MEMORY}


def choose_allocations(found: Sequence[str]) -> Chosen:
    """Allocations of a node."""
    return {(ALLOCATIONS[name], ""): (name,) for name in found if name in ALLOCATIONS}


def choose_refaults(found: Sequence[str]) -> Chosen:
    """Pages of a node that were reclaimed too early, of a kernel that counts them together or by kind."""
    known = frozenset(found)
    for way in REFAULTS:
        if names := tuple(name for name in way if name in known):
            return {("numa.refault", ""): names}
    return {}


def choose_all(found: Sequence[str]) -> Chosen:
    """Refaults and allocations of a node."""
    return choose_refaults(found) | {(FALLBACKS[name], ""): (name,) for name in found if name in FALLBACKS}


class Numa:
    """Parser of the files of all nodes; of the host's pools where no node has any."""

    def __init__(self) -> None:
        self._paths: tuple[str, ...] = ()
        self._fields: dict[str, tuple[str, Fields]] = {}
        self._pools: dict[str, tuple[str, str]] = {}
        self._layouts: list[Layout] = []
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Sizes in kB, allocations in pages, pools in pages of their size."""
        if tuple(texts) != self._paths:
            self._learn(tuple(texts))
        values = [number(texts[path]) for path in self._pools]
        layouts: list[Layout] = []
        for path, (_, fields) in self._fields.items():
            layout, cells = fields(texts[path])
            layouts.append(layout)
            values += cells
        if layouts != self._layouts:
            self._layouts = layouts
            channels = list(self._pools.values())
            for (node, _), layout in zip(self._fields.values(), layouts, strict=True):
                channels += [(metric, node) for metric, _ in layout.channels]
            self._layout = Layout(tuple(channels))
        return self._layout, values

    def _learn(self, paths: tuple[str, ...]) -> None:
        self._paths, self._layouts = paths, []
        self._fields, self._pools = {}, {}
        of_host: dict[str, tuple[str, str]] = {}
        for path in paths:
            match = PATH.search(path)
            if match is None:
                continue
            node, size, name = match.groups()
            if size and node and name in POOLS:
                self._pools[path] = (POOLS[name], f"{node}/{size}")
            elif size and name in POOLS:
                of_host[path] = (POOLS[name], size)
            elif node and name == "meminfo":
                self._fields[path] = node, Fields(find_memory, choose_memory)
            elif node and name == "numastat":
                self._fields[path] = node, Fields(find_lines, choose_allocations)
            elif node and name == "vmstat":
                beside = f"{path.removesuffix('vmstat')}numastat" in paths
                self._fields[path] = node, Fields(find_lines, choose_refaults if beside else choose_all)
        self._pools = self._pools or of_host
        # Nothing but pools has no layout that could change.
        self._layout = Layout(tuple(self._pools.values()))


NUMA = Collector(
    "numa",
    (
        f"{NODE}/meminfo",
        f"{NODE}/numastat",
        f"{NODE}/vmstat",
        *(f"{place}/hugepages/hugepages-*kB/{name}" for place in (NODE, HOST) for name in POOLS),
    ),
    plain(Numa),
    (*MEMORY.values(), *ALLOCATIONS.values(), "numa.refault", *POOLS.values()),
    every_ms=1000,
)
