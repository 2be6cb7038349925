"""Windows of one host in event time.

A window closes when every subsystem of the host has passed its end. One that lags is waited for: until everything is
read that was sent in `grace_s` after the first message that has passed it (see `reading`). Of a gap between two
messages of the host no more than LONGEST_GAP_S counts. So reading topics at different speeds (a backlog, a replay) or
an outage of the broker changes nothing, and a collector that died does not stop the others for long. No clock is read:
times come with the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from schemas.catalogue import SUBSYSTEMS
from schemas.settings import PipelineSettings
from stream_processors.seconds import Second, Singles, Statistics, mean_of_present, merge, together

LONGEST_GAP_S: Final = 1.0
"""A host sends several messages a second; a longer gap between two says nothing about a single subsystem."""
NEW_SECONDS: Final = 30
NEW_GRACE_S: Final = 0.5
"""Which subsystems a new host has is not known, so each of its windows has to wait. Once so many of its seconds are
there it waits no longer than this: a backlog that was sent within a moment would all be kept.
"""
MOST_SECONDS: Final = 1800
"""So many seconds of a host are kept while a subsystem is waited for; then it counts as gone."""


@dataclass(frozen=True, slots=True)
class Window:
    """A closed window.

    start, end  seconds since 1970-01-01 UTC, end exclusive
    stats       merged statistics of all its subsystems
    newest      those of its last second alone; None if nothing is there of it
    seconds     its seconds by subsystem, oldest first
    coverage    share of the expected samples of the expected subsystems that are there, 0 to 1
    missing     expected subsystems of which nothing is there
    """

    start: int
    end: int
    stats: Statistics
    newest: Statistics | None
    seconds: Mapping[str, Sequence[Second]]
    coverage: float
    missing: tuple[str, ...]

    def places(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """(subsystem, dimension, names of the instances) of everything that has instances, as of the newest second."""
        for subsystem, seconds in self.seconds.items():
            for dimension in seconds[-1].dimensions:
                yield subsystem, dimension, seconds[-1].instances[dimension]

    def levels(self, subsystem: str, dimension: str) -> Singles:
        """Mean of every instance over the seconds that have the instances of the newest, (metrics of the dimension,
        instances).
        """
        newest = self.seconds[subsystem][-1].instances[dimension]
        like = [
            second.levels(dimension)
            for second in self.seconds[subsystem]
            if second.instances.get(dimension) == newest and dimension in second.dimensions
        ]
        return mean_of_present(np.stack(like), 0)


@dataclass(slots=True)
class Windows:
    """Seconds of one host that open windows still need.

    next_start  start of the next window to close; None before the first
    expected    subsystem -> newest of its seconds that was in a closed window; decides what coverage asks for
    """

    settings: PipelineSettings
    next_start: int | None = None
    expected: dict[str, int] = field(default_factory=dict)
    _seconds: dict[int, dict[str, Second]] = field(default_factory=dict)
    _sent: dict[int, float] = field(default_factory=dict)  # second -> when the first message of it was sent
    _reduced: dict[int, Statistics] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _read_to: float = 0.0
    _due: float = math.inf  # when what has passed the next window was sent
    _waited: float = 0.0

    def add(self, subsystem: str, second: Second, sent: float, read_to: float) -> str:
        """Keep a second that was sent at `sent`, s, when everything that was sent before `read_to` is read. Says
        "added", "duplicate" (it is there already) or "late" (its last window is closed).
        """
        self.wait(read_to)
        self._gone.discard(subsystem)
        self._newest[subsystem] = max(second.second, self._newest.get(subsystem, second.second))
        if self.next_start is not None and second.second < self.next_start:
            return "late"
        there = self._seconds.setdefault(second.second, {})
        if not there:
            self._sent[second.second] = sent
        elif subsystem in there:
            return "duplicate"
        there[subsystem] = second
        self._reduced.pop(second.second, None)
        return "added"

    def wait(self, read_to: float) -> None:
        """Time goes on, with or without a second."""
        self._waited += min(max(read_to - max(self._read_to, self._due), 0.0), LONGEST_GAP_S)
        self._read_to = read_to

    def open_from(self) -> int:
        """Oldest second that may still go into a window."""
        return min(self._seconds, default=0) if self.next_start is None else self.next_start

    def close(self) -> Iterator[Window]:
        """Windows that are complete, or whose missing subsystems were waited for, oldest first."""
        while self._seconds:
            start = self._first_start()
            if not self._passed(start + self.settings.window_s):
                return
            yield self._take(start)

    def flush(self) -> Iterator[Window]:
        """All windows that hold anything, as they are: the host is silent, or the input has ended."""
        while self._seconds:
            yield self._take(self._first_start())
        self._clear()

    def restart(self, second: int) -> None:
        """Forget what is kept and begin again at `second`: the host's clock was set back."""
        self._clear()
        self.expected.clear()
        self.next_start = second

    def _clear(self) -> None:
        self._seconds.clear()
        self._sent.clear()
        self._reduced.clear()
        self._newest.clear()
        self._gone.clear()
        self._read_to = self._waited = 0.0
        self._due = math.inf

    def _statistics_of(self, second: int) -> Statistics:
        """Statistics of all that is there of a second."""
        if second not in self._reduced:
            there = self._seconds[second]
            self._reduced[second] = together([there[name] for name in SUBSYSTEMS if name in there])
        return self._reduced[second]

    def _first_start(self) -> int:
        if self.next_start is None:
            return min(self._seconds)
        # Asked with each message, and in a backlog there are many seconds.
        for second in range(self.next_start, self.next_start + self.settings.window_s):
            if second in self._seconds:
                return self.next_start
        # Windows that hold nothing are not opened: after a gap the next one is the first that reaches the data, on the
        # grid of steps.
        behind = min(self._seconds) - self.settings.window_s + 1 - self.next_start
        return self.next_start + math.ceil(behind / self.settings.step_s) * self.settings.step_s

    def _passed(self, end: int) -> bool:
        # A batch holds whole seconds, so second end - 1 reaches the end.
        lagging = self._lagging(end - 1)
        if not lagging and self.expected:
            self._waited, self._due = 0.0, math.inf
            return True
        if max(self._newest.values(), default=0) < end - 1:
            self._waited, self._due = 0.0, math.inf  # nobody is ahead, so nobody lags
            return False
        self._due = self._sent_after(end)
        # With nothing expected yet, which subsystems the host has is not known: wait for others to show.
        patience, kept = self.settings.grace_s, len(self._seconds)
        if not self.expected and kept >= NEW_SECONDS:
            patience = min(patience, NEW_GRACE_S)
        if self._waited < patience and kept < MOST_SECONDS:
            return False
        self._gone.update(lagging)
        self._waited, self._due = 0.0, math.inf
        return True

    def _lagging(self, second: int) -> list[str]:
        """Subsystems that are waited for and have not come to `second`."""
        newest, gone = self._newest, self._gone
        return [name for name in {**newest, **self.expected} if newest.get(name, 0) < second and name not in gone]

    def _sent_after(self, end: int) -> float:
        """When the first message that reaches `end` was sent."""
        if (sent := self._sent.get(end - 1)) is not None:
            return sent
        return min((sent for second, sent in self._sent.items() if second >= end), default=math.inf)

    def _take(self, start: int) -> Window:
        size, step = self.settings.window_s, self.settings.step_s
        end = start + size
        stats: Statistics | None = None
        newest: Statistics | None = None
        seconds: dict[str, list[Second]] = {}
        begin = start
        for second in range(start, end):
            there = self._seconds.get(second)
            if there is None:
                continue
            for name, part in there.items():
                seconds.setdefault(name, []).append(part)
            newest = mine = self._statistics_of(second)
            if stats is None:
                stats, begin = mine, second
            else:
                stats = merge(stats, mine, float(second - begin))
        assert stats is not None  # windows that hold nothing are not opened
        self.expected |= {name: mine[-1].second for name, mine in seconds.items()}
        horizon = start - math.ceil(self.settings.grace_s)
        self.expected = {name: newest for name, newest in self.expected.items() if newest >= horizon}
        for second in range(start, start + step):
            self._seconds.pop(second, None)
            self._reduced.pop(second, None)
            self._sent.pop(second, None)
        self.next_start = start + step
        filled = sum(part.filled for mine in seconds.values() for part in mine)
        return Window(
            start=start,
            end=end,
            stats=stats,
            newest=newest if end - 1 in self._seconds else None,
            seconds=seconds,
            coverage=filled / (size * len(self.expected)) if self.expected else 0.0,
            missing=tuple(sorted(set(self.expected) - set(seconds))),
        )
