"""A source over the fake library, driven as the frame drives it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from producers.collectors.gpu import GPU
from producers.gpu.patience import PATIENCE, Patience
from producers.gpu.process import GpuSource
from producers.notices import Notice, Notices
from producers.reading import Host, Wanted, everything
from schemas.settings import AgentSettings
from tests.nvml.fake import FakeNvml
from tests.unit.producers.readings import Values, values

PATIENCE_S = 30.0


class Driven:
    """Reads through a real process; `step` is one sample."""

    def __init__(self, nvml: FakeNvml, patience: Patience = PATIENCE, wanted: Wanted = everything) -> None:
        self.notices = Notices()
        settings = AgentSettings(nvml=str(nvml.path))
        roots = {"sys": str(nvml.sys), "proc": str(nvml.proc)}
        self.host = Host(roots, time.monotonic_ns, wanted, settings, self.notices)
        self.source = GpuSource(GPU, self.host, patience=patience)
        self.seen: list[Notice] = []
        self.notes: tuple[str, ...] = ()
        self._parser = GPU.parser()

    @property
    def pid(self) -> int:
        """Process id of the child."""
        process = self.source._process
        assert process is not None
        return process.pid

    def step(self) -> Values | None:
        """One sample: raw values, if there are any."""
        now_ns = time.monotonic_ns()
        self.source.request(now_ns)
        reading = self.source.read(now_ns)
        with self.notices._lock:
            self.seen += self.notices._queue
            self.notices._queue.clear()
        if reading is None:
            return None
        layout, cells = self._parser(reading[1])
        self.notes = layout.notes
        return values((layout, cells))

    def until(self, good: Callable[[Values], object], what: str, *, stale: bool = False) -> Values:
        """The first values that are `good`; of those that only tell how old the last ones are, if `stale`."""
        deadline = time.monotonic() + PATIENCE_S
        found: Values | None = None
        while time.monotonic() < deadline:
            found = self.step() or found
            if found is not None and stale == (found["gpu.stale", ""] > 0) and good(found):
                return found
            time.sleep(0.02)
        raise AssertionError(f"no {what} within {PATIENCE_S} s; notices {self.seen}, last {found}")

    def wait(self, good: Callable[[], object], what: str) -> None:
        """Sample until `good`."""
        deadline = time.monotonic() + PATIENCE_S
        while not good():
            assert time.monotonic() < deadline, f"no {what} within {PATIENCE_S} s; notices {self.seen}"
            self.step()
            time.sleep(0.02)

    def kinds(self) -> list[str]:
        """Kinds of all notices so far."""
        return [notice.kind for notice in self.seen]


@contextmanager
def driven(nvml: FakeNvml, patience: Patience = PATIENCE, wanted: Wanted = everything) -> Iterator[Driven]:
    """A source that is closed at the end."""
    found = Driven(nvml, patience, wanted)
    try:
        yield found
    finally:
        found.source.close()
