"""/proc/self/mountstats: how long requests to each NFS server took.

The kernel lets only the owner of a process read it, so it is the agent's own; in a container it is that of process 1.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from producers.collector import Collector, Layout, Reading, only
from producers.reading import Host, Source, Texts, Wanted, everything
from producers.source import ThreadSource
from producers.statvfs import plain as unescaped

MOUNT: Final = re.compile(rb"device (\S+) mounted on (\S+) with fstype nfs4?\b")
# Of the numbers after an operation's name: requests, sendings, time-outs, bytes sent, received, queued ms, answered ms.
ANSWERED: Final = 6


class Mountstats:
    """Parser of mountstats; other file systems are passed over."""

    def __init__(self, wanted: Wanted = everything) -> None:
        self._wanted = wanted
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Time between request and answer, summed over all operations, ms, mount by mount."""
        found: dict[tuple[str, str], float] = {}
        channel: tuple[str, str] | None = None
        operations = False
        for line in only(texts).splitlines():
            if line.startswith((b"device ", b"no device ")):
                match = MOUNT.match(line)
                name = unescaped(match[2]).decode("utf-8", "replace") if match else ""
                channel = ("nfs.op_rtt_ms", name) if match and self._wanted("filesystem", name) else None
                operations = False
            elif channel and line.strip() == b"per-op statistics":
                operations = True
            elif channel and operations:
                name_of, colon, tail = line.partition(b":")
                cells = tail.split()
                if colon and len(cells) > ANSWERED and name_of.strip() and cells[ANSWERED].isdigit():
                    found[channel] = found.get(channel, 0) + int(cells[ANSWERED])
        if tuple(found) != self._layout.channels:
            self._layout = Layout(tuple(found))
        return self._layout, list(found.values())


def mountstats(collector: Collector, host: Host) -> Source:
    """Reads the table of process 1 where the host's files lie elsewhere."""
    if host.settings.rootfs != "/":
        collector = replace(collector, files=("proc/1/mountstats",))
    return ThreadSource(collector, host)


MOUNTS: Final = Collector(
    "mounts",
    ("proc/self/mountstats",),
    Mountstats,
    ("nfs.op_rtt_ms",),
    every_ms=1000,
    may_block=True,
    source=mountstats,
)
