"""/proc/mdstat: software RAID, array by array."""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Layout, Reading, only, plain
from producers.reading import Texts

ARRAY: Final = re.compile(rb"(\S+)[ \t]*:[ \t]*(active|inactive|broken|clean|readonly|read-auto)\b(.*)")
DISKS: Final = re.compile(rb"\[(\d+)/(\d+)\]")
LEVEL: Final = re.compile(rb"\b(?:raid\d+|linear|multipath|faulty)\b")
FAULTY: Final = re.compile(rb"\[\d+\](?:\([A-Z]\))*\(F\)")
# While one waits for another, or for the first write, nothing of it is done.
WAITS: Final = re.compile(rb"\b(?:recovery|resync|reshape|check|repair)\s*=\s*(?:DELAYED|PENDING|REMOTE)\b")
PROGRESS: Final = re.compile(rb"\b(?:recovery|resync|reshape|check|repair)\s*=\s*(\d+(?:\.\d+)?)%")


class Mdstat:
    """Parser of /proc/mdstat."""

    def __init__(self) -> None:
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Disks that each array lacks, and the progress of what it does to itself, %."""
        blocks: dict[str, tuple[bytes, bytes]] = {}
        name, first, rest = "", b"", b""
        for line in only(texts).splitlines():
            if match := ARRAY.match(line):
                name, first, rest = match[1].decode("utf-8", "replace"), match[2] + match[3], b""
            elif not line[:1].isspace():
                name = ""
            else:
                rest += line + b"\n"
            if name:
                blocks[name] = first, rest
        found: dict[tuple[str, str], float] = {}
        for name, (first, rest) in blocks.items():
            if disks := DISKS.search(rest):
                found["md.failed", name] = int(disks[1]) - int(disks[2])
            elif LEVEL.search(first) and rest:
                # Arrays without redundancy tell no numbers of disks.
                found["md.failed", name] = len(FAULTY.findall(first))
            else:
                # A container of metadata, or an array that was not put together: it lacks what nobody knows.
                continue
            if progress := PROGRESS.search(rest):
                found["md.recovery_pct", name] = float(progress[1])
            else:
                found["md.recovery_pct", name] = 0.0 if WAITS.search(rest) else 100.0
        found = {channel: value for channel, value in found.items() if value >= 0}
        if tuple(found) != self._layout.channels:
            self._layout = Layout(tuple(found))
        return self._layout, list(found.values())


MDSTAT: Final = Collector(
    "mdstat", ("proc/mdstat",), plain(Mdstat), ("md.failed", "md.recovery_pct"), every_ms=5000, may_block=True
)
