"""The report as an HTML page that needs nothing else: no script, no file, no address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sinks.warehouse.report import words
from sinks.warehouse.report.chart import HATCH, metric_chart, onset_chart, severity_chart, share_bars
from sinks.warehouse.report.content import Plot, Proof, Report
from sinks.warehouse.report.markup import Markup, element, together

STYLE: Final = Markup("""
:root { color-scheme: light dark; --ground: #fff; --text: #1b1f24; --faint: #656d76; --rule: #d8dee4;
  --line: #0b62c4; --band: #0b62c452; --expected: #197a36; --during: #f0820022; --strange: #c93c18; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ground: #0f1318; --text: #e4e9ee; --faint: #98a2ad; --rule: #313a44;
  --line: #63aaff; --band: #63aaff52; --expected: #56c26f; --during: #f0a0302e; --strange: #ff8a66; --card: #171d24; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 .2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; padding-bottom: .2rem; border-bottom: 1px solid var(--rule); }
h3 { color: var(--text); font-size: .92rem; margin: 0; overflow-wrap: anywhere; }
code { font: .9em ui-monospace, "DejaVu Sans Mono", monospace; }
p, li { overflow-wrap: anywhere; max-width: 62rem; } ul { padding-left: 1.3rem; }
.faint, figcaption { color: var(--faint); font-size: .85rem; }
.lead { font-size: 1.05rem; margin: 0 0 1rem; color: var(--faint); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1rem 1.5rem;
  align-items: start; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--faint); }
