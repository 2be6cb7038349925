"""Temperature of NVMe disks, from the sensor chip that the disk's driver registers.

Found from the disk's side, below which the chip lies (with some kernels below its PCI device), so that the
channel has the name of the disk's controller. The first sensor is the composite one, which throttling goes by. Reading
sends a command to the disk, so it may block.
"""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Parser, plain
from producers.collectors.sysfs import Channel, Meaning, Sysfs
from producers.reading import Texts

PATH: Final = re.compile(r"/(nvme\d+)/.*temp1_input$")


def describe(texts: Texts) -> Meaning:
    """A channel a controller."""
    channels: dict[Channel, list[str]] = {}
    for path in texts:
        if match := PATH.search(path):
            channels.setdefault(("nvme.temp", match[1]), [path])
    return Meaning(channels)


def _parser() -> Parser:
    return Sysfs(describe)


NVME_TEMP = Collector(
    "nvmetemp",
    (
        "sys/class/nvme/nvme[0-9]*/hwmon[0-9]*/temp1_input",
        "sys/class/nvme/nvme[0-9]*/device/hwmon/hwmon[0-9]*/temp1_input",
    ),
    plain(_parser),
    ("nvme.temp",),
    every_ms=1000,
    may_block=True,
    per="disk",
)
