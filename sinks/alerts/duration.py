"""Spans of time as people write them: 90, "90s", "5m", "1h30m", "7d"."""

from __future__ import annotations

import re
from typing import Final

SECOND_NS: Final = 1_000_000_000
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration(value: object) -> float:
    """Seconds. Raises ValueError for what is no span of time, or a negative one."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return float(value)
    if isinstance(value, str):
        text = value.strip().lower()
        if _WHOLE.fullmatch(text):
            return sum(float(number) * UNITS[unit] for number, unit in _PART.findall(text))
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text)
    raise ValueError(f'{value!r} is no span of time: write seconds, or such as "90s", "5m", "1h30m" or "7d"')


def in_words(seconds: float) -> str:
    """Such as 45 s, 5 min, 2 h 5 min, 3 d."""
    whole = max(0, round(seconds))
    for size, below, name, lower in ((86_400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {name}" + (f" {rest} {lower}" if rest else "")
    return f"{whole} s"
