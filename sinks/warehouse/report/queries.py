"""Everything a report says, read from ClickHouse. Parameters are bound; columns that this program does not know are
shown, and those that it knows and the database lacks are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from schemas.catalogue import SUBSYSTEMS, catalogue
from schemas.records import EVENT_KINDS
from schemas.units import humane
from sinks.warehouse.report import statements as sql
from sinks.warehouse.report import words
from sinks.warehouse.report.choice import Ask, ReportError, seconds
from sinks.warehouse.report.content import (
    EVENT,
    Coverage,
    Fleet,
    Happening,
    Incident,
    Judgement,
    Neighbour,
    Proof,
    Report,
    Span,
    Unscored,
)
from sinks.warehouse.report.gaps import Break, Summary, coverage
from sinks.warehouse.report.plots import read_plots

POINTS: Final = 480
"""A series has at most so many points: as many as can be told apart on a page."""
WITHIN_S: Final = 300.0
MOST_HAPPENINGS: Final = 100
MOST_NEIGHBOURS: Final = 10
MOST_MESSAGE: Final = 400
EARLY_MS: Final = 5_000
"""A batch that began so long before the span may reach into it."""
NEW_PEAK: Final = 0.5
"""An update whose peak is so much higher says something new."""


def read_report(ask: Ask, id_: str, before_s: float = 120.0, after_s: float = 120.0) -> Report:
    """The report of the episode with this very id, over so many seconds before its start and after its end; not after
    the present, as the database has it. Raises ReportError, StoreError.
    """
    incident = _incident(ask, id_)
    now = seconds(ask(sql.NOW, {}).rows[0][0])
    begin = incident.start - before_s
    end = incident.end + after_s
    if incident.end < now < end:
        end = now
    span = Span(begin, end, max(1.0, math.ceil((end - begin) / POINTS)))
    evidence = _evidence(ask, incident)
    happenings, more = _happenings(ask, incident, span)
    return Report(
        incident=incident,
        span=span,
        evidence=evidence,
        plots=read_plots(ask, incident, span, evidence),
        judgements=_judgements(ask, incident, span),
        unscored=tuple(Unscored(*row) for row in ask(sql.UNSCORED, sql.bounds(incident.host, span)).rows),
        models=tuple(int(row[0]) for row in ask(sql.MODELS, sql.bounds(incident.host, span)).rows),
        happenings=happenings,
        more=more,
        coverage=_coverage(ask, incident, span),
        fleet=_fleet(ask, incident),
    )


def _incident(ask: Ask, id_: str) -> Incident:
    answer = ask(sql.INCIDENT, {"id": id_})
    if not answer.rows:
        raise ReportError(f"there is no episode {id_}")
    row = dict(zip(answer.columns, answer.rows[0], strict=True))
    closed = row.pop("closed")
    known: dict[str, Any] = {
        **{name: str(row.pop(name)) for name in ("id", "host", "state", "subsystem")},
        **{name: int(row.pop(name)) for name in ("revision", "windows", "model_version")},
        **{name: float(row.pop(name)) for name in ("severity", "peak_severity")},
        **{name: seconds(row.pop(name)) for name in ("start", "opened", "updated", "peak")},
        **{name: dict(row.pop(name)) for name in ("shares", "votes")},
    }
    return Incident(
        **known,
        closed=None if closed is None else seconds(closed),
        cause=row.pop("cause", None) or None,
        explanation=str(row.pop("explanation", None) or ""),
        confidence=float(row.pop("confidence", None) or 0.0),
        candidates=dict(row.pop("candidates", None) or {}),
        checks=_lines(row.pop("checks", None)),
        remedy="\n".join(_lines(row.pop("remedy", None))),
        others={name: told for name, value in row.items() if (told := _told(value))},
    )


def _evidence(ask: Ask, incident: Incident) -> tuple[Proof, ...]:
    answer = ask(sql.EVIDENCE, {"id": incident.id, "revision": incident.revision})
    found = []
    for values in answer.rows:
        row = dict(zip(answer.columns, values, strict=True))
        since = row.get("since")
        factor, unit = humane(str(row["unit"]))
        known: dict[str, Any] = {
            **{name: str(row[name]) for name in ("metric", "subsystem", "instance", "feature")},
            **{name: factor * float(row[name]) for name in ("observed", "expected")},
            **{
                name: None if row[name] is None else factor * float(row[name])
                for name in ("instance_observed", "instance_expected")
            },
            "unit": unit,
            "deviation": float(row["deviation"]),
            "direction": str(row.get("direction") or ""),
            "contribution": float(row.get("contribution") or 0.0),
        }
        reveals = _reveals(known["metric"])
        found.append(Proof(**known, reveals=reveals, since=seconds(since) if isinstance(since, datetime) else None))
    return tuple(found)


def _judgements(ask: Ask, incident: Incident, span: Span) -> tuple[Judgement, ...]:
    return tuple(
        Judgement(moment / 1000, float(severity) if scored else math.nan, bool(anomalous))
        for moment, scored, severity, anomalous in ask(sql.JUDGEMENTS, sql.bounds(incident.host, span)).rows
    )


def _happenings(ask: Ask, incident: Incident, span: Span) -> tuple[tuple[Happening, ...], int]:
    """All there is, but of the states and of the events MOST_HAPPENINGS each, and how many are left out."""
    place = sql.bounds(incident.host, span)
    states = _states(ask, incident)
    # The first and the last ones matter most.
    shown = (
        states
        if len(states) <= MOST_HAPPENINGS
        else [*states[: MOST_HAPPENINGS // 2], *states[-MOST_HAPPENINGS // 2 :]]
    )
    more = len(states) - len(shown)
    wanted = {**place, "start": int(incident.start * 1000), "limit": MOST_HAPPENINGS, "most": MOST_MESSAGE}
    events = ask(sql.EVENTS, wanted).rows
    more += int(events[0][-1]) - len(events) if events else 0
    found = list(shown)
    for ts, kind, subsystem, severity, instance, code, message, source, _ in events:
        what = str(kind) + (f" {code}" if code is not None else "") + (f" on {instance}" if instance else "")
        detail = f"{message} ({source})" if source else str(message)
        found.append(Happening(seconds(ts), "event", what, detail, str(subsystem), str(severity)))
    for at, session, agent in ask(sql.AGENTS, place).rows:
        found.append(Happening(seconds(at), "agent", "agent started", f"version {agent}, session {session}"))
    for id_, start, until, subsystem, cause, peak in ask(sql.OTHERS, {**place, "id": incident.id, "limit": 20}).rows:
        detail = f"{cause or 'cause unknown'}, peak severity {words.number(peak)}"
        detail += f", from {words.clock(seconds(start))} to {words.clock(seconds(until))}"
        at = max(seconds(start), span.begin)
        found.append(Happening(at, "other", f"another episode: {id_}", detail, str(subsystem)))
    return tuple(sorted(found, key=lambda each: each.at)), more


def _states(ask: Ask, incident: Incident) -> list[Happening]:
    """The episode's states in words. An update that says nothing new is left out."""
    found = []
    before: tuple[Any, ...] = ()
    told = 0.0
    for state, updated, closed, subsystem, cause, peak in ask(sql.STATES, {"id": incident.id}).rows:
        if state == "updated" and (subsystem, cause) == before and peak < told + NEW_PEAK:
            continue
        before, told = (subsystem, cause), float(peak)
        calm = f", calm since {words.clock(seconds(closed))}" if closed is not None else ""
        detail = f"{cause or 'cause unknown'}, peak severity {words.number(told)}{calm}"
        found.append(Happening(seconds(updated), "episode", f"episode {state}", detail, str(subsystem), "warning"))
    return found


