"""/sys/class/powercap: energy that packages and their memory have used (RAPL; AMD's zones have Intel's names, too).

A zone says in `name` what it is, and in `max_energy_range_uj` where its counter comes round. Only root may read the
energy. Some machines list a zone twice, once by register and once by memory-mapped register: the first is taken.
"""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Parser, number, plain
from producers.collectors.sysfs import Channel, Meaning, Sysfs, words
from producers.reading import Texts

ZONE: Final = "sys/class/powercap/*rapl*:*"
PATH: Final = re.compile(r"rapl[\w-]*:\d+(?::\d+)*/energy_uj$")
PACKAGE: Final = re.compile(r"package-(\d+)(?:-die-(\d+))?$")


def describe(texts: Texts) -> Meaning:
    """Zones of packages, and of the memory in them; parts of a package, and the whole machine, are no metrics."""
    channels: dict[Channel, list[str]] = {}
    wraps: dict[Channel, float] = {}
    # Zones of other interfaces come last, so they only fill gaps.
    paths = sorted((path for path in texts if PATH.search(path)), key=lambda path: "/intel-rapl:" not in path)
    for path in paths:
        zone = path.removesuffix("/energy_uj")
        name = words(texts.get(f"{zone}/name", b""))
        above = words(texts.get(f"{zone.rpartition(':')[0]}/name", b""))
        package = PACKAGE.match(above if name == "dram" else name)
        if package is None:
            continue
        index, die = package.groups()
        instance = f"package{index}" if die is None else f"package{index}-die{die}"
        channel = ("power.rapl.dram" if name == "dram" else "power.rapl.package", instance)
        if channel not in channels:
            channels[channel] = [path]
            # Without a range, a fall is a reset and gives no rate.
            if (highest := number(texts.get(f"{zone}/max_energy_range_uj", b""))) > 0:
                wraps[channel] = highest
    return Meaning(channels, wraps)


def _parser() -> Parser:
    return Sysfs(describe)


POWERCAP = Collector(
    "powercap",
    (f"{ZONE}/energy_uj",),
    plain(_parser),
    ("power.rapl.package", "power.rapl.dram"),
    constants=(f"{ZONE}/name", f"{ZONE}/max_energy_range_uj"),
    every_ms=1000,
    may_block=True,
)
