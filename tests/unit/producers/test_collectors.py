"""What all collectors have in common, and every real file of the corpus."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from producers.collector import Collector, ParseError
from producers.collectors import COLLECTORS
from schemas.catalogue import catalogue
from tests.unit.producers.readings import Values, values

SUBSYSTEMS = ("cpu", "gpu", "memory", "network", "storage")
# Folder of the corpus, collector, and the path that the text stands for.
KINDS = {
    "proc_stat": ("stat", "proc/stat"),
    "proc_loadavg": ("loadavg", "proc/loadavg"),
    "proc_pressure_cpu": ("pressure", "proc/pressure/cpu"),
    "proc_pressure_irq": ("pressure", "proc/pressure/irq"),
    "proc_pressure_memory": ("pressure", "proc/pressure/memory"),
    "proc_pressure_io": ("pressure", "proc/pressure/io"),
    "proc_schedstat": ("schedstat", "proc/schedstat"),
    "proc_interrupts": ("interrupts", "proc/interrupts"),
    "proc_softirqs": ("softirqs", "proc/softirqs"),
    "cpufreq": ("cpufreq", "sys/devices/system/cpu/cpu3/cpufreq/scaling_cur_freq"),
    "proc_meminfo": ("meminfo", "proc/meminfo"),
    "proc_vmstat": ("vmstat", "proc/vmstat"),
    "node_meminfo": ("numa", "sys/devices/system/node/node1/meminfo"),
    "node_numastat": ("numa", "sys/devices/system/node/node1/numastat"),
    "node_hugepages": ("numa", "sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"),
    "node_vmstat": ("numa", "sys/devices/system/node/node1/vmstat"),
    "kernel_mm_hugepages": ("numa", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
    "proc_buddyinfo": ("buddyinfo", "proc/buddyinfo"),
    "proc_zoneinfo": ("zones", "proc/zoneinfo"),
    "proc_slabinfo": ("slabs", "proc/slabinfo"),
    "edac_counts": ("edac", "sys/devices/system/edac/mc/mc0/ce_count"),
    "thermal_throttle": ("throttle", "sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count"),
    "thermal_zone_temp": ("thermal", "sys/class/thermal/thermal_zone0/temp"),
    "hwmon_temp_input": ("hwmon", "sys/class/hwmon/hwmon2/temp1_input"),
    "powercap_energy_uj": ("powercap", "sys/class/powercap/intel-rapl:0/energy_uj"),
    "proc_net_dev": ("netdev", "proc/net/dev"),
    "proc_net_snmp": ("snmp", "proc/net/snmp"),
    "proc_net_netstat": ("snmp", "proc/net/netstat"),
    "proc_net_softnet_stat": ("softnet", "proc/net/softnet_stat"),
    "proc_net_sockstat": ("sockstat", "proc/net/sockstat"),
    "proc_net_snmp6": ("snmp6", "proc/net/snmp6"),
    "net_speed": ("netspeed", "sys/class/net/eth0/speed"),
    "nf_conntrack_stat": ("conntrack", "proc/net/stat/nf_conntrack"),
    "proc_diskstats": ("diskstats", "proc/diskstats"),
    "block_stat": ("diskstats", "sys/block/sda/stat"),
    "proc_mdstat": ("mdstat", "proc/mdstat"),
}
# A metric that every file of the kind must give.
CERTAIN = {
    "proc_stat": "cpu.time.user",
    "proc_loadavg": "cpu.load1",
    "proc_pressure_cpu": "cpu.psi.some",
    "proc_pressure_irq": "cpu.psi.irq_full",
    "proc_pressure_memory": "mem.psi.full",
    "proc_pressure_io": "io.psi.some",
    "proc_schedstat": "cpu.run_delay",
    "proc_interrupts": "cpu.irq.device",
    "proc_softirqs": "cpu.softirq.net_rx",
    "cpufreq": "cpu.freq.current",
    "proc_meminfo": "mem.total",
    "proc_vmstat": "vm.pgfault",
    "node_meminfo": "numa.mem_free",
    "node_numastat": "numa.hit",
    "node_hugepages": "numa.hugepages_total",
    "node_vmstat": "numa.hit",
    "kernel_mm_hugepages": "numa.hugepages_total",
    "proc_buddyinfo": "mem.free_blocks",
    "proc_zoneinfo": "zone.free",
    "proc_slabinfo": "slab.objects",
    "edac_counts": "edac.ce",
    "thermal_throttle": "cpu.throttle.core",
    "thermal_zone_temp": "temp.thermal_zone",
    "hwmon_temp_input": "temp.sensor",
    "powercap_energy_uj": "power.rapl.package",
    "proc_net_dev": "net.rx_bytes",
    "proc_net_snmp": "tcp.out_segs",
    "proc_net_netstat": "tcp.timeouts",
    "proc_net_softnet_stat": "softnet.processed",
    "proc_net_sockstat": "tcp.in_use",
    "proc_net_snmp6": "ip6.in_receives",
    "net_speed": "net.speed",
    "nf_conntrack_stat": "conntrack.drop",
    "proc_diskstats": "disk.reads",
    "block_stat": "disk.reads",
    "proc_mdstat": "md.failed",
}
# What stands beside the file of a kind and says what it is.
BESIDE = {"powercap_energy_uj": {"sys/class/powercap/intel-rapl:0/name": b"package-0\n"}}
# Dimensions of which a parser shows the busiest instances, which depend on what it saw before.
CHOSEN = ("irq", "cache")
BY_NAME = {collector.name: collector for collector in COLLECTORS}


def test_every_metric_has_exactly_one_collector() -> None:
    filled = Counter(metric for collector in COLLECTORS for metric in collector.metrics)
    assert set(filled.values()) == {1}
    assert set(filled) == {metric.name for metric in catalogue().values() if metric.subsystem in SUBSYSTEMS}


def test_names_of_collectors_differ() -> None:
    assert len(BY_NAME) == len(COLLECTORS)


@pytest.mark.parametrize("collector", COLLECTORS, ids=lambda collector: collector.name)
@pytest.mark.parametrize("text", [b"", b"\n", b"\0\xff\n", b"cpu0 x\n", b"a: b c\na: d\n", b"1 2 3\n" * 20])
def test_garbage_gives_nothing_or_a_parse_error(collector: Collector, text: bytes) -> None:
    path = collector.files[0].replace("*", "1").replace("[0-9]", "")
    try:
        found = values(collector.parser()({path: text}))
    except (ValueError, IndexError):
        return
    assert all(math.isnan(value) or value >= 0 for value in found.values())
    assert {metric for metric, _ in found} <= set(collector.metrics)


def corpus(kind: str) -> list[Path]:
    """Files of a kind, those alone that have text."""
    return sorted((Path(os.environ["REVEAL_CORPUS"]) / kind).iterdir())


def consistent(
    collector: Collector, path: str, texts: list[bytes], beside: Mapping[str, bytes] = MappingProxyType({})
) -> Iterator[Values]:
    """Values of each text, which a used parser must find as a fresh one does."""
    used = collector.parser()
    metrics = catalogue()
    for text in texts:
        fresh = values(collector.parser()({path: text, **beside}))
        certain = {key for key in fresh if metrics[key[0]].dimension not in CHOSEN}
        for _ in range(2):
            again = values(used({path: text, **beside}))
            assert {key for key in again if metrics[key[0]].dimension not in CHOSEN} == certain
            assert all(again[key] == fresh[key] or math.isnan(fresh[key]) for key in fresh if key in again)
        yield fresh


@pytest.mark.skipif("REVEAL_CORPUS" not in os.environ, reason="REVEAL_CORPUS is not set")
@pytest.mark.parametrize("kind", KINDS)
def test_corpus_files_are_understood(kind: str) -> None:
    name, path = KINDS[kind]
    collector = BY_NAME[name]
    texts = [file.read_bytes() for file in corpus(kind)]
    # Empty ones, interrupts of s390 (which has no numbered ones), and a node of which only the total is known.
    texts = [text for text in texts if text.strip(b"\0 \n") and b"\nEXT:" not in text and text.count(b"Node ") != 1]
    # A node of which the kernel counts no allocations.
    texts = [text for text in texts if kind != "node_vmstat" or b"numa_hit" in text]
    assert texts
    metrics = catalogue()
    for found in consistent(collector, path, texts, BESIDE.get(kind, {})):
        assert CERTAIN[kind] in {metric for metric, _ in found}
        for (metric, instance), value in found.items():
            assert metric in collector.metrics
            assert (instance == "") == (metrics[metric].dimension == "host")
            low, high = (-100_000, 150_000) if metrics[metric].unit == "mC" else (0, 2**64)
            assert math.isnan(value) or low <= value < high, (metric, instance, value)


@pytest.mark.skipif("REVEAL_CORPUS" not in os.environ, reason="REVEAL_CORPUS is not set")
def test_corpus_cut_short_anywhere_is_no_surprise() -> None:
    for kind, (name, path) in KINDS.items():
        parser = BY_NAME[name].parser()
        for file in corpus(kind):
            text = file.read_bytes()
            for length in range(0, len(text), max(1, len(text) // 40)):
                try:
                    values(parser({path: text[:length], **BESIDE.get(kind, {})}))
                except (ParseError, ValueError, IndexError):
                    continue
