"""Processors, disks and nodes that come and go, told from lists that the kernel keeps: no permission is needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from producers.notices import Notice
from producers.reading import Wanted

SOURCE: Final = "agent"


class Devices:
    """Compares what is there with what was there at the last look.

    A list that cannot be read says nothing: its devices are as they were.
    """

    def __init__(self, sys: str, wanted: Wanted, wall: Callable[[], int]) -> None:
        self._wanted = wanted
        self._wall = wall
        self._lists: Mapping[str, tuple[str, Callable[[], frozenset[str]]]] = {
            "CPU": ("cpu", lambda: _numbered("cpu", f"{sys}/devices/system/cpu/online")),
            "memory node": ("memory", lambda: _numbered("node", f"{sys}/devices/system/node/online")),
            "disk": ("storage", lambda: self._disks(f"{sys}/block")),
        }
        self._there: dict[str, frozenset[str]] = {}

    def look(self) -> list[Notice]:
        """What came or went since the last call; nothing the first time."""
        notices: list[Notice] = []
        for what, (subsystem, read) in self._lists.items():
            try:
                now = read()
            except (OSError, ValueError):
                continue
            before = self._there.get(what, now)
            self._there[what] = now
            for name in sorted(before - now):
                message = f"{what} {name} went away"
                notices.append(Notice(self._wall(), "device_gone", subsystem, "warning", message, SOURCE, name, None))
            for name in sorted(now - before):
                message = f"{what} {name} came"
                notices.append(Notice(self._wall(), "device_back", subsystem, "info", message, SOURCE, name, None))
        return notices

    def _disks(self, block: str) -> frozenset[str]:
        """Disks with hardware behind them: what loops, maps and stripes come and go is nobody's fault."""
        known = self._there.get("disk", frozenset())
        names = os.listdir(block)
        return frozenset(
            name
            for name in names
            if name in known or (self._wanted("disk", name) and Path(block, name, "device").exists())
        )


def _numbered(prefix: str, path: str) -> frozenset[str]:
    """Names of what a list such as "0-3,5" holds. Raises OSError, and ValueError for a text that is no list."""
    names: set[str] = set()
    for part in Path(path).read_text(encoding="ascii", errors="replace").strip().split(","):
        first, dash, last = part.partition("-")
        names.update(f"{prefix}{number}" for number in range(int(first), int(last if dash else first) + 1))
    return frozenset(names)
