"""A line of a plot in one row of characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from sinks.warehouse.report.content import Incident, Span

BARS: Final = "▁▂▃▄▅▆▇█"
MISSING: Final = "·"
EDGE: Final = "│"


def spark(at: Sequence[float], values: Sequence[float], span: Span, incident: Incident, columns: int) -> str:
    """`columns` characters, highest for the largest mean of a column, a dot where there is no value, and an edge
    before the episode and, once closed, after it.
    """
    width = (span.end - span.begin) / columns
    if not width > 0:
        return ""
    sums, counts = [0.0] * columns, [0] * columns
    for moment, value in zip(at, values, strict=True):
        if math.isfinite(value) and span.begin <= moment < span.end:
            column = min(int((moment - span.begin) / width), columns - 1)
            sums[column] += value
            counts[column] += 1
    means = [total / of if of else math.nan for total, of in zip(sums, counts, strict=True)]
    # A step may be longer than a column.
    _carry(means, math.ceil(span.step_s / width))
    known = [value for value in means if not math.isnan(value)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    drawn = [_bar(value, low, high) for value in means]
    begin = max(0, min(columns, round((incident.start - span.begin) / width)))
    end = max(begin, min(columns, round((incident.end - span.begin) / width)))
    parts = ["".join(drawn[:begin]), "".join(drawn[begin:end])]
    if incident.closed is None:
        return EDGE.join([parts[0], "".join(drawn[begin:])])
    return EDGE.join([*parts, "".join(drawn[end:])])


def _carry(means: list[float], steps: int) -> None:
    last, age = math.nan, steps
    for place, value in enumerate(means):
        if not math.isnan(value):
            last, age = value, 0
        elif age < steps - 1:
            age += 1
            means[place] = last


def _bar(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return MISSING
    if high <= low:
        return BARS[0]
    return BARS[round((value - low) / (high - low) * (len(BARS) - 1))]
