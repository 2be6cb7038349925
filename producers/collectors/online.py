"""/sys/devices/system/cpu/online: how many CPUs there are at the moment."""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Layout, ParseError, Parser, Reading, only, plain
from producers.reading import Texts

LAYOUT: Final = Layout((("cpu.online", ""),))
RANGE: Final = re.compile(rb"(\d+)(?:-(\d+))?")


class Online:
    """Parser of a list such as 0-3,8."""

    def __call__(self, texts: Texts) -> Reading:
        """Number of CPUs."""
        count = 0
        for part in only(texts).strip().split(b","):
            match = RANGE.fullmatch(part)
            if not match:
                raise ParseError(f"{part!r} is no range of CPUs")
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                raise ParseError(f"{part!r} is no range of CPUs")
            count += last - first + 1
        return LAYOUT, [count]


def _parser() -> Parser:
    return Online()


ONLINE = Collector("online", ("sys/devices/system/cpu/online",), plain(_parser), ("cpu.online",), every_ms=1000)
