"""/sys/class/hwmon: temperatures, fans and power as the machine's sensor chips report them.

Temperatures of packages and cores come from the CPU's own sensors; all others are named by chip and label. A chip's
driver may ask a slow bus, so reading may block. Chips of NVMe disks are read by another collector, and what ACPI
reports comes with the thermal zones.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from producers.collector import Collector, Parser, plain
from producers.collectors.sysfs import Channel, Meaning, Sysfs, distinct, highest, words
from producers.collectors.topology import CORE_IDS, PACKAGE_IDS, first_cpus, packages
from producers.reading import Texts

# Drivers of old keep the files of a chip one level below.
PLACES: Final = ("sys/class/hwmon/hwmon[0-9]*", "sys/class/hwmon/hwmon[0-9]*/device")
PATH: Final = re.compile(r"(.*/hwmon\d+)/(?:device/)?((temp|fan|power)\d+)_(input|average)$")
METRICS: Final = {"temp": "temp.sensor", "fan": "fan.rpm", "power": "power.board"}
ELSEWHERE: Final = frozenset({"nvme", "acpitz"})
AMD: Final = frozenset({"k10temp", "zenpower", "k8temp", "fam15h_power"})
# What AMD's chips call the temperature of the whole, the truest first: Tctl may have an offset for the fans' sake.
AMD_LABELS: Final = ("Tdie", "Tctl", "")
INTEL_PACKAGE: Final = re.compile(r"(?:Package|Physical) id (\d+)$")
INTEL_CORE: Final = re.compile(r"Core (\d+)$")


@dataclass(slots=True)
class Chip:
    """A chip: its name, and path and label of each sensor, such as temp1."""

    name: str
    paths: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


def find_chips(texts: Texts) -> list[Chip]:
    """Chips with at least one sensor, in the order of their files."""
    chips: dict[str, Chip] = {}
    for path in texts:
        match = PATH.search(path)
        if not match:
            continue
        place, sensor, _, kind = match.groups()
        name = texts.get(f"{place}/name") or texts.get(f"{place}/device/name") or place.rpartition("/")[2].encode()
        chip = chips.setdefault(place, Chip(words(name)))
        # A mean over the meter's interval says more than what it is at one moment.
        if kind == "average" or sensor not in chip.paths:
            chip.paths[sensor] = path
        chip.labels[sensor] = words(texts.get(f"{path.removesuffix(f'_{kind}')}_label", b""))
    return list(chips.values())


def describe(texts: Texts) -> Meaning:
    """Sensors of the CPUs, then all others by name."""
    chips = [chip for chip in find_chips(texts) if chip.name not in ELSEWHERE]
    channels: dict[Channel, list[str]] = defaultdict(list)
    _intel([chip for chip in chips if chip.name == "coretemp"], texts, channels)
    _amd([chip for chip in chips if chip.name in AMD], len(set(packages(texts).values())), channels)
    named = distinct(chip.name for chip in chips)
    for chip, name in zip(chips, named, strict=True):
        sensors = list(chip.paths)
        instances = distinct(f"{name}/{chip.labels[sensor] or sensor}" for sensor in sensors)
        for sensor, instance in zip(sensors, instances, strict=True):
            kind = sensor.rstrip("0123456789")
            channels[METRICS[kind], instance].append(chip.paths[sensor])
    return Meaning(channels)


def _intel(chips: list[Chip], texts: Texts, channels: dict[Channel, list[str]]) -> None:
    """Takes the sensors of packages and cores out of `chips`, one chip a package."""
    cpus = first_cpus(texts)
    for index, chip in enumerate(chips):
        package = index
        for label in chip.labels.values():
            if match := INTEL_PACKAGE.match(label):
                package = int(match[1])
        for sensor, label in list(chip.labels.items()):
            core = INTEL_CORE.match(label)
            if INTEL_PACKAGE.match(label) or (sensor == "temp1" and not label):
                channels["temp.package", f"package{package}"].append(chip.paths.pop(sensor))
            elif core and (cpu := cpus.get((package, int(core[1])))):
                channels["cpu.temp.core", cpu].append(chip.paths.pop(sensor))


def _amd(chips: list[Chip], count: int, channels: dict[Channel, list[str]]) -> None:
    """Takes the sensor of the whole out of `chips`; a package of several dies has a chip for each, in a row."""
    chips = [chip for chip in chips if any(sensor.startswith("temp") for sensor in chip.paths)]
    each = len(chips) // count if count and len(chips) % count == 0 else 1
    for index, chip in enumerate(chips):
        for label in AMD_LABELS:
            found = [name for name in chip.paths if name.startswith("temp") and chip.labels[name] == label]
            if found:
                channels["temp.package", f"package{index // max(each, 1)}"].append(chip.paths.pop(found[0]))
                break


def _parser() -> Parser:
    return Sysfs(describe, highest)


HWMON = Collector(
    "hwmon",
    # Of temp1_input, fan1_input, power1_input, in0_input and so on, the first three.
    (f"{PLACES[0]}/power[0-9]*_average", *(f"{place}/[tfp]*[0-9]_input" for place in PLACES)),
    plain(_parser),
    ("temp.package", "cpu.temp.core", *METRICS.values()),
    constants=(
        *(f"{place}/{name}" for place in PLACES for name in ("name", "[tfp]*[0-9]_label")),
        PACKAGE_IDS,
        CORE_IDS,
    ),
    every_ms=1000,
    may_block=True,
)
