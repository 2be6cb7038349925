"""What docs/collectors.md tells people to write, written and run."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from producers.collector import Collector
from producers.reading import Host
from producers.source import InlineSource
from tests.unit.producers.readings import values

PAGE = Path(__file__).parents[3] / "docs" / "collectors.md"


def test_the_example_of_a_new_source_reads_this_machine() -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    collector = names["ENTROPY"]
    assert isinstance(collector, Collector)
    reading = InlineSource(collector, Host({"proc": "/proc"}, time.monotonic_ns)).read(0)
    assert reading is not None
    found = values(collector.parser()(reading[1]))
    assert set(found) == {(metric, "") for metric in collector.metrics}
    assert 0 < found["entropy.available", ""] <= 4096
