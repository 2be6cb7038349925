"""A made-up /proc and /sys, read by the source of one collector and made published values of."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from producers.collector import Collector
from producers.rates import Rates
from producers.reading import Host, Problem
from producers.source import InlineSource
from schemas.catalogue import catalogue
from tests.unit.producers.readings import Values
from tests.unit.producers.tree import FakeClock

SECOND_NS = 1_000_000_000
# After this long a source looks again which files there are.
LOOK_S = 11.0


class Watched:
    """One collector over files below `root`; `read` gives raw values, `rates` published ones."""

    def __init__(self, collector: Collector, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.keeper = Rates(collector, catalogue())
        roots = {"proc": str(root / "proc"), "sys": str(root / "sys")}
        self.source = InlineSource(collector, Host(roots, self.clock.monotonic_ns), patient=True)
        self._parser = collector.parser()

    def write(self, files: dict[str, str]) -> None:
        """Put files there, new or changed in place."""
        for path, text in files.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def remove(self, path: str) -> None:
        """Take a file away."""
        (self.root / path).unlink()

    def read(self, after_s: float = 1.0) -> Values:
        """Raw values, some time later; empty when there is nothing to be read."""
        return self._look(after_s, published=False)

    def rates(self, after_s: float = 1.0) -> Values:
        """Published values, some time later."""
        return self._look(after_s, published=True)

    def problems(self) -> list[Problem]:
        """What the source finds wrong with any file."""
        return [found for found in self.source.problems(self.clock.monotonic_ns()) if "*" not in found.path]

    def _look(self, after_s: float, *, published: bool) -> Values:
        self.clock.pass_ns(round(after_s * SECOND_NS))
        reading = self.source.read(self.clock.monotonic_ns())
        if reading is None:
            return {}
        time_ns, texts = reading
        layout, cells = self._parser(texts)
        assert len(layout.channels) == len(cells) == len(set(layout.channels))
        if published:
            cells = self.keeper(layout, np.array([time_ns / SECOND_NS]), np.array([cells], float))[0].tolist()
        return dict(zip(layout.channels, cells, strict=True))
