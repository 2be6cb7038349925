"""Bursts: what a host does now and then for some seconds, such as a job of cron or a merge of a database.

What came TIMES times within RECURS_S and spoke of no fault belongs to the host, whether or not it lasted long enough to
be told; one that is stronger or lasts longer than TIMES of them did is told again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_processors.shapes import Singles, likest, packed, unpacked

TIMES: Final = 3
RECURS_S: Final = 7200
ALIKE: Final = 0.6
"""Cosine of what two bursts move from which on they are of one kind."""
LONGEST_S: Final = 10
"""What lasts longer is no burst."""
STRONGER: Final = 1.5
LONGER_S: Final = 5
"""A burst that moves so many times as much as TIMES that were seen, or lasts so much longer than they did, is something
else. A single one that was strong or long says nothing of the others.
"""
APART_S: Final = 5
MOST: Final = 16
"""Of more kinds, the one that was not seen for longest is forgotten."""


@dataclass(slots=True, eq=False)
class Burst:
    """A kind of burst.

    sizes    float32 (metrics,): how far they move, mean of those that were seen
    most     the most that each of the strongest moved in all, TIMES of them, ascending
    longest  seconds that the longest took, TIMES of them, ascending
    times    how often it came
    begun    second in which the last one began
    last     second in which it was seen last
    """

    sizes: Singles
    most: tuple[float, ...]
    longest: tuple[int, ...]
    times: int
    begun: int
    last: int


@dataclass(slots=True)
class Bursts:
    """Kinds of bursts of one host."""

    kinds: list[Burst] = field(default_factory=list)

    def known(self, sizes: Singles, second: int) -> str:
        """Why what moves (metrics,) so far in a window from `second` on is one of the host's bursts, in words; empty
        if it is none.
        """
        burst = self._like(sizes)
        if burst is None or second - burst.last > RECURS_S:
            return ""
        if second - burst.last > APART_S:
            burst.begun, burst.times = second, burst.times + (burst.times >= TIMES)
        burst.last = second
        lasts = second - burst.begun > burst.longest[0] + LONGER_S
        if burst.times < TIMES or lasts or float(sizes.sum()) > STRONGER * burst.most[0]:
            return ""
        return f"a burst of some seconds that came {burst.times - 1} times before"

    def seen(self, sizes: Singles, most: float, seconds: int, second: int) -> None:
        """What was strange for so many `seconds` before `second` spoke of no fault; its windows moved metrics by
        `sizes` (metrics,) in the mean, and all together by `most` at most.
        """
        if seconds > LONGEST_S:
            return
        burst = self._like(sizes)
        if burst is None or second - burst.last > RECURS_S:
            self.kinds = [each for each in self.kinds if each is not burst]
            self.kinds.append(Burst(sizes, (most,), (seconds,), 1, second, second))
            if len(self.kinds) > MOST:
                self.kinds.remove(min(self.kinds, key=lambda each: each.last))
            return
        burst.sizes = (burst.sizes * burst.times + sizes) / np.float32(burst.times + 1)
        burst.most = tuple(sorted((*burst.most, most))[-TIMES:])
        burst.longest = tuple(sorted((*burst.longest, seconds))[-TIMES:])
        burst.times, burst.last = burst.times + 1, second

    def state(self) -> tuple[list[list[Any]], dict[str, NDArray[Any]]]:
        """Everything needed to go on, as JSON values and arrays."""
        values = [[*map(list, (each.most, each.longest)), each.times, each.begun, each.last] for each in self.kinds]
        arrays: dict[str, NDArray[Any]] = {}
        for number, each in enumerate(self.kinds):
            arrays |= packed(each.sizes, f"burst {number}", f"burst metrics {number}")
        return values, arrays

    @classmethod
    def restore(cls, metrics: int, values: Sequence[Sequence[Any]], arrays: Mapping[str, NDArray[Any]]) -> Bursts:
        """What `state` told, of so many `metrics`. Raises IndexError, KeyError, TypeError or ValueError."""
        kinds: list[Burst] = []
        for number, row in enumerate(values):
            sizes = unpacked(metrics, arrays, f"burst {number}", f"burst metrics {number}")
            # State of before 2026-12-01 has the strongest and the longest alone.
            most, longest = (each if isinstance(each, list) else [each] for each in row[:2])
            times, begun, last = map(int, row[2:])
            kinds.append(Burst(sizes, tuple(map(float, most)), tuple(map(int, longest)), times, begun, last))
        return cls(kinds)

    def _like(self, sizes: Singles) -> Burst | None:
        """The kind that moves the same metrics as far, one against the other."""
        place = likest(sizes, [each.sizes for each in self.kinds], ALIKE)
        return None if place is None else self.kinds[place]
