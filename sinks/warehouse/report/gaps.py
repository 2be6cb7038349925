"""What was not seen: gaps between batches, those lost on the way, and what the agent could not keep. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sinks.warehouse.report.content import Coverage, Gap, Span

TOLERANCE_S: Final = 0.5
"""Batches of one subsystem lie so close: a sample or two that came late is no gap."""
MOST_GAPS: Final = 20


@dataclass(frozen=True, slots=True)
class Summary:
    """Batches of one subsystem in a span: their first and last moment, and the seconds that their samples cover."""

    first: float
    last: float
    covered_s: float
    dropped: int
    flawed: int


@dataclass(frozen=True, slots=True)
class Break:
    """Between two batches of a subsystem: from the end of one to the start of the next. `missing` batches lie between
    them by their sequence numbers; 0 where the agent was started anew.
    """

    subsystem: str
    begin: float
    end: float
    missing: int


def coverage(span: Span, summaries: Mapping[str, Summary], breaks: Iterable[Break], known: Sequence[str]) -> Coverage:
    """What of `span` was seen. `known` are the subsystems that the host has ever sent."""
    breaks = list(breaks)
    edges = [Break(name, span.begin, span.end, 0) for name in known if name not in summaries]
    for subsystem, summary in summaries.items():
        edges.append(Break(subsystem, span.begin, min(summary.first, span.end), 0))
        edges.append(Break(subsystem, max(summary.last, span.begin), span.end, 0))
    found = _together([each for each in (*edges, *breaks) if each.missing or each.end - each.begin > TOLERANCE_S])
    listed = sorted(sorted(found, key=lambda gap: gap.begin - gap.end)[:MOST_GAPS], key=lambda gap: gap.begin)
    whole = max(span.end - span.begin, 1e-9)
    return Coverage(
        seen={
            **dict.fromkeys(known, 0.0),
            **{name: min(1.0, max(0.0, each.covered_s / whole)) for name, each in summaries.items()},
        },
        gaps=tuple(listed),
        more=len(found) - len(listed),
        lost=sum(each.missing for each in breaks),
        dropped=sum(each.dropped for each in summaries.values()),
        flawed=sum(each.flawed for each in summaries.values()),
    )


def _together(breaks: Sequence[Break]) -> list[Gap]:
    """One gap for breaks of several subsystems that begin and end within the same seconds."""
    found: dict[tuple[int, int], Gap] = {}
    for each in sorted(breaks, key=lambda each: (each.begin, each.end, each.subsystem)):
        key = (round(each.begin), round(each.end))
        gap = found.get(key)
        if gap is None:
            found[key] = Gap(each.begin, each.end, (each.subsystem,), each.missing)
        else:
            subsystems = tuple(dict.fromkeys((*gap.subsystems, each.subsystem)))
            begin, end = min(gap.begin, each.begin), max(gap.end, each.end)
            found[key] = replace(gap, begin=begin, end=end, subsystems=subsystems, lost=gap.lost + each.missing)
    return list(found.values())
