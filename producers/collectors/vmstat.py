"""/proc/vmstat: paging, reclaim, huge pages, NUMA balancing. Names changed over the years: see ALIASES."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from producers.collector import Collector, Reading, only, plain
from producers.collectors.fields import Fields, find_lines
from producers.reading import Texts

NAMES: Final = {
    "vm.compact_stall": "compact_stall",
    "vm.dirtied": "nr_dirtied",
    "vm.hugetlb_alloc_fail": "htlb_buddy_alloc_fail",
    "vm.numa_hint_faults": "numa_hint_faults",
    "vm.numa_hint_faults_local": "numa_hint_faults_local",
    "vm.numa_pages_migrated": "numa_pages_migrated",
    "vm.oom_kill": "oom_kill",
    "vm.pgfault": "pgfault",
    "vm.pgfree": "pgfree",
    "vm.pgmajfault": "pgmajfault",
    "vm.swap_in": "pswpin",
    "vm.swap_out": "pswpout",
    "vm.thp_fault_alloc": "thp_fault_alloc",
    "vm.thp_fault_fallback": "thp_fault_fallback",
    "vm.written": "nr_written",
    "io.pgpgin": "pgpgin",
    "io.pgpgout": "pgpgout",
}
ZONES: Final = ("dma", "dma32", "normal", "high", "movable", "device")
CAUSES: Final = ("kswapd", "direct", "khugepaged", "proactive")


def _zoned(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_{zone}" for zone in ZONES)


# Ways to add up a metric, newest kernels first; the first way of which the file has a name is taken. Newer files also
# split the same pages into anon and file: those are not listed, as they would count twice.
ALIASES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "vm.alloc_stall": (_zoned("allocstall"), ("allocstall",)),
    "vm.pgsteal": (
        tuple(f"pgsteal_{cause}" for cause in CAUSES),
        tuple(name for cause in CAUSES for name in _zoned(f"pgsteal_{cause}")),
        _zoned("pgsteal"),
        ("pgsteal",),
    ),
    "vm.refault": (
        ("workingset_refault_anon", "workingset_refault_file"),
        ("workingset_refault",),
    ),
    "vm.scan_direct": (("pgscan_direct",), _zoned("pgscan_direct")),
    "vm.scan_kswapd": (("pgscan_kswapd",), _zoned("pgscan_kswapd")),
    "vm.thp_split": (("thp_split_page",), ("thp_split",)),
}


def choose(found: Sequence[str]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Names to add up for each metric of the host."""
    known = frozenset(found)
    chosen: dict[tuple[str, str], tuple[str, ...]] = {
        (metric, ""): (name,) for metric, name in NAMES.items() if name in known
    }
    for metric, ways in ALIASES.items():
        for way in ways:
            if names := tuple(name for name in way if name in known):
                chosen[metric, ""] = names
                break
    return chosen


class Vmstat:
    """Parser of /proc/vmstat."""

    def __init__(self) -> None:
        self._fields = Fields(find_lines, choose)

    def __call__(self, texts: Texts) -> Reading:
        """Events and pages."""
        return self._fields(only(texts))


VMSTAT = Collector("vmstat", ("proc/vmstat",), plain(Vmstat), (*NAMES, *ALIASES))
