"""Episodes in words: host, probable cause, since when, in which order, and the strongest evidence, with figures that an
operator can read aloud.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from schemas.records import Episode, Evidence
from schemas.units import PREFIXED, PREFIXES, humane
from stream_processors.causes import causes, fill

LEADING: Final = 3
SECOND_NS: Final = 1_000_000_000


def explained(episode: Episode) -> Episode:
    """`episode` with its explanation, and with the checks and the remedy of its cause."""
    cause = causes().get(episode.cause or "")
    rows = episode.evidence
    since = f"since {datetime.fromtimestamp(episode.start_ns / SECOND_NS, UTC):%H:%M:%S} UTC"
    if cause is None:
        share = episode.shares.get(episode.subsystem, 0.0)
        head = f"{episode.host}: {episode.subsystem} ({share:.0%} of the deviation), cause unknown, {since}"
        return replace(episode, explanation=_joined([head, *_order(rows), *_strongest(episode)]), checks=(), remedy="")
    figures = {row.metric: figure(row) for row in rows}
    told = [sentence.rstrip(".") for sentence in fill(cause.explanation, figures)]
    head = f"{episode.host}: {episode.subsystem} ({cause.title}, {episode.confidence:.0%} certain), {since}"
    return replace(
        episode,
        explanation=_joined([head, *told, *_order(rows), *_strongest(episode)]),
        checks=tuple(fill(cause.checks, {"instance": _instance(cause.metrics, rows)})),
        remedy=cause.remedy,
    )


def figure(row: Evidence) -> str:
    """A row's value and what is usual, with unit and instance."""
    if row.instance_observed is not None and row.instance_expected is not None:
        where = f" on {row.instance}"
        return f"{amount(row.instance_observed, row.unit)}{where} (usually {amount(row.instance_expected, row.unit)})"
    usual = amount(row.expected, row.unit)
    what = "" if row.feature == "level" else f" as {row.feature}"
    return f"{amount(row.observed, row.unit)}{what} (usually {usual})"


def amount(value: float, unit: str) -> str:
    """`value` in a unit and with a number of digits that people read."""
    factor, unit = humane(unit)
    value *= factor
    prefix = ""
    if unit in PREFIXED:
        for size, letter in PREFIXES:
            if abs(value) >= size:
                value, prefix = value / size, letter
                break
    number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{number} {prefix}{unit}".rstrip()


def _strongest(episode: Episode) -> list[str]:
    mine = [row for row in episode.evidence if row.subsystem == episode.subsystem]
    lead = [*mine, *(row for row in episode.evidence if row not in mine)][:LEADING]
    if not lead:
        return ["Many small deviations, none of them leading"]
    return ["Strongest: " + "; ".join(f"{row.metric} {figure(row)}" for row in lead)]


def _order(rows: Iterable[Evidence]) -> list[str]:
    """In which order the subsystems became strange, if they did so one after the other."""
    first: dict[str, int] = {}
    for row in rows:
        if row.since_ns is not None:
            first[row.subsystem] = min(first.get(row.subsystem, row.since_ns), row.since_ns)
    if len(set(first.values())) < 2:
        return []
    ordered = sorted(first.items(), key=lambda each: (each[1], each[0]))
    begin = ordered[0][1]
    late = [f"{name} (+{(since - begin) / SECOND_NS:.0f} s)" for name, since in ordered if since > begin]
    together = " and ".join(name for name, since in ordered if since == begin)
    return [f"First {together}, then {', '.join(late)}"]


def _instance(metrics: Sequence[str], rows: Iterable[Evidence]) -> str:
    """Strangest instance of the first of `metrics` that has one."""
    by_metric = {row.metric: row.instance for row in rows if row.instance}
    return next((by_metric[name] for name in metrics if name in by_metric), "DEVICE")


def _joined(sentences: Iterable[str]) -> str:
    return ". ".join(sentence for sentence in sentences)
