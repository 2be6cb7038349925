"""What happened at one moment, from whatever part of the agent saw it, on its way to become events."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from schemas.records import EVENT_KINDS, Event

CAPACITY: Final = 10_000
LONGEST: Final = 1000
SAME_NS: Final = 5_000_000_000
"""What two sources tell of one device within this time is one thing, such as a link that the kernel's log and netlink
see going down.
"""
REMEMBERED: Final = 1000


@dataclass(frozen=True, slots=True)
class Notice:
    """An event that does not know yet whose it is; fields as in Event."""

    time_ns: int
    kind: str
    subsystem: str
    severity: str
    message: str
    source: str
    instance: str
    code: int | None


class Notices:
    """A queue that any thread may add to, and that the agent empties once a batch. What finds it full is counted, and
    what another source has told of already is left out.
    """

    def __init__(self, wall: Callable[[], int] = time.time_ns) -> None:
        self.lost = 0
        self._wall = wall
        self._lock = threading.Lock()
        self._queue: deque[Notice] = deque()
        self._told: dict[tuple[str, str, int | None], tuple[str, int]] = {}
        self._sequence = 0

    def add(
        self,
        kind: str,
        subsystem: str,
        message: str,
        *,
        severity: str = "warning",
        source: str = "agent",
        instance: str = "",
        code: int | None = None,
        time_ns: int | None = None,
    ) -> None:
        """Take notice of something, now or at `time_ns` of the wall clock. Raises ValueError for an unknown kind."""
        when = self._wall() if time_ns is None else time_ns
        self.put(Notice(when, kind, subsystem, severity, message, source, instance, code))

    def put(self, notice: Notice) -> None:
        """Take `notice`. Raises ValueError for an unknown kind."""
        if notice.kind not in EVENT_KINDS:
            raise ValueError(f"{notice.kind!r} is no kind of event; there are {', '.join(EVENT_KINDS)}")
        notice = replace(notice, message=notice.message[:LONGEST])
        with self._lock:
            if self._known(notice):
                return
            if len(self._queue) >= CAPACITY:
                self.lost += 1
            else:
                self._queue.append(notice)

    def drain(self, host: str, session: str, agent: str) -> list[Event]:
        """All that was noticed since the last call, as events of a host."""
        with self._lock:
            notices, self._queue = self._queue, deque()
            first = self._sequence
            self._sequence += len(notices)
        return [
            Event(
                host=host,
                session=session,
                sequence=first + index,
                time_ns=notice.time_ns,
                kind=notice.kind,
                subsystem=notice.subsystem,
                severity=notice.severity,
                message=notice.message,
                source=notice.source,
                instance=notice.instance,
                code=notice.code,
                agent=agent,
            )
            for index, notice in enumerate(notices)
        ]

    def _known(self, notice: Notice) -> bool:
        """Whether another source has told the same of the same device just before; otherwise it has been told now."""
        if not notice.instance:
            return False
        key = (notice.kind, notice.instance, notice.code)
        source, when = self._told.get(key, ("", 0))
        if source not in ("", notice.source) and abs(notice.time_ns - when) <= SAME_NS:
            return True
        self._told.pop(key, None)
        self._told[key] = (notice.source, notice.time_ns)
        if len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]
        return False
