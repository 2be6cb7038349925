"""Collectors of free blocks, zones, slabs, memory errors, and of nodes and their pools."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from producers.collector import ParseError
from producers.collectors.buddyinfo import BUDDYINFO
from producers.collectors.edac import EDAC
from producers.collectors.numa import NUMA
from producers.collectors.slabs import SLABS
from producers.collectors.zones import ZONES
from tests.unit.producers.readings import parse, values
from tests.unit.producers.sysfstree import LOOK_S, Watched

NODE = "sys/devices/system/node"
HOST_POOLS = "sys/kernel/mm/hugepages"
MC = "sys/devices/system/edac/mc"

SLAB_2 = (
    b"slabinfo - version: 2.1\n"
    b"# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount>"
    b" <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n"
)
SLAB_TAIL = b" : tunables    0    0    0 : slabdata     27     27      0\n"


def test_free_blocks_of_all_zones_and_nodes() -> None:
    text = (
        b"Node 0, zone      DMA      1      0      3 \n"
        b"Node 0, zone   Normal   4381   1093      4 \n"
        b"Node 1, zone   Normal     10     20     30 \n"
    )
    assert parse(BUDDYINFO, text) == {
        ("mem.free_blocks", "order0"): 4392,
        ("mem.free_blocks", "order1"): 1113,
        ("mem.free_blocks", "order2"): 37,
    }
    # 64 KiB pages have more orders.
    wide = parse(BUDDYINFO, b"Node 0, zone  DMA " + b" 7" * 14 + b"\n")
    assert wide["mem.free_blocks", "order13"] == 7


def test_free_blocks_of_a_text_cut_short() -> None:
    whole = b"Node 0, zone DMA 1 2 3\nNode 0, zone Normal 4 5 6\n"
    with pytest.raises(ParseError, match="2 orders in a zone, 3 in another"):
        parse(BUDDYINFO, whole[:-3])
    with pytest.raises(ParseError, match="no zone"):
        parse(BUDDYINFO, b"\n")


def zone(node: int, name: str, free: int, low: int, managed: int | None, *, old: bool = False) -> str:
    """A zone as kernels 2.6 to 6 print it."""
    head = f"Node {node}, zone {name:>8}\n"
    stats = "" if old else "  per-node stats\n      nr_inactive_anon 95612\n      low 5\n"
    boost = "" if old else "        boost    0\n"
    scanned = "        scanned  0 (a: 1 i: 2)\n" if old else ""
    size = "" if managed is None else f"        managed  {managed}\n"
    present = managed if managed is not None else 4000
    return (
        f"{head}{stats}  pages free     {free}\n{boost}        min      8\n        low      {low}\n"
        f"        high     99\n{scanned}        spanned  4095\n        present  {present}\n{size}"
        "        protection: (0, 2039, 31932)\n"
        f"      nr_free_pages {free}\n  pagesets\n    cpu: 0\n              count: 0\n              high:  14\n"
    )


@pytest.mark.parametrize("old", [False, True])
def test_zones_by_node_and_what_they_are_short_of(*, old: bool) -> None:
    text = zone(0, "DMA", 2949, 11, 3973, old=old) + zone(0, "Normal", 700, 1000, 80000, old=old)
    text += zone(1, "Normal", 5000, 900, None, old=old)
    assert parse(ZONES, text.encode()) == {
        ("zone.free", "node0"): 3649,
        ("zone.free", "node1"): 5000,
        ("zone.below_low", "node0"): 300,
        ("zone.below_low", "node1"): 0,
    }


def test_zone_without_memory_is_short_of_nothing() -> None:
    text = zone(0, "Normal", 5000, 900, 80000) + zone(0, "Movable", 0, 32, 0)
    found = parse(ZONES, text.encode())
    assert found["zone.below_low", "node0"] == 0
    assert found["zone.free", "node0"] == 5000


def test_zone_cut_short_is_absent() -> None:
    text = (zone(0, "Normal", 5000, 900, 80000) + zone(1, "Normal", 123456, 900, 80000)).encode()
    cut = text[: text.rindex(b"123456\n        boost") + 3]
    found = parse(ZONES, cut)
    assert found["zone.free", "node0"] == 5000
    assert math.isnan(found["zone.free", "node1"])
    assert math.isnan(found["zone.below_low", "node1"])
    with pytest.raises(ParseError):
        parse(ZONES, text[:40])


def test_node_that_is_added_and_removed() -> None:
    parser = ZONES.parser()
    one, two = zone(0, "Normal", 5, 1, 9).encode(), zone(1, "Normal", 6, 1, 9).encode()
    nodes = [{node for _, node in values(parser({"proc/zoneinfo": text}))} for text in (one, one + two, two)]
    assert nodes == [{"node0"}, {"node0", "node1"}, {"node1"}]


def slab(name: str, active: int, room: int, size: int) -> bytes:
    """A row of version 2."""
    return f"{name:<17} {active:>6} {room:>6} {size:>6}   32    2".encode() + SLAB_TAIL


def test_slabs_of_version_2() -> None:
    text = SLAB_2 + slab("dentry", 70_000, 80_000, 192) + slab("tw_sock_TCP", 704, 864, 256)
    # A name with blanks, and parts of a debugging kernel.
    text += slab("big one (x)", 5, 1024, 8192).replace(b"\n", b" : globalstat 1 2 3 : cpustat 4 5\n")
    assert parse(SLABS, text) == {
        ("slab.objects", ""): 70_709,
        ("slab.size", "dentry"): 15_000,
        ("slab.size", "big one (x)"): 8192,
    }


@pytest.mark.parametrize("header", [b"slabinfo - version: 1.1\n", b"slabinfo - version: 1.1 (SMP)\n"])
def test_slabs_of_version_1(header: bytes) -> None:
    smp = b" :  252  126" if b"SMP" in header else b""
    text = header + b"kmem_cache            60     78    100    2    2    1" + smp + b"\n"
    text += b"inode_cache         2000   4096   1024  900 1000    1" + smp + b"\n"
    assert parse(SLABS, text) == {("slab.objects", ""): 2060, ("slab.size", "inode_cache"): 4096}


def test_slabs_without_sizes() -> None:
    assert parse(SLABS, b"slabinfo - version: 1.0\nkmem_cache 29 42\ninode 5 6\n") == {("slab.objects", ""): 34}


@pytest.mark.parametrize("text", [b"\n", b"slabinfo - version: 3.0\na 1 2 3 4 5\n", SLAB_2, SLAB_2 + b"dentry 5 6\n"])
def test_slabs_that_cannot_be_used(text: bytes) -> None:
    with pytest.raises(ParseError):
        parse(SLABS, text)


def test_largest_slabs_stay_until_another_is_twice_as_large() -> None:
    parser = SLABS.parser()

    def shown(sizes: dict[str, int]) -> set[str]:
        rows = b"".join(slab(name, 1, kilobytes, 1024) for name, kilobytes in sizes.items())
        found = values(parser({"proc/slabinfo": SLAB_2 + rows}))
        return {name for metric, name in found if metric == "slab.size"}

    sizes = {f"cache-{index:02}": 10_000 + index for index in range(12)}
    first = shown(sizes)
    assert first == {f"cache-{index:02}" for index in range(2, 12)}
    # One that grows past others a little does not push them out; one that leaks does, and what is gone makes room.
    assert shown(sizes | {"cache-00": 15_000}) == first
    leaking = shown(sizes | {"cache-00": 50_000})
    assert leaking == first - {"cache-02"} | {"cache-00"}
    del sizes["cache-11"]
    assert shown(sizes | {"cache-00": 50_000}) == leaking - {"cache-11"} | {"cache-02"}


def test_memory_errors_by_controller(tmp_path: Path) -> None:
    host = Watched(EDAC, tmp_path)
    host.write({f"{MC}/mc0/ce_count": "7\n", f"{MC}/mc0/ue_count": "0\n", f"{MC}/mc0/ce_noinfo_count": "2\n"})
    host.write({f"{MC}/mc0/csrow0/ce_count": "3\n", f"{MC}/mc0/dimm0/dimm_ce_count": "4\n"})
    host.write({f"{MC}/mc10/ce_count": "1\n"})
    assert host.read() == {("edac.ce", "mc0"): 7, ("edac.ue", "mc0"): 0, ("edac.ce", "mc10"): 1}
    host.rates()
    host.write({f"{MC}/mc0/ce_count": "10\n"})
    assert host.rates()["edac.ce", "mc0"] == 3
    # `reset_counters` was written to.
    host.write({f"{MC}/mc0/ce_count": "0\n"})
    assert math.isnan(host.rates()["edac.ce", "mc0"])


def test_memory_errors_of_rows_and_modules_where_there_is_no_total(tmp_path: Path) -> None:
    host = Watched(EDAC, tmp_path)
    host.write({f"{MC}/mc0/csrow0/ce_count": "3\n", f"{MC}/mc0/csrow1/ce_count": "4\n"})
    host.write({f"{MC}/mc0/ce_noinfo_count": "10\n", f"{MC}/mc0/dimm0/dimm_ce_count": "7\n"})
    host.write({f"{MC}/mc1/dimm0/dimm_ue_count": "1\n", f"{MC}/mc1/dimm1/dimm_ue_count": "1\n"})
    assert host.read() == {("edac.ce", "mc0"): 17, ("edac.ue", "mc1"): 2}


def test_controller_that_goes(tmp_path: Path) -> None:
    host = Watched(EDAC, tmp_path)
    host.write({f"{MC}/mc{index}/ce_count": "5\n" for index in (0, 1)})
    assert len(host.read()) == 2
    host.remove(f"{MC}/mc1/ce_count")
    assert host.read(LOOK_S) == {("edac.ce", "mc0"): 5}


def test_pools_of_a_host_without_nodes(tmp_path: Path) -> None:
    host = Watched(NUMA, tmp_path)
    for name, text in (("nr_hugepages", "2000"), ("free_hugepages", "100"), ("surplus_hugepages", "4")):
        host.write({f"{HOST_POOLS}/hugepages-2048kB/{name}": f"{text}\n"})
    host.write({f"{HOST_POOLS}/hugepages-1048576kB/nr_hugepages": "2048kB\n"})
    found = host.read()
    assert math.isnan(found.pop(("numa.hugepages_total", "1048576kB")))
    assert found == {
        ("numa.hugepages_total", "2048kB"): 2000,
        ("numa.hugepages_free", "2048kB"): 100,
        ("numa.hugepages_surplus", "2048kB"): 4,
    }
    # Pools of nodes say all that those of the host do.
    host.write({f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages": "1500\n"})
    assert host.read(LOOK_S) == {("numa.hugepages_total", "node0/2048kB"): 1500}


@pytest.mark.parametrize(
    "text", ["workingset_refault 30\n", "workingset_refault_anon 10\nworkingset_refault_file 20\n"]
)
def test_refaults_of_a_node(tmp_path: Path, text: str) -> None:
    host = Watched(NUMA, tmp_path)
    host.write({f"{NODE}/node0/vmstat": f"nr_free_pages 623792\n{text}numa_hit 5\nnuma_other 6\n"})
    host.write({f"{NODE}/node0/numastat": "numa_hit 7\nnuma_miss 0\nother_node 9\n"})
    host.write({f"{NODE}/node1/vmstat": "numa_hit 5\nnuma_miss 2\nnuma_foreign 3\nnuma_local 4\nnuma_other 6\n"})
    # Allocations come from numastat, and from vmstat where there is none.
    assert host.read() == {
        ("numa.refault", "node0"): 30,
        ("numa.hit", "node0"): 7,
        ("numa.miss", "node0"): 0,
        ("numa.other_node", "node0"): 9,
        ("numa.hit", "node1"): 5,
        ("numa.miss", "node1"): 2,
        ("numa.foreign", "node1"): 3,
        ("numa.other_node", "node1"): 6,
    }
    host.remove(f"{NODE}/node0/numastat")
    assert host.read(LOOK_S)["numa.hit", "node0"] == 5


def test_lines_of_a_node_that_come_and_go(tmp_path: Path) -> None:
    host = Watched(NUMA, tmp_path)
    host.write({f"{NODE}/node0/meminfo": "Node 0 MemFree: 4 kB\nNode 0 MemUsed: 5 kB\n"})
    assert host.read() == {("numa.mem_free", "node0"): 4, ("numa.mem_used", "node0"): 5}
    host.write({f"{NODE}/node0/meminfo": "Node 0 MemUsed: 6 kB\n"})
    assert host.read() == {("numa.mem_used", "node0"): 6}
