"""Files of devices of which a machine may have none, and of which not each has all files."""

from __future__ import annotations

from dataclasses import replace

from producers.collector import Collector
from producers.reading import Host, Problem, Source, Texts
from producers.source import HUNG_NS, InlineSource, ThreadSource


def label(name: str) -> str:
    """A file's name as an instance: what is no UTF-8 in it is replaced, as no message could carry it."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class OptionalFiles(InlineSource):
    """An InlineSource that does not miss every single pattern, only the devices as such."""

    def problems(self, now_ns: int, hung_ns: int = HUNG_NS) -> list[Problem]:
        """As in Source."""
        found = super().problems(now_ns, hung_ns)
        kept = [problem for problem in found if problem.kind != "missing" or "*" not in problem.path]
        if self._scan_ns and self.idle():
            name, path = self.collector.name, self.collector.files[0]
            kept.append(Problem(name, path, "missing", "no such device on this machine"))
        return kept


def optional(collector: Collector, host: Host) -> Source:
    """A source of such files, in a thread of its own if they may block."""
    if collector.may_block:
        return ThreadSource(collector, host, OptionalFiles(collector, host, patient=True))
    return OptionalFiles(collector, host)


class Substitute:
    """The first of a collector's files, or, as long as it gives nothing, the other ones."""

    later = False

    def __init__(self, collector: Collector, host: Host) -> None:
        self._first = InlineSource(replace(collector, files=collector.files[:1]), host)
        self._others = OptionalFiles(replace(collector, files=collector.files[1:]), host)
        self._used = self._first

    @property
    def errors(self) -> int:
        """Failures so far."""
        return self._first.errors + self._others.errors

    def request(self, now_ns: int) -> None:
        """As in Source; `read` is the reading itself."""

    def read(self, now_ns: int) -> tuple[int, Texts] | None:
        """As in Source."""
        self._used = self._first
        reading = self._first.read(now_ns)
        if reading is None:
            self._used = self._others
            reading = self._others.read(now_ns)
        return reading

    def idle(self) -> bool:
        """As in Source."""
        return self._first.idle() and self._others.idle()

    def problems(self, now_ns: int, hung_ns: int = HUNG_NS) -> list[Problem]:
        """As in Source; that the first is missing is worth a word although the others stand in."""
        found = self._first.problems(now_ns, hung_ns)
        return found + self._others.problems(now_ns, hung_ns) if found else found

    def failed(self, reason: str, now_ns: int) -> None:
        """As in Source."""
        self._used.failed(reason, now_ns)

    def understood(self) -> None:
        """As in Source."""
        self._used.understood()

    def close(self) -> None:
        """As in Source."""
        self._first.close()
        self._others.close()


def substitute(collector: Collector, host: Host) -> Source:
    """The first of a collector's files or the others; in a thread of its own if a program serves the first one."""
    source = Substitute(collector, host)
    return ThreadSource(collector, host, source) if collector.files[0] in host.served else source
