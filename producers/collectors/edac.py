"""/sys/devices/system/edac/mc: memory errors of each controller, corrected and not.

Where a controller keeps no total, that of its rows of chips, or of its modules, is added up, with what could not be
told from which they came.
"""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Parser, plain
from producers.collectors.sysfs import Channel, Meaning, Sysfs
from producers.reading import Texts

CONTROLLER: Final = "sys/devices/system/edac/mc/mc[0-9]*"
PATH: Final = re.compile(r"/(mc\d+)/(?:(csrow|dimm)\d+/)?(?:dimm_)?(ce|ue)(_noinfo)?_count$")
# Where totals come from, best first; modules are listed beside the rows of chips that they hold.
LEVELS: Final = (None, "csrow", "dimm")


def describe(texts: Texts) -> Meaning:
    """Files of each controller and kind of error."""
    found: dict[Channel, dict[str | None, list[str]]] = {}
    loose: dict[Channel, list[str]] = {}
    for path in texts:
        if match := PATH.search(path):
            controller, level, kind, noinfo = match.groups()
            channel = (f"edac.{kind}", controller)
            if noinfo:
                loose.setdefault(channel, []).append(path)
            else:
                found.setdefault(channel, {}).setdefault(level, []).append(path)
    channels = {}
    for channel, levels in found.items():
        level = next(level for level in LEVELS if level in levels)
        channels[channel] = levels[level] if level is None else levels[level] + loose.get(channel, [])
    return Meaning(channels)


def _parser() -> Parser:
    return Sysfs(describe)


EDAC = Collector(
    "edac",
    (
        # Both kinds, and what could not be told from which they came.
        f"{CONTROLLER}/[cu]e*_count",
        f"{CONTROLLER}/csrow[0-9]*/[cu]e_count",
        f"{CONTROLLER}/dimm[0-9]*/dimm_[cu]e_count",
    ),
    plain(_parser),
    ("edac.ce", "edac.ue"),
    every_ms=1000,
)
