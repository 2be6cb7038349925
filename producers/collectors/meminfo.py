"""/proc/meminfo: what memory is used for. By name only: kernels and containers leave lines out."""

from __future__ import annotations

from typing import Final

from producers.collector import Collector, Parser, Reading, only, plain
from producers.collectors.fields import Fields, Found, host_metrics
from producers.reading import Texts

NAMES: Final = {
    "mem.active": "Active",
    "mem.anon": "AnonPages",
    "mem.anon_huge": "AnonHugePages",
    "mem.available": "MemAvailable",
    "mem.buffers": "Buffers",
    "mem.cached": "Cached",
    "mem.committed": "Committed_AS",
    "mem.dirty": "Dirty",
    "mem.free": "MemFree",
    "mem.hugetlb": "Hugetlb",
    "mem.inactive": "Inactive",
    "mem.kernel_stack": "KernelStack",
    "mem.mapped": "Mapped",
    "mem.mlocked": "Mlocked",
    "mem.page_tables": "PageTables",
    "mem.shmem": "Shmem",
    "mem.slab": "Slab",
    "mem.slab_reclaimable": "SReclaimable",
    "mem.slab_unreclaimable": "SUnreclaim",
    "mem.swap_free": "SwapFree",
    "mem.total": "MemTotal",
    "mem.writeback": "Writeback",
}


def find(text: bytes, found: Found) -> tuple[str, ...]:
    """Walks lines `Name: NUMBER [kB]`; the table that some vendors put before them is none."""
    position = 0
    for line in text.splitlines():
        tokens = line.split()
        if len(tokens) in (2, 3) and tokens[0].endswith(b":") and tokens[2:] in ([], [b"kB"]):
            found(tokens[0][:-1].decode("ascii", "replace"), position + 1, (position,))
        position += len(tokens)
    return ()


class Meminfo:
    """Parser of /proc/meminfo."""

    def __init__(self) -> None:
        self._fields = Fields(find, host_metrics(NAMES))

    def __call__(self, texts: Texts) -> Reading:
        """Sizes, kB."""
        return self._fields(only(texts))


def _parser() -> Parser:
    return Meminfo()


MEMINFO = Collector("meminfo", ("proc/meminfo",), plain(_parser), tuple(NAMES))
