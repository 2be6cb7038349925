"""A bound on how often one thing is told: the first time at once, then as a number now and then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from producers.notices import Notice

EVERY_NS: Final = 10_000_000_000
MOST: Final = 100
"""So many different things are told at once within EVERY_NS; more that are not critical wait for their turn."""
MOST_KEYS: Final = 2000

Key = tuple[str, str, str, int | None]


@dataclass(slots=True)
class _Repeats:
    """What is held back of one thing: how often, and the last of it."""

    since_ns: int
    last: Notice
    count: int = 0


class Limit:
    """Lets a notice of each source, kind, instance and code through in EVERY_NS, and counts the others.

    Times are those of a steady clock, ns. `uncounted` are those that were too many different ones to be told at all.
    """

    def __init__(self) -> None:
        self._repeats: dict[Key, _Repeats] = {}
        self._round_ns = 0
        self._told = 0
        self.uncounted = 0

    def take(self, notice: Notice, now_ns: int) -> Iterator[Notice]:
        """`notice` itself when it may be told at once."""
        key = (notice.source, notice.kind, notice.instance, notice.code)
        repeats = self._repeats.get(key)
        if repeats is not None:
            repeats.count += 1
            repeats.last = notice
        elif len(self._repeats) >= MOST_KEYS:
            self.uncounted += 1
        elif self._told >= MOST and notice.severity != "critical":
            self._repeats[key] = _Repeats(now_ns, notice, 1)
        else:
            self._told += 1
            self._repeats[key] = _Repeats(now_ns, notice)
            yield notice

    def summaries(self, now_ns: int) -> Iterator[Notice]:
        """A notice for each thing that was held back and is due, in the words of the last one. To be asked often."""
        if now_ns - self._round_ns >= EVERY_NS:
            self._round_ns, self._told = now_ns, 0
        for key, repeats in list(self._repeats.items()):
            if now_ns - repeats.since_ns < EVERY_NS:
                continue
            if not repeats.count:
                del self._repeats[key]
            elif self._told < MOST:
                self._told += 1
                times = f"{repeats.count} more within {(now_ns - repeats.since_ns) / 1e9:.0f} s, the last one: "
                yield replace(repeats.last, message=times + repeats.last.message)
                repeats.since_ns, repeats.count = now_ns, 0
