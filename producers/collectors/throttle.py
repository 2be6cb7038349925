"""/sys/devices/system/cpu/cpuN/thermal_throttle: how often and how long Intel's CPUs were slowed down by heat.

Every CPU of a package keeps the package's counts, and may have missed what happened while it was off line, so the
highest of them is the package's.
"""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Parser, plain
from producers.collectors.sysfs import Channel, Meaning, Sysfs, highest
from producers.collectors.topology import CPU, PACKAGE_IDS, packages
from producers.reading import Texts

PATH: Final = re.compile(r"/(cpu\d+)/thermal_throttle/(\w+)$")
OF_PACKAGES: Final = {
    "package_throttle_count": "cpu.throttle.package",
    "package_throttle_total_time_ms": "cpu.throttle.package_time",
}


def describe(texts: Texts) -> Meaning:
    """Files of each core and package."""
    package = packages(texts)
    channels: dict[Channel, list[str]] = {}
    for path in texts:
        if not (match := PATH.search(path)):
            continue
        cpu, name = match.groups()
        if name == "core_throttle_count":
            channels["cpu.throttle.core", cpu] = [path]
        elif name in OF_PACKAGES and cpu in package:
            channels.setdefault((OF_PACKAGES[name], package[cpu]), []).append(path)
    return Meaning(channels)


def _parser() -> Parser:
    return Sysfs(describe, highest)


THROTTLE = Collector(
    "throttle",
    (f"{CPU}/thermal_throttle/*_throttle_count", f"{CPU}/thermal_throttle/package_throttle_total_time_ms"),
    plain(_parser),
    ("cpu.throttle.core", *OF_PACKAGES.values()),
    constants=(PACKAGE_IDS,),
    every_ms=1000,
)
