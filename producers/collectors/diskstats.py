"""/proc/diskstats: requests, sectors and times of each disk.

14 columns up to kernel 4.17, 18 from 4.18 (discards), 20 from 5.5 (flushes), more are let pass. Partitions are left out
where their disk is listed (their requests are its own), so are the paths of a multipath disk, and loop, RAM and optical
devices. Where there is no such file, or it is empty, /sys/block/*/stat has the same columns after the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.collector import Collector, Reading
from producers.collectors.fields import Fields, Found
from producers.optional import label, substitute
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
FILE: Final = "proc/diskstats"
BLOCK: Final = re.compile(r"/block/([^/]+)/stat$")
NO_DISK: Final = re.compile(r"(?:loop|ram|zram|fd|sr)\d+(?:p\d+)?$")
PARTITION: Final = re.compile(r"(.*\d)p\d+$|(.*[^\d-])\d+$")
MULTIPATH: Final = re.compile(r"(nvme\d+)c\d+(n\d+)$")


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
    kept = {disk for disk in disks if not NO_DISK.match(disk) and not _part_of(disk, disks) and wanted("disk", disk)}
    return {(metric, disk): (field,) for field, metric, disk in fields if disk in kept}


def _part_of(name: str, disks: set[str]) -> bool:
    """Whether the requests of `name` are those of another one, too."""
    if match := MULTIPATH.match(name):
        return f"{match[1]}{match[2]}" in disks
    match = PARTITION.match(name)
    return match is not None and (match[1] or match[2]) in disks


class Diskstats:
    """Parser of /proc/diskstats, or of the files of /sys/block."""

    def __init__(self, wanted: Wanted = everything) -> None:
        self._fields = Fields(find, lambda found: choose(found, wanted))

    def __call__(self, texts: Texts) -> Reading:
        """Requests, sectors of 512 bytes and milliseconds, disk by disk."""
        return self._fields(texts[FILE] if FILE in texts else table(texts))


def table(texts: Texts) -> bytes:
    """The files of /sys/block as a diskstats; "!" in their names stands for a slash, which no file name can hold."""
    rows = []
    for path, text in texts.items():
        if match := BLOCK.search(path):
            rows.append(b"0 0 %s %s" % (label(match[1]).replace("!", "/").encode(), b" ".join(text.split())))
    return b"\n".join(rows)


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
    (FILE, "sys/block/*/stat"),
    Diskstats,
    (*COLUMNS, "disk.await_read", "disk.await_write"),
    per="disk",
    source=substitute,
    wraps=dict.fromkeys(MILLISECONDS, 2.0**32),
    derive=derive,
)
