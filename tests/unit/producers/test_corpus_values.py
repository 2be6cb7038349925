"""Values of the real files of the corpus, counted once more in the plainest way."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from producers.collectors.buddyinfo import BUDDYINFO
from producers.collectors.edac import EDAC
from producers.collectors.hwmon import HWMON
from producers.collectors.interrupts import INTERRUPTS
from producers.collectors.numa import NUMA
from producers.collectors.powercap import POWERCAP
from producers.collectors.slabs import LARGEST, SLABS
from producers.collectors.thermal import THERMAL
from producers.collectors.throttle import THROTTLE
from producers.collectors.zones import ZONES
from tests.unit.producers.readings import Values, parse, values

pytestmark = pytest.mark.skipif("REVEAL_CORPUS" not in os.environ, reason="REVEAL_CORPUS is not set")

CPU = "sys/devices/system/cpu/cpu0"
RAPL = "sys/class/powercap/intel-rapl:0"
SINGLE = {
    "edac_counts": (EDAC, "sys/devices/system/edac/mc/mc0/ue_count", {}, ("edac.ue", "mc0")),
    "hwmon_temp_input": (
        HWMON,
        "sys/class/hwmon/hwmon0/temp1_input",
        {"sys/class/hwmon/hwmon0/name": b"k10temp\n"},
        ("temp.package", "package0"),
    ),
    "thermal_zone_temp": (
        THERMAL,
        "sys/class/thermal/thermal_zone0/temp",
        {"sys/class/thermal/thermal_zone0/type": b"x86_pkg_temp\n"},
        ("temp.thermal_zone", "x86_pkg_temp"),
    ),
    "thermal_throttle": (
        THROTTLE,
        f"{CPU}/thermal_throttle/package_throttle_count",
        {f"{CPU}/topology/physical_package_id": b"1\n"},
        ("cpu.throttle.package", "package1"),
    ),
    "powercap_energy_uj": (
        POWERCAP,
        f"{RAPL}:0/energy_uj",
        {f"{RAPL}/name": b"package-1\n", f"{RAPL}:0/name": b"dram\n"},
        ("power.rapl.dram", "package1"),
    ),
    "node_hugepages": (
        NUMA,
        "sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages",
        {},
        ("numa.hugepages_free", "node1/2048kB"),
    ),
    "kernel_mm_hugepages": (
        NUMA,
        "sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages",
        {},
        ("numa.hugepages_surplus", "2048kB"),
    ),
}


def texts(kind: str) -> Iterator[bytes]:
    """Files of a kind that have text."""
    for file in sorted((Path(os.environ["REVEAL_CORPUS"]) / kind).iterdir()):
        if (text := file.read_bytes()).strip(b"\0 \n"):
            yield text


def by_node(found: Values, metric: str) -> dict[str, float]:
    """Values of one metric."""
    return {instance: value for (name, instance), value in found.items() if name == metric}


@pytest.mark.parametrize("kind", SINGLE)
def test_corpus_files_of_one_number(kind: str) -> None:
    collector, path, beside, channel = SINGLE[kind]
    for text in texts(kind):
        found = values(collector.parser()({path: text, **beside}))
        assert set(found) == {channel}
        word = text.decode().strip()
        expected = int(word) if re.fullmatch(r"-?\d+", word) else None
        assert found[channel] == expected if expected is not None else found[channel] != found[channel]


def test_corpus_zones() -> None:
    for text in texts("proc_zoneinfo"):
        free: dict[str, int] = defaultdict(int)
        for node, pages in re.findall(rb"Node (\d+), zone(?:(?!Node ).)*?pages free +(\d+)", text, re.DOTALL):
            free[f"node{int(node)}"] += int(pages)
        found = parse(ZONES, text)
        assert by_node(found, "zone.free") == free
        watermarks = sum(map(int, re.findall(rb"^ +low +(\d+)$", text, re.MULTILINE)))
        assert 0 <= sum(by_node(found, "zone.below_low").values()) <= watermarks


def test_corpus_free_blocks() -> None:
    for text in texts("proc_buddyinfo"):
        found = parse(BUDDYINFO, text)
        pages = sum(
            int(count) << order
            for line in text.splitlines()
            for order, count in enumerate(line.partition(b"zone")[2].split()[1:])
        )
        assert sum(value * 2 ** int(order.removeprefix("order")) for (_, order), value in found.items()) == pages


def test_corpus_slabs() -> None:
    for text in texts("proc_slabinfo"):
        found = parse(SLABS, text)
        rows = [line.split() for line in text.splitlines()[2:]]
        assert found["slab.objects", ""] == sum(int(row[1]) for row in rows)
        sizes = sorted((int(row[2]) * int(row[3]) / 1024 for row in rows), reverse=True)
        shown = sorted(by_node(found, "slab.size").values(), reverse=True)
        assert shown == [size for size in sizes[:LARGEST] if size >= 1024]


def test_corpus_sources_of_interrupts() -> None:
    seen = Counter[str]()
    for text in texts("proc_interrupts"):
        found = parse(INTERRUPTS, text)
        cpus = len(text.splitlines()[0].split())
        totals = {}
        for line in text.splitlines()[1:]:
            label, _, rest = line.partition(b":")
            cells = rest.split()
            if label.strip().isdigit() and len(cells) >= cpus and not rest.rstrip().endswith(b"arch_timer"):
                totals[label.strip().decode()] = sum(map(int, cells[:cpus]))
        sources = by_node(found, "cpu.irq.source")
        assert sources == {name: totals[name.partition(":")[0]] for name in sources}
        assert len(sources) == min(8, sum(total >= 20 for total in totals.values()))
        assert sorted(sources.values()) == sorted(totals.values())[len(totals) - len(sources) :]
        seen.update("named" if ":" in name else "nameless" for name in sources)
    assert seen["named"] > 10 * seen["nameless"]
