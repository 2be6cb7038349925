"""Short ways to make files of a machine, and to ask a source that is no set of files what it has to say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from producers.collector import Collector
from producers.reading import Host, Source
from producers.selection import Selection
from producers.source import ThreadSource
from schemas.settings import AgentSettings
from tests.unit.producers.readings import Values, values
from tests.unit.producers.tree import FakeClock


def write(root: Path, path: str, text: str) -> Path:
    """Put a file below `root`."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def host(root: Path, clock: Callable[[], int] | None = None, **patterns: Sequence[str]) -> Host:
    """A host whose files are below `root`, with patterns of what is wanted by dimension."""
    roots = {"proc": str(root / "proc"), "sys": str(root / "sys")}
    settings = AgentSettings(rootfs=str(root))
    return Host(roots, clock or FakeClock().monotonic_ns, Selection(patterns), settings)


def source(collector: Collector, of: Host) -> Source:
    """The source of a collector that makes its own."""
    assert collector.source is not None
    return collector.source(collector, of)


def read(collector: Collector, at: Source) -> Values:
    """What the source has to say once it is asked, within ten seconds; nothing if it has nothing by then."""
    at.request(1)
    for thread in threading.enumerate():
        if thread.name == f"probe-{collector.name}":
            thread.join(10)
    deadline = time.monotonic() + 10
    while (reading := at.read(1)) is None and isinstance(at, ThreadSource) and time.monotonic() < deadline:
        time.sleep(0.001)
    return values(collector.parser()(reading[1])) if reading else {}
