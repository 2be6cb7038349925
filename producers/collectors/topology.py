"""Which package and which physical core a CPU belongs to, from the constant files of its topology."""

from __future__ import annotations

import re
from typing import Final

from producers.collector import number
from producers.reading import Texts

CPU: Final = "sys/devices/system/cpu/cpu[0-9]*"
PACKAGE_IDS: Final = f"{CPU}/topology/physical_package_id"
CORE_IDS: Final = f"{CPU}/topology/core_id"
PATH: Final = re.compile(r"/(cpu\d+)/topology/(physical_package_id|core_id)$")


def ids(texts: Texts, name: str) -> dict[str, int]:
    """Number `name` of each CPU that has one; firmware that knows none says -1."""
    found = {}
    for path, text in texts.items():
        match = PATH.search(path)
        if match and match[2] == name and (value := number(text)) >= 0:
            found[match[1]] = int(value)
    return found


def packages(texts: Texts) -> dict[str, str]:
    """Package of each CPU, such as {"cpu0": "package0"}."""
    return {cpu: f"package{value}" for cpu, value in ids(texts, "physical_package_id").items()}


def first_cpus(texts: Texts) -> dict[tuple[int, int], str]:
    """The first CPU of each physical core, by numbers of package and core."""
    package, found = ids(texts, "physical_package_id"), dict[tuple[int, int], str]()
    for cpu, core in sorted(ids(texts, "core_id").items(), key=lambda item: int(item[0][3:])):
        if cpu in package:
            found.setdefault((package[cpu], core), cpu)
    return found