def _coverage(ask: Ask, incident: Incident, span: Span) -> Coverage:
    place = {**sql.bounds(incident.host, span), "early": EARLY_MS}
    summaries = {
        str(subsystem): Summary(int(first) / 1000, int(last) / 1000, int(covered) / 1000, int(lost), int(flawed))
        for subsystem, first, last, covered, lost, flawed in ask(sql.BATCHES, place).rows
    }
    breaks = [
        Break(str(subsystem), int(begin) / 1000, int(end) / 1000, int(missing))
        for subsystem, begin, end, missing in ask(sql.BREAKS, place).rows
    ]
    known = {str(name) for row in ask(sql.KNOWN, {"host": incident.host}).rows for name in row[0]} | set(summaries)
    return coverage(span, summaries, breaks, [name for name in SUBSYSTEMS if name in known])


def _fleet(ask: Ask, incident: Incident) -> Fleet:
    begin, end = incident.start - WITHIN_S, incident.start + WITHIN_S
    around = {"host": incident.host, "begin": int(begin * 1000), "end": int(end * 1000)}
    found = [
        Neighbour(str(id_), str(host), seconds(start), str(subsystem), cause or None, float(peak))
        for id_, host, start, subsystem, cause, peak in ask(sql.NEIGHBOURS, around).rows
    ]
    same = {each.host for each in found if each.subsystem == incident.subsystem}
    found.sort(key=lambda each: (each.subsystem != incident.subsystem, abs(each.start - incident.start), each.id))
    hosts = int(ask(sql.HOSTS, {}).rows[0][0])
    others = {each.host for each in found} - same
    return Fleet(WITHIN_S, hosts, len(same), len(others), tuple(found[:MOST_NEIGHBOURS]))


def _reveals(metric: str) -> str:
    if metric.startswith(EVENT):
        return EVENT_KINDS.get(metric.removeprefix(EVENT), "")
    known = catalogue().get(metric)
    return "" if known is None else known.doc.removeprefix("Reveals: ")


def _lines(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(line.strip() for line in value.splitlines() if line.strip())
    return tuple(str(each) for each in value) if isinstance(value, list | tuple) else ()


def _told(value: Any) -> str:
    """A column that this program does not know, in words; empty where there is nothing in it."""
    if isinstance(value, datetime):
        return words.moment(seconds(value))
    if isinstance(value, float):
        return words.number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_told(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_told, value))
    return "" if value is None or value is False else str(value)
