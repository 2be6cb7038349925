"""The collectors of power and memory on the machine that runs the tests, as far as it has their files."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from producers.collector import Collector
from producers.collectors.buddyinfo import BUDDYINFO
from producers.collectors.cpuidle import CPUIDLE
from producers.collectors.edac import EDAC
from producers.collectors.hwmon import HWMON
from producers.collectors.interrupts import INTERRUPTS
from producers.collectors.numa import NUMA
from producers.collectors.online import ONLINE
from producers.collectors.powercap import POWERCAP
from producers.collectors.slabs import SLABS
from producers.collectors.thermal import COOLING, THERMAL
from producers.collectors.throttle import THROTTLE
from producers.collectors.zones import ZONES
from tests.unit.producers.sysfstree import Watched

ALL = (
    *(BUDDYINFO, CPUIDLE, EDAC, HWMON, INTERRUPTS, NUMA, ONLINE),
    *(POWERCAP, SLABS, THERMAL, COOLING, THROTTLE, ZONES),
)


@pytest.mark.parametrize("collector", ALL, ids=lambda collector: collector.name)
def test_reading_twice_gives_the_same_channels_and_credible_values(collector: Collector) -> None:
    host = Watched(collector, Path("/"))
    first, second = host.rates(), host.rates()
    host.source.close()
    assert set(first) == set(second)
    assert {metric for metric, _ in first} <= set(collector.metrics)
    assert host.keeper.implausible == 0


def test_as_many_cpus_as_the_system_says() -> None:
    if not Path("/sys/devices/system/cpu/online").exists():
        pytest.skip("no /sys")
    host = Watched(ONLINE, Path("/"))
    assert host.read() == {("cpu.online", ""): os.sysconf("SC_NPROCESSORS_ONLN")}
    host.source.close()


def test_free_pages_are_some_of_all_pages() -> None:
    host = Watched(ZONES, Path("/"))
    free = sum(value for (metric, _), value in host.read().items() if metric == "zone.free")
    host.source.close()
    assert 0 < free * resource.getpagesize() <= os.sysconf("SC_PHYS_PAGES") * resource.getpagesize() * 1.1


def test_free_blocks_are_no_more_than_free_pages() -> None:
    blocks, zones = Watched(BUDDYINFO, Path("/")), Watched(ZONES, Path("/"))
    pages = sum(value * 2 ** int(order.removeprefix("order")) for (_, order), value in blocks.read().items())
    free = sum(value for (metric, _), value in zones.read().items() if metric == "zone.free")
    blocks.source.close()
    zones.source.close()
    # Pages on the lists of single CPUs come and go meanwhile.
    assert pages == pytest.approx(free, rel=0.2, abs=20_000)
