"""A source that does what a test says, in the place of hardware that hangs or costs much."""

from __future__ import annotations

from collections.abc import Callable

from producers.collector import Collector, Layout, Reading, plain
from producers.reading import Host, Problem, Texts


def swap_free(texts: Texts) -> Reading:
    """A parser of a file with one number."""
    return Layout((("mem.swap_free", ""),)), [int(next(iter(texts.values())))]


class Scripted:
    """A source that does what a test says at each reading; `later` as of a source in the loop's own thread."""

    later = False

    def __init__(self, act: Callable[[], None]) -> None:
        self.errors = 0
        self.closed = 0
        self.reads = 0
        self._act = act

    def read(self, now_ns: int) -> tuple[int, Texts] | None:
        """Act, then the number of readings."""
        self._act()
        self.reads += 1
        return now_ns, {"count": str(self.reads).encode()}

    def request(self, now_ns: int) -> None:
        """As in Source."""

    def idle(self) -> bool:
        """As in Source."""
        return False

    def problems(self, now_ns: int, hung_ns: int) -> list[Problem]:
        """As in Source."""
        return []

    def failed(self, reason: str, now_ns: int) -> None:
        """As in Source."""
        self.errors += 1

    def understood(self) -> None:
        """As in Source."""

    def close(self) -> None:
        """As in Source."""
        self.closed += 1


def scripted(act: Callable[[], None], made: list[Scripted], name: str = "scripted", every_ms: int = 0) -> Collector:
    """A collector of mem.swap_free with such a source."""

    def make(collector: Collector, host: Host) -> Scripted:
        made.append(Scripted(act))
        return made[-1]

    return Collector(name, (), plain(lambda: swap_free), ("mem.swap_free",), every_ms=every_ms, source=make)
