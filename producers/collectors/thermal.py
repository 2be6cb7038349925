"""/sys/class/thermal: temperatures of the firmware's thermal zones, and what the kernel does about them.

Zones and cooling devices are named by their type. A zone that is switched off refuses to be read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from producers.collector import Collector, Parser, plain
from producers.collectors.sysfs import Channel, Meaning, Sysfs, distinct, highest, words
from producers.reading import Texts

ZONE: Final = "sys/class/thermal/thermal_zone[0-9]*"
DEVICE: Final = "sys/class/thermal/cooling_device[0-9]*"
PATH: Final = re.compile(r"(.*/(\w+))/(temp|cur_state)$")


def _types(texts: Texts) -> list[tuple[str, str]]:
    """Path and type of each number; the directory's name where there is no type."""
    found = [match for path in texts if (match := PATH.search(path))]
    return [(match[0], words(texts.get(f"{match[1]}/type", b"")) or match[2]) for match in found]


def describe_zones(texts: Texts) -> Meaning:
    """A channel a zone."""
    found = _types(texts)
    names = distinct(name for _, name in found)
    return Meaning({("temp.thermal_zone", name): [path] for (path, _), name in zip(found, names, strict=True)})


def describe_devices(texts: Texts) -> Meaning:
    """A channel a type: every CPU is a cooling device, and one that is throttled tells as much as all."""
    channels: dict[Channel, list[str]] = {}
    for path, name in _types(texts):
        channels.setdefault(("cooling.state", name), []).append(path)
    return Meaning(channels)


def _zones() -> Parser:
    return Sysfs(describe_zones)


def _highest(states: Sequence[float]) -> float:
    # The power clamp says -1 as long as it does not work.
    return highest([state for state in states if state >= 0])


def _devices() -> Parser:
    return Sysfs(describe_devices, _highest)


THERMAL = Collector(
    "thermal",
    (f"{ZONE}/temp",),
    plain(_zones),
    ("temp.thermal_zone",),
    constants=(f"{ZONE}/type",),
    every_ms=1000,
    may_block=True,
)
COOLING = Collector(
    "cooling",
    (f"{DEVICE}/cur_state",),
    plain(_devices),
    ("cooling.state",),
    constants=(f"{DEVICE}/type",),
    every_ms=1000,
    may_block=True,
)
