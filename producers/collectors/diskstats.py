"""/proc/diskstats: requests, sectors and times of each disk.

14 columns up to kernel 4.17, 18 from 4.18 (discards), 20 from 5.5 (flushes), more are let pass. Partitions are left out
where their disk is listed (their requests are its own), and so are loop, RAM and optical devices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.collector import Collector, Reading, only
from producers.collectors.fields import Fields, Found
from producers.reading import Texts, Wanted, everything

COLUMNS: Final = {
    "disk.reads": 3,
    "disk.read_merges": 4,
    "disk.read_sectors": 5,
    "disk.read_ms": 6,
    "disk.writes": 7,
    "disk.write_merges": 8,
    "disk.write_sectors": 9,
    "disk.write_ms": 10,
    "disk.in_flight": 11,
    "disk.io_ms": 12,
    "disk.queue_ms": 13,
    "disk.discards": 14,
    "disk.flushes": 18,
    "disk.flush_ms": 19,
}
# Printed as unsigned 32 bit: io_ms comes round after 49 busy days.
MILLISECONDS: Final = ("disk.read_ms", "disk.write_ms", "disk.io_ms", "disk.queue_ms", "disk.flush_ms")
NO_DISK: Final = re.compile(r"(?:loop|ram|zram|fd|sr)\d+$")
PARTITION: Final = re.compile(r"((?:sd|hd|vd|xvd)[a-z]+)\d+$|((?:nvme\d+n|mmcblk|nbd|md)\d+)p\d+$")


def find(text: bytes, found: Found) -> tuple[str, ...]:
    """Walks the rows; a field is called metric@disk."""
    position = 0
    for line in text.splitlines():
        tokens = line.split()
        if len(tokens) >= 14:
            name = tokens[2].decode("utf-8", "replace")
            for metric, column in COLUMNS.items():
                if column < len(tokens):
                    found(f"{metric}@{name}", position + column, (position + 2,))
        position += len(tokens)
    return ()


def choose(found: Sequence[str], wanted: Wanted = everything) -> dict[tuple[str, str], tuple[str, ...]]:
    """Fields of whole disks."""
    fields = [(field, *field.split("@", 1)) for field in found]
    disks = {disk for _, _, disk in fields}
    kept = {
        disk for disk in disks if not NO_DISK.match(disk) and not _partition_of(disk, disks) and wanted("disk", disk)
    }
    return {(metric, disk): (field,) for field, metric, disk in fields if disk in kept}


def _partition_of(name: str, disks: set[str]) -> bool:
    match = PARTITION.match(name)
    return match is not None and (match[1] or match[2]) in disks


class Diskstats:
    """Parser of /proc/diskstats."""

    def __init__(self, wanted: Wanted = everything) -> None:
        self._fields = Fields(find, lambda found: choose(found, wanted))

    def __call__(self, texts: Texts) -> Reading:
        """Requests, sectors of 512 bytes and milliseconds, disk by disk."""
        return self._fields(only(texts))


def derive(rates: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Mean time of the requests that ended in the interval, ms; absent where none ended."""
    result: dict[str, NDArray[np.float64]] = {}
    for metric, time, requests in (
        ("disk.await_read", "disk.read_ms", "disk.reads"),
        ("disk.await_write", "disk.write_ms", "disk.writes"),
    ):
        if time in rates and requests in rates:
            ended = np.where(rates[requests] > 0, rates[requests], np.nan)
            result[metric] = rates[time] / ended
    return result


DISKSTATS = Collector(
    "diskstats",
    ("proc/diskstats",),
    Diskstats,
    (*COLUMNS, "disk.await_read", "disk.await_write"),
    wraps=dict.fromkeys(MILLISECONDS, 2.0**32),
    derive=derive,
)
