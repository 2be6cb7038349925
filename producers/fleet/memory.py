"""Metrics of subsystem memory. Amounts in kB add up to what the host has."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.fleet.activity import Flow
from producers.fleet.group import Group
from producers.fleet.knobs import Turned
from producers.fleet.profiles import CACHES, ORDERS
from producers.fleet.sheet import Sheet

Floats = NDArray[np.floating[Any]]
PAGE_KB: Final = 4.0
LOW_WATERMARK: Final = 0.0012
"""Share of memory below which the kernel begins to reclaim."""
QUIET: Final = ("vm.hugetlb_alloc_fail", "vm.oom_kill", "numa.hugepages_surplus", "edac.ue")
LARGEST_SHARE: Final = 0.70
"""Share of free memory that lies in blocks of the largest order on a healthy host."""


def fill_memory(group: Group, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    """Set all metrics of the subsystem."""
    sheet.zero(*QUIET)
    free = _amounts(group, flow, knobs, sheet)
    _paging(group, flow, knobs, sheet, free)
    _nodes(group, flow, knobs, sheet, free)
    sheet.finish()
    if "slab.size" in sheet:
        sheet["slab.objects"] = sheet["slab.size"].sum(axis=2, keepdims=True) * 4.2
    sheet.seal()


def total_kb(group: Group) -> float:
    """Memory that the kernel manages, kB: a little less than is built in."""
    return group.profile.memory_gb * 2.0**20 * 0.98


def _amounts(group: Group, flow: Flow, knobs: Turned, sheet: Sheet) -> Floats:
    total = total_kb(group)
    job = 0.28 if group.profile.gpu else 0.62
    reserved = np.clip(knobs["huge_reserved"], 0, 0.8) * total
    tables = total * (0.0012 + 0.004 * knobs["small_pages"])
    reclaimable = total * 0.006 * group.weights("slab", 1) * (1 + sheet.noise("mem.slab_reclaimable"))
    unreclaimable = total * 0.004 * group.weights("sunreclaim", 1) * (1 + sheet.noise("mem.slab_unreclaimable"))
    stack = 18_000.0 + 60_000.0 * flow.working
    rest = total * 0.02
    room = total - reserved - tables - reclaimable - unreclaimable - stack - rest
    anon = total * 0.012 + np.minimum(total * job * group.slow("anon", flow.memory, 6.0), 0.85 * room)
    anon = anon * (1 + sheet.noise("mem.anon"))
    pressure = np.clip(knobs["pressure"], 0, 1)
    anon = anon + pressure * 0.9992 * np.maximum(room - anon, 0)
    left = np.maximum(room - anon, 0)
    cached = np.minimum(total * (0.14 + 0.10 * group.slow("cached", flow.read + flow.write, 40.0)), 0.9 * left)
    cached = cached * (1 - 0.97 * pressure * pressure) * (1 + sheet.noise("mem.cached"))
    buffers = np.minimum(total * 0.0004 * group.weights("buffers", 1), 0.01 * left)
    free: Floats = left - cached - buffers
    dirty = group.slow("dirty", 2_000.0 * flow.live + 0.02 * total * (0.4 * flow.write + knobs["dirtying"]), 4.0)
    dirty = np.minimum(dirty * (1 + sheet.noise("mem.dirty")), 0.4 * cached)
    writeback = (
        0.15 * np.minimum(flow.disk_load.mean(axis=2, keepdims=True), 1) * dirty * (flow.write + knobs["dirtying"])
    )
    shmem = np.minimum(total * 0.008 * flow.working + 9_000, 0.5 * cached)
    huge = np.clip(0.75 - 0.73 * knobs["small_pages"], 0, 1) * np.maximum(anon - total * 0.012, 0)
    swap = group.profile.swap_gb * 2.0**20
    used_swap = group.slow("swap", np.broadcast_to(0.5 * pressure**3 * swap, free.shape), 10.0)
    values: dict[str, Floats | float] = {
        "mem.total": total,
        "mem.free": free,
        "mem.available": np.maximum(free + 0.92 * (cached - shmem) + 0.5 * reclaimable - LOW_WATERMARK * total, 0),
        "mem.anon": anon,
        "mem.anon_huge": huge,
        "mem.cached": cached,
        "mem.buffers": buffers,
        "mem.dirty": dirty,
        "mem.writeback": writeback,
        "mem.shmem": shmem,
        "mem.mapped": 0.25 * shmem + 0.02 * anon + 60_000,
        "mem.slab": reclaimable + unreclaimable,
        "mem.slab_reclaimable": reclaimable,
        "mem.slab_unreclaimable": unreclaimable,
        "mem.page_tables": tables,
        "mem.kernel_stack": stack,
        "mem.hugetlb": reserved,
        "mem.committed": 1.4 * anon + 2e6 * flow.working + 3e5,
        "mem.mlocked": 25_000 + 4e6 * flow.working * bool(group.profile.ports),
        "mem.active": 0.5 * cached + 0.35 * anon,
        "mem.inactive": 0.48 * cached + 0.6 * anon,
        "mem.swap_free": swap - used_swap,
    }
    for name, value in values.items():
        sheet[name] = value
    if "slab.size" in sheet:
        each = group.weights("cache", len(CACHES), 0.4)
        sheet["slab.size"] = 0.55 * (reclaimable + unreclaimable) * each / each.sum(axis=2, keepdims=True)
    return free


def _paging(group: Group, flow: Flow, knobs: Turned, sheet: Sheet, free: Floats) -> None:
    small, cores = knobs["small_pages"], group.profile.cpus
    pressure = np.clip(knobs["pressure"], 0, 1)
    short = np.clip(pressure - 0.4, 0, 1) / 0.6 * flow.live
    written = flow.disk_write.sum(axis=2, keepdims=True) / 4096
    faults = cores * (8 + 60 * flow.working + 900 * flow.input) * (1 + 15 * small) * 0.45 * flow.live
    read = flow.disk_read.sum(axis=2, keepdims=True) / 4096
    thp = (2 + 40 * flow.input) * flow.live
    swapping = short * bool(group.profile.swap_gb)
    values: dict[str, Floats] = {
        "vm.pgfault": faults,
        "vm.pgfree": faults * 1.1 + 0.8 * read,
        "vm.pgmajfault": 0.1 * flow.read + 900 * short,
        "vm.dirtied": written * 1.02 + 20 * flow.live,
        "vm.written": written,
        "vm.alloc_stall": 120 * short,
        "vm.compact_stall": 0.2 * small * thp + 15 * short,
        "vm.pgsteal": 60_000 * short,
        "vm.scan_kswapd": 90_000 * short,
        "vm.scan_direct": 40_000 * short,
        "vm.refault": 0.002 * read + 25_000 * short,
        "vm.swap_out": 8_000 * swapping,
        "vm.swap_in": 2_500 * swapping,
        "vm.thp_fault_alloc": thp * (1 - 0.95 * np.clip(small, 0, 1)),
        "vm.thp_fault_fallback": thp * 0.01 + thp * 8 * small,
        "vm.thp_split": 0.05 * thp + 4 * small + 10 * short,
        "vm.numa_hint_faults": 30 * flow.input + 5_000 * knobs["remote"] * flow.live,
        "vm.numa_hint_faults_local": 27 * flow.input + 900 * knobs["remote"] * flow.live,
        "vm.numa_pages_migrated": 2 * flow.input + 1_200 * knobs["remote"] * flow.live,
        "mem.psi.some": 1e6 * np.clip(0.45 * short + 0.0001, 0, 1),
        "mem.psi.full": 1e6 * np.clip(0.22 * short, 0, 1),
    }
    if group.profile.sockets == 1:
        values |= {name: np.zeros_like(free) for name in values if ".numa_" in name}
    for name, value in values.items():
        sheet[name] = value
    torn = np.clip(0.6 * small + 0.6 * pressure, 0, 0.95)
    orders = np.arange(ORDERS, dtype=np.float32)
    low = (orders[:-1] + 1) / (orders[:-1] + 1).sum() * (1 - LARGEST_SHARE * (1 - torn))
    shares = np.concatenate([low, LARGEST_SHARE * (1 - torn)], axis=2)
    sheet["mem.free_blocks"] = free / PAGE_KB * shares / 2**orders


def _nodes(group: Group, flow: Flow, knobs: Turned, sheet: Sheet, free: Floats) -> None:
    nodes, total = group.profile.sockets, total_kb(group)
    share = group.weights("node", nodes, 0.05)
    share = share / share.sum(axis=2, keepdims=True)
    mine = free * share
    remote = np.clip(knobs["remote"], 0, 1) if nodes > 1 else np.zeros((1, 1, 1), np.float32)
    allocated = 1.2 * sheet["vm.pgfault"] + flow.disk_read.sum(axis=2, keepdims=True) / 4096
    sheet["numa.mem_free"] = mine
    sheet["numa.mem_used"] = total / nodes - mine
    sheet["numa.anon_pages"] = sheet["mem.anon"] * share
    sheet["numa.file_pages"] = (sheet["mem.cached"] + sheet["mem.buffers"]) * share
    sheet["numa.hit"] = allocated * share * (1 - 0.9 * remote)
    sheet["numa.miss"] = allocated * share * 0.9 * remote
    sheet["numa.foreign"] = allocated * share[:, :, ::-1] * 0.9 * remote
    sheet["numa.refault"] = sheet["vm.refault"] * share
    sheet["numa.other_node"] = allocated * share * (0.9 * remote + (0.002 if nodes > 1 else 0.0))
    sheet["zone.free"] = mine / PAGE_KB
    sheet["zone.below_low"] = np.maximum(LOW_WATERMARK * total / nodes - mine, 0) / PAGE_KB
    gib = sheet["mem.hugetlb"] / 2.0**20 / nodes
    pools = np.zeros((*free.shape[:2], 2 * nodes), np.float32)
    pools[:, :, 1::2] = np.rint(gib)
    sheet["numa.hugepages_total"] = pools
    sheet["numa.hugepages_free"] = pools
    if "mem.bw.read" in sheet:
        controllers = len(sheet.instances["controller"])
        busy = flow.compute if not group.profile.gpu else 0.25 * flow.compute + flow.input
        rate = (250 + 9_000 * busy * flow.live) * group.weights("controller", controllers, 0.04)
        sheet["mem.bw.read"] = rate * (1 + 0.2 * remote)
        sheet["mem.bw.write"] = 0.45 * rate + flow.disk_write.sum(axis=2, keepdims=True) / 2.0**20 / controllers
        sheet["edac.ce"] = knobs["memory_errors"]
