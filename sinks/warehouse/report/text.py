"""The report for a terminal."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from typing import Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sinks.warehouse.report import words
from sinks.warehouse.report.content import Report
from sinks.warehouse.report.spark import spark

WIDTH: Final = 110
NARROWEST: Final = 60
KEPT: Final = 40
"""Columns of the evidence are at most so wide; what is longer pushes the others to the right."""
GRAVE: Final = {"critical": "bold red", "warning": "bold"}


def text(report: Report, width: int = WIDTH, *, color: bool = False) -> str:
    """The report in lines of at most `width` columns, NARROWEST at least; with ANSI colours if wanted."""
    width = max(width, NARROWEST)
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        for part in _parts(report, width):
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    incident = report.incident
    yield Text(words.headline(incident), "bold")
    if incident.explanation:
        yield Text(incident.explanation)
    yield Text()
    facts = _grid(2)
    for name, value in words.facts(report):
        facts.add_row(Text(name, "dim"), Text(value))
    yield facts
    yield from _advice(report)
    yield _title("Share of each subsystem")
    yield _shares(report)
    yield _title("One host or many")
    yield Text(words.fleet(report.fleet, incident.subsystem))
    for each in report.fleet.first:
        cause = each.cause or "cause unknown"
        yield Text(f"  {words.clock(each.start)}  {each.host}  {each.subsystem}, {cause}  {each.id}")
    yield _title("Evidence")
    yield from _evidence(report)
    yield _title("Before │ during │ after")
    yield _plots(report, width)
    if told := words.without_plot(report):
        yield Text(told, "dim")
    yield _title(f"Timeline, UTC, from {words.moment(report.span.begin)} to {words.moment(report.span.end)}")
    yield _timeline(report)
    if report.more:
        yield Text(f"{report.more:,} more are not listed.", "dim")
    yield _title("What was not seen")
    for told in words.unseen(report):
        yield Text(told)
    yield Text()
    yield Text(words.SEVERITY, "dim")


def _title(told: str) -> RenderableType:
    return Group(Text(), Text(told, "bold underline"))


def _advice(report: Report) -> Iterator[RenderableType]:
    if report.incident.checks:
        yield _title("Check")
        for check in report.incident.checks:
            yield Padding(Text(check), (0, 0, 0, 2))
    if report.incident.remedy:
        yield _title("Remedy")
        yield Text(report.incident.remedy)


def _shares(report: Report) -> Table:
    table = _grid(3)
    for name, share in sorted(report.incident.shares.items(), key=lambda item: -item[1]):
        bar = "█" * round(30 * min(max(share, 0.0), 1.0)) if math.isfinite(share) else ""
        table.add_row(Text(name), Text(words.share(share), justify="right"), Text(bar, "blue"))
    return table


def _evidence(report: Report) -> Iterator[RenderableType]:
    """Two lines a row: figures below each other, then what they are of."""
    if not report.evidence:
        yield Text(words.NO_EVIDENCE)
        return
    rows = [
        (
            proof.metric + (f" on {proof.instance}" if proof.instance else ""),
            words.observed(proof),
            f"usually {words.expected(proof)}",
            words.unusual(proof),
            words.contribution(proof),
        )
        for proof in report.evidence
    ]
    widths = [min(KEPT, max(map(cell_len, column))) for column in zip(*rows, strict=True)]
    for proof, (name, *figures) in zip(report.evidence, rows, strict=True):
        cells = [_padded(told, width) for told, width in zip(figures, widths[1:], strict=True)]
        yield Text.assemble((_padded(name, widths[0]), "bold"), "  ", "  ".join(cells))
        about = "; ".join(filter(None, (words.feature(proof) + words.since(proof), proof.reveals)))
        yield Padding(Text(about, "dim"), (0, 0, 0, 4))


def _padded(told: str, width: int) -> str:
    return told + " " * max(0, width - cell_len(told))


def _plots(report: Report, width: int) -> RenderableType:
    """A name above each line, so that the line is as long as the terminal allows."""
    lines = []
    for plot in report.plots:
        series, unit = plot.series, plot.unit
        low, high = words.figure(min(series.line), unit), words.figure(max(series.line), unit)
        drawn = spark(series.at, series.line, report.span, report.incident, width - 2)
        lines.append(
            _plot(f"{plot.metric}, {plot.what}", "; ".join((f"{low} to {high}", *words.compared(plot))), drawn)
        )
    scored = [each for each in report.judgements if math.isfinite(each.severity)]
    if scored:
        values = [each.severity for each in scored]
        told = f"{words.number(min(values))} to {words.number(max(values))}"
        drawn = spark([each.at for each in scored], values, report.span, report.incident, width - 2)
        lines.append(_plot("severity", told, drawn))
    return Group(*lines) if lines else Text("Nothing is stored of this time.")


def _plot(name: str, told: str, drawn: str) -> Text:
    return Text.assemble(name, ("  " + told, "dim"), "\n", (drawn, "blue"))


def _timeline(report: Report) -> Table:
    table = _table(("at", "", "what", "subsystem", "detail"))
    for each in report.happenings:
        style = GRAVE.get(each.grave, "") if each.kind == "event" else ""
        table.add_row(
            Text(words.clock(each.at)),
            Text(words.phase(report.incident, each.at)),
            Text(each.what, style),
            Text(each.subsystem),
            Text(each.detail),
        )
    return table


def _table(titles: Sequence[str]) -> Table:
    """A table; titles that begin with # stand over numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for title in titles:
        table.add_column(title.removeprefix("#"), justify="right" if title.startswith("#") else "left", overflow="fold")
    return table


def _grid(columns: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(columns):
        grid.add_column(overflow="fold")
    return grid
