"""The agent's look-out for what happens at one moment: the kernel's log, links, and devices that come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from producers.clock import Clock
from producers.devices import Devices
from producers.kernel_events import SOURCE, KernelEvents
from producers.kernel_log import KernelLog
from producers.limit import Limit
from producers.links import Links
from producers.notices import Notice, Notices
from producers.reading import Host

log = logging.getLogger(__name__)


class Watch:
    """Asks its sources once a batch, and gives what they say to `notices`, bounded.

    steady  clock that never jumps, ns
    """

    def __init__(
        self,
        notices: Notices,
        *,
        kernel_log: KernelLog,
        events: KernelEvents,
        links: Links,
        devices: Devices,
        wall: Callable[[], int],
        steady: Callable[[], int],
    ) -> None:
        self._notices = notices
        self._log = kernel_log
        self._events = events
        self._links = links
        self._devices = devices
        self._wall = wall
        self._steady = steady
        self._limit = Limit()
        self._lost = 0

    @property
    def problem(self) -> str:
        """Why the kernel's log is not read, in words; empty while all is well."""
        return self._log.problem

    def start(self) -> None:
        """Open all sources: what happens from now on is told."""
        self._log.open()
        self._links.open()
        self.look()

    def look(self) -> None:
        """Take notice of what happened since the last call. Raises nothing: the samples go on, whatever comes."""
        sources: tuple[Callable[[], Iterable[Notice]], ...] = (self._kernel_says, self._links.look, self._devices.look)
        for source in sources:
            try:
                self._tell(source())
            except Exception:
                log.exception("cannot look out for events")
        for notice in self._limit.summaries(self._steady()):
            self._notices.put(notice)
        if lost := self._log.lost + self._limit.uncounted - self._lost:
            self._lost += lost
            message = f"{lost} messages of the kernel's log were too many to be read or told"
            self._notices.add("samples_lost", "cpu", message, source=SOURCE, code=lost)

    def close(self) -> None:
        """Give all descriptors back."""
        self._log.close()
        self._links.close()

    def _tell(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            for told in self._limit.take(notice, self._steady()):
                self._notices.put(told)

    def _kernel_says(self) -> Iterator[Notice]:
        for time_ns, line in self._log.read():
            yield from self._events(line, time_ns)
        yield from self._events.overdue(self._wall())


def new_watch(host: Host, clock: Clock) -> Watch:
    """A watch over this machine, not started."""
    return Watch(
        host.notices,
        kernel_log=KernelLog(host.settings.kmsg, clock.wall_ns, clock.monotonic_ns),
        events=KernelEvents(host.gpus.instance, host.wanted),
        links=Links(host.wanted, clock.wall_ns),
        devices=Devices(host.roots["sys"], host.wanted, clock.wall_ns),
        wall=clock.wall_ns,
        steady=clock.monotonic_ns,
    )