th, td { padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td { overflow-wrap: break-word; min-width: 3.5rem; } .text { min-width: 11rem; }
.number { text-align: right; white-space: nowrap; } .stay { white-space: nowrap; }
.critical { color: var(--strange); font-weight: 600; } .warning { font-weight: 600; }
figure { margin: 0; padding: .7rem .8rem .4rem; background: var(--card); border: 1px solid var(--rule);
  border-radius: 6px; break-inside: avoid; }
svg { display: block; width: 100%; height: auto; } svg text { font-size: 10.5px; fill: var(--faint); }
.grid { stroke: var(--rule); stroke-width: .7; } .tick { stroke: var(--faint); } .during { fill: var(--during); }
.unseen { fill: url(#hatch); } .hatch { stroke: var(--faint); stroke-width: 1.2; }
.defs { position: absolute; width: 0; height: 0; } .peak { stroke: var(--strange); stroke-dasharray: 1.5 3; }
.band { fill: var(--band); } .line { fill: none; stroke: var(--line); stroke-width: 1.5; stroke-linejoin: round; }
.own { fill: none; stroke: var(--strange); stroke-width: 1.2; stroke-linejoin: round; }
.samples { fill: none; stroke: var(--line); } .behind { stroke-width: .6; opacity: .5; }
.point { fill: var(--line); stroke: none; } .point.own { fill: var(--strange); }
.strange { fill: var(--strange); } .bar { fill: var(--line); }
.seen { stroke: var(--strange); stroke-width: 2; }
.expected { stroke: var(--expected); stroke-width: 1.3; stroke-dasharray: 6 4; }
.key { display: inline-block; width: 1.5em; height: 0; margin-right: .35em; vertical-align: middle;
  border-top: 2px solid var(--line); } .key.usual { border-top: 2px dashed var(--expected); }
.key.room { height: .7em; border: 0; background: var(--band); } .key.time { height: .7em; border: 0;
  background: var(--during); } .key.blind { height: .7em; border: 0;
  background: repeating-linear-gradient(135deg, var(--faint) 0 1px, transparent 1px 4px); }
.key.seen { border-top: 2px solid var(--strange); }
.key.most { border-top: 2px dotted var(--strange); }
.closer { margin: .2rem 0 0; } .legend span { margin-right: 1.2em; white-space: nowrap; }
@media print { :root { --ground: #fff; --text: #000; --faint: #444; --rule: #bbb; --line: #0b4fa0; --band: #0b62c452;
  --expected: #0f6a2b; --during: #f0820028; --strange: #b02f0e; --card: #fff; color-scheme: light; }
  body { max-width: none; padding: 0; font-size: 10pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .two { grid-template-columns: 1fr 1fr; } tr, figure { break-inside: avoid; } h2 { break-after: avoid; }
  .wide { overflow: visible; } table { font-size: 7.5pt; } th, td { padding-right: .4rem; } .text { min-width: 0; }
  @page { margin: 14mm; } }
""")
NO_OUTSIDE: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report) -> str:
    """The whole page."""
    incident = report.incident
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=NO_OUTSIDE),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="robots", content="noindex"),
        element("title", f"{words.headline(incident)} ({incident.id})"),
        element("style", STYLE),
    )
    body = element("body", HATCH, *_header(report), element("main", *_sections(report)))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _header(report: Report) -> Iterator[Markup]:
    incident = report.incident
    yield element("h1", words.headline(incident))
    state = "open" if incident.closed is None else "closed"
    yield element(
        "p",
        f"since {words.moment(incident.start)}, {words.lasted(incident)}, {state}, "
        f"peak severity {words.number(incident.peak_severity)}",
        class_="lead",
    )
    if incident.explanation:
        yield element("p", incident.explanation)


def _sections(report: Report) -> Iterator[Markup]:
    incident = report.incident
    if incident.checks or incident.remedy:
        yield element("h2", "What to do")
        yield from _advice(report)
    yield element("h2", "The episode")
    names = [(element("dt", name), element("dd", value)) for name, value in words.facts(report)]
    yield element(
        "div",
        element("dl", *(piece for pair in names for piece in pair)),
        element("div", element("h3", "Share of each subsystem"), share_bars(incident.shares)),
        class_="two",
    )
    yield element("p", words.SEVERITY, class_="faint")
    yield element("h2", "One host or many")
    yield from _fleet(report)
    yield element("h2", "Evidence")
    yield _evidence(report)
    yield element("h2", "Before, during and after")
    yield _legend()
    yield element("div", *(_figure(plot, report) for plot in report.plots), _severity(report), class_="two")
    yield from _missing_plots(report)
    yield element("h2", "Timeline")
    yield _timeline(report)
    if report.more:
        yield element("p", f"{report.more:,} more are not listed.", class_="faint")
    yield element("h2", "What was not seen")
    yield from _coverage(report)


def _advice(report: Report) -> Iterator[Markup]:
    if report.incident.checks:
        yield element("h3", "Check")
        yield element("ul", *(element("li", element("code", check)) for check in report.incident.checks))
    if report.incident.remedy:
        yield element("h3", "Remedy")
        yield element("p", report.incident.remedy)


def _fleet(report: Report) -> Iterator[Markup]:
    yield element("p", words.fleet(report.fleet, report.incident.subsystem))
    if report.fleet.first:
        rows = [
            (
                element("td", words.moment(each.start), class_="stay"),
                element("td", each.host, class_="stay"),
                element("td", each.subsystem),
                element("td", each.cause or words.UNKNOWN, class_="stay"),
                element("td", words.number(each.peak_severity), class_="number"),
                element("td", each.id, class_="stay"),
            )
            for each in report.fleet.first
        ]
        yield _table(("since", "host", "subsystem", "cause", "#peak severity", "episode"), rows)


def _evidence(report: Report) -> Markup:
    if not report.evidence:
        return element("p", words.NO_EVIDENCE)
    rows = [_proof(proof) for proof in report.evidence]
    titles = ["metric", "instance", "#observed", "#expected", "how unusual", "what of it", "what it reveals"]
    if any(proof.contribution > 0 for proof in report.evidence):
        titles.append("#share")
        rows = [
            (*row, element("td", words.contribution(proof), class_="number"))
            for row, proof in zip(rows, report.evidence, strict=True)
        ]
    if any(proof.since is not None for proof in report.evidence):
        titles.append("since")
        rows = [
            (*row, element("td", "" if proof.since is None else words.clock(proof.since), class_="stay"))
            for row, proof in zip(rows, report.evidence, strict=True)
        ]
    return _table(titles, rows)


def _proof(proof: Proof) -> tuple[Markup, ...]:
    return (
        element("td", proof.metric, class_="stay"),
        element("td", proof.instance, class_="stay"),
        element("td", words.observed(proof), class_="number"),
        element("td", words.expected(proof), class_="number"),
        element("td", words.unusual(proof), class_="stay"),
        element("td", words.feature(proof), class_="text"),
        element("td", proof.reveals, class_="text"),
    )


def _legend() -> Markup:
    keys = (
        ("", "mean over instances, of a second; thin: of each sample, where these are kept"),
        ("room", "lowest to highest sample of any instance"),
        ("usual", "what to compare with"),
        ("time", "during the episode"),
        ("most", "peak"),
        ("seen", "the instance that deviates most: each sample, or its level at its strangest"),
        ("blind", "no data"),
    )
    spans = [element("span", element("span", class_=f"key {name}".strip()), told) for name, told in keys]
    return element("p", *spans, class_="faint legend")


def _figure(plot: Plot, report: Report) -> Markup:
    unit = f", {plot.unit}" if plot.unit else ""
    told = "; ".join((plot.what, *words.compared(plot)))
    caption = element("figcaption", element("h3", f"{plot.metric}{unit}"), told)
    onset = onset_chart(plot, report)
    told = f"since {words.clock(plot.since)}, sample by sample"
    closer = [] if onset is None else [element("p", told, class_="faint closer"), onset]
    return element("figure", caption, metric_chart(plot, report), *closer)


def _severity(report: Report) -> Markup:
    caption = element("figcaption", element("h3", "severity"), "of the host's windows; anomalous ones have a dot")
    return element("figure", caption, severity_chart(report.judgements, report))


def _missing_plots(report: Report) -> Iterator[Markup]:
    if told := words.without_plot(report):
        yield element("p", told, class_="faint")


def _timeline(report: Report) -> Markup:
    rows = [
        (
            element("td", words.clock(each.at), class_="stay"),
            element("td", words.phase(report.incident, each.at)),
            element("td", each.what, class_=each.grave if each.kind == "event" else "plain"),
            element("td", each.subsystem),
            element("td", each.detail, class_="text"),
        )
        for each in report.happenings
    ]
    return together(
        element("p", f"From {words.moment(report.span.begin)} to {words.moment(report.span.end)}.", class_="faint"),
        _table(("UTC", "", "what", "subsystem", "detail"), rows),
    )


def _coverage(report: Report) -> Iterator[Markup]:
    yield element("ul", *(element("li", told) for told in words.unseen(report)))


def _table(titles: Sequence[str], rows: Sequence[Sequence[Markup]]) -> Markup:
    """A table; titles that begin with # stand over numbers."""
    heads = [
        element("th", title.removeprefix("#"), class_="number" if title.startswith("#") else "stay") for title in titles
    ]
    body = [element("tr", *row) for row in rows]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *body))
    return element("div", table, class_="wide")
