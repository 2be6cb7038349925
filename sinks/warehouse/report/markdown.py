"""The report as Markdown, as GitHub, GitLab and most wikis and chats read it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

from sinks.warehouse.report import words
from sinks.warehouse.report.content import Report
from sinks.warehouse.report.spark import spark

COLUMNS: Final = 72
# What readers of Markdown obey within a line; an underscore within a word is none of it.
_SPECIAL: Final = re.compile(r"[\\`*\[\]<>#|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|&(?=[#\w])|(?<=:)/(?=/)|(?<=www)\.")
# And at its start: lists, rules, underlines of headings.
_OPENING: Final = re.compile(r"^(\d{1,9}(?=[.)](?:\s|$))|(?=[-+=]))")


def markdown(report: Report) -> str:
    """The whole report."""
    return "\n".join(_lines(report)) + "\n"


def plain(text: str) -> str:
    """`text` with every character that Markdown would obey escaped; one line."""
    return _OPENING.sub(r"\1\\", _SPECIAL.sub(r"\\\g<0>", " ".join(text.split())))


def code(text: str) -> str:
    """`text` as code, within one line."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    edge = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{edge}{text}{edge}{fence}" if text else ""


def _cell(text: str) -> str:
    """`text` as code in a table, which would end its cell even within code."""
    return code(text).replace("|", "\\|")


def _lines(report: Report) -> Iterator[str]:
    incident = report.incident
    yield from (f"# {plain(words.headline(incident))}", "")
    if incident.explanation:
        yield from (plain(incident.explanation), "")
    yield from _table(("", ""), [(plain(name), plain(value)) for name, value in words.facts(report)])
    yield from _advice(report)
    yield from ("## Share of each subsystem", "")
    shares = sorted(incident.shares.items(), key=lambda item: -item[1])
    yield from _table(("subsystem", "#share"), [(plain(name), words.share(share)) for name, share in shares])
    yield from ("## One host or many", "", plain(words.fleet(report.fleet, incident.subsystem)), "")
    if report.fleet.first:
        neighbours = [
            (
                words.moment(each.start),
                plain(each.host),
                plain(each.subsystem),
                plain(each.cause or words.UNKNOWN),
                words.number(each.peak_severity),
                _cell(each.id),
            )
            for each in report.fleet.first
        ]
        yield from _table(("since", "host", "subsystem", "cause", "#peak severity", "episode"), neighbours)
    yield from ("## Evidence", "")
    yield from _evidence(report)
    yield from ("## Before, during and after", "")
    yield from _plots(report)
    yield from ("## Timeline", "")
    yield from (f"From {words.moment(report.span.begin)} to {words.moment(report.span.end)}.", "")
    rows = [
        (
            words.clock(each.at),
            words.phase(incident, each.at),
            plain(each.what),
            plain(each.subsystem),
            plain(each.detail),
        )
        for each in report.happenings
    ]
    yield from _table(("UTC", "", "what", "subsystem", "detail"), rows)
    if report.more:
        yield from (f"{report.more:,} more are not listed.", "")
    yield from ("## What was not seen", "")
    for told in words.unseen(report):
        yield f"- {plain(told)}"
    yield ""
    yield plain(words.SEVERITY)


def _advice(report: Report) -> Iterator[str]:
    if report.incident.checks:
        yield from ("## Check", "", *(f"- {code(check)}" for check in report.incident.checks), "")
    if report.incident.remedy:
        yield from ("## Remedy", "", plain(report.incident.remedy), "")


def _evidence(report: Report) -> Iterator[str]:
    if not report.evidence:
        yield from (words.NO_EVIDENCE, "")
        return
    rows = [
        (
            _cell(proof.metric),
            plain(proof.instance),
            plain(words.observed(proof)),
            plain(words.expected(proof)),
            plain(words.unusual(proof)),
            words.contribution(proof),
            plain(words.feature(proof) + words.since(proof)),
            plain(proof.reveals),
        )
        for proof in report.evidence
    ]
    yield from _table(
        ("metric", "instance", "#observed", "#expected", "how unusual", "#share", "what of it", "what it reveals"), rows
    )


def _plots(report: Report) -> Iterator[str]:
    """Lines of characters in a block of code, where they keep their width."""
    yield "```text"
    for plot in report.plots:
        series, unit = plot.series, plot.unit
        yield _block(spark(series.at, series.line, report.span, report.incident, COLUMNS))
        low, high = words.figure(min(series.line), unit), words.figure(max(series.line), unit)
        yield _block(f"{plot.metric}, {plot.what}: " + "; ".join((f"{low} to {high}", *words.compared(plot))))
    scored = [each for each in report.judgements if math.isfinite(each.severity)]
    if scored:
        values = [each.severity for each in scored]
        yield _block(spark([each.at for each in scored], values, report.span, report.incident, COLUMNS))
        yield f"severity: {words.number(min(values))} to {words.number(max(values))}"
    yield from ("```", "")
    if told := words.without_plot(report):
        yield from (plain(told), "")


def _block(line: str) -> str:
    """A line within the block: none of its own ends the block."""
    return line.replace("```", "'''")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of cells that are Markdown already; titles that begin with # stand over numbers."""
    yield "| " + " | ".join(title.removeprefix("#") for title in titles) + " |"
    yield "|" + "|".join("--:" if title.startswith("#") else "---" for title in titles) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""
