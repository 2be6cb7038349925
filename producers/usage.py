"""What the agent takes of the machine: processor time and memory of its process and of those that it started."""

from __future__ import annotations

import glob
import math
import os
import resource
from collections.abc import Sequence
from typing import Final

from producers.collector import NAN

PAGE_KB: Final = os.sysconf("SC_PAGE_SIZE") / 1024
USER_HZ: Final = os.sysconf("SC_CLK_TCK")
USER_TIME: Final = 11
"""Position of a process' user time in its stat, after the name in brackets; then system, and both of its children."""


class Usage:
    """Looks at the agent itself. `proc` is where the host's /proc is; which children there are is asked every `every`
    looks, at the first one too.
    """

    def __init__(self, proc: str, every: int = 10) -> None:
        self._proc = proc
        self._every = every
        self._turn = 0
        self._children: tuple[str, ...] = ()

    def __call__(self) -> tuple[float, float]:
        """Processor time so far, s, and resident memory, kB; memory is NaN where /proc does not tell it.

        Children that have ended and were waited for count with getrusage(2), living ones by their /proc/PID/stat.
        """
        if self._turn % self._every == 0:
            self._children = self._living()
        self._turn += 1
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        memory_kb = self._resident_kb("self")
        for child in self._children:
            # One that has just ended takes nothing any more, and counts as waited for.
            cpu_s += sum(self._times(child)) / USER_HZ
            resident_kb = self._resident_kb(child)
            memory_kb += 0.0 if math.isnan(resident_kb) else resident_kb
        return cpu_s, memory_kb

    def _living(self) -> tuple[str, ...]:
        """Processes that threads of the agent have started, and theirs. None where the kernel does not list them."""
        found: dict[str, None] = {}
        waiting = ["self"]
        while waiting:
            for task in glob.glob(f"{self._proc}/{waiting.pop()}/task/*/children"):
                new = [child for child in _text(task).split() if child not in found]
                found.update(dict.fromkeys(new))
                waiting += new
        return tuple(found)

    def _times(self, process: str) -> Sequence[int]:
        fields = _text(f"{self._proc}/{process}/stat").rpartition(")")[2].split()
        return [int(field) for field in fields[USER_TIME : USER_TIME + 4]]

    def _resident_kb(self, process: str) -> float:
        fields = _text(f"{self._proc}/{process}/statm").split()
        return int(fields[1]) * PAGE_KB if len(fields) > 1 else NAN


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
