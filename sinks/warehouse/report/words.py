"""Numbers, times and conclusions in words, the same in every format. Times are s since 1970-01-01 UTC."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

from schemas.units import PREFIXED, PREFIXES
from sinks.warehouse.report.content import Fleet, Gap, Incident, Plot, Proof, Report, Span, Unscored

UNKNOWN: Final = "unknown"
NOTHING: Final = "–"
SEVERITY: Final = (
    "Severity is −log10 of the chance that an ordinary window of this host is as strange, over all detectors: 3 is one "
    "window in a thousand. σ is the robust scale of a feature on the host's baseline."
)
NO_EVIDENCE: Final = "None of the metrics leads: many small deviations add up."


def moment(seconds: float) -> str:
    """Date and time, UTC, to the second; with milliseconds where there are any."""
    time = _time(seconds)
    return NOTHING if time is None else f"{time:%Y-%m-%d %H:%M:%S}{_fraction(time)} UTC"


def clock(seconds: float) -> str:
    """Time of day, UTC; with milliseconds where there are any."""
    time = _time(seconds)
    return NOTHING if time is None else f"{time:%H:%M:%S}{_fraction(time)}"


def duration(seconds: float) -> str:
    """Such as 45 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return NOTHING
    if abs(seconds) < 10:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for unit, below, name, lower in ((86_400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit} {name}" + (f" {rest} {lower}" if rest else "")
    return f"{whole} s"


def number(value: float | None) -> str:
    """Four digits that matter; large ones with k, M, G or T behind a thin space, so that they compare at a glance."""
    if value is None or not math.isfinite(value):
        return NOTHING
    size = abs(value)
    if size >= 1e15:
        return f"{value:.3g}"
    for scale, prefix in PREFIXES:
        if size >= scale * 10 or (scale > 1e3 and size >= scale):
            return f"{value / scale:.4g} {prefix}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"


def share(value: float) -> str:
    """Per cent, which is not called 100 % before it is."""
    if not math.isfinite(value):
        return NOTHING
    return f"{math.floor(value * 1000) / 10:.1f} %" if 0.99 <= value < 1 else f"{value:.0%}".replace("%", " %")


def count(number_of: int, one: str, many: str = "") -> str:
    """Such as 1 host, 2 hosts."""
    return f"{number_of:,} {one if number_of == 1 else many or one + 's'}"


def cause(incident: Incident) -> str:
    """Probable cause: its key, or that it is unknown."""
    return f"{incident.cause}{_sure(incident)}" if incident.cause else UNKNOWN


def headline(incident: Incident) -> str:
    """Host, subsystem and cause."""
    what = f"probable cause {cause(incident)}" if incident.cause else "cause unknown"
    return f"{incident.host}: {incident.subsystem}, {what}"


def _sure(incident: Incident) -> str:
    return f" ({share(incident.confidence)} certain)" if incident.confidence > 0 else ""


def _also(incident: Incident) -> str:
    """Other causes that fit, the likeliest first."""
    others = sorted((-sure, name) for name, sure in incident.candidates.items() if name != incident.cause)
    return f"; other candidates: {', '.join(f'{name} {share(-sure)}' for sure, name in others)}" if others else ""


def lasted(incident: Incident) -> str:
    """How long it lasted, or lasts."""
    length = duration(incident.end - incident.start)
    return length if incident.closed is not None else f"{length} so far"


def facts(report: Report) -> list[tuple[str, str]]:
    """The head of a report: names and values."""
    incident = report.incident
    closed = "still open" if incident.closed is None else f"closed, calm since {moment(incident.closed)}"
    votes = ", ".join(f"{name} {of}" for name, of in sorted(incident.votes.items()) if of)
    rows = [
        ("episode", incident.id),
        ("host", incident.host),
        ("subsystem", incident.subsystem),
        ("probable cause", cause(incident) + _also(incident)),
        ("since", moment(incident.start)),
        ("lasted", lasted(incident)),
        ("state", closed),
        ("opened", f"{moment(incident.opened)}, {duration(incident.opened - incident.start)} after it began"),
        (
            "severity",
            f"peak {number(incident.peak_severity)} at {clock(incident.peak)}, last {number(incident.severity)}",
        ),
        ("windows", f"{incident.windows:,} anomalous" + (f"; votes: {votes}" if votes else "")),
        ("model", models(report)),
    ]
    return rows + list(incident.others.items())


def models(report: Report) -> str:
    """Version of the baseline that judged, and whether it changed meanwhile."""
    version = f"version {report.incident.model_version}"
    others = [each for each in report.models if each != report.incident.model_version]
    if not others:
        return version
    return f"{version}; the time shown was judged by versions {', '.join(map(str, report.models))}"


def unusual(proof: Proof) -> str:
    """How far from usual, and in which direction."""
    if proof.happened:
        return "event"
    if not math.isfinite(proof.deviation):
        return NOTHING
    size = abs(proof.deviation)
    up = proof.direction == "up" if proof.direction else proof.deviation > 0
    return f"{'higher' if up else 'lower'}, {number(size if size < 10 else round(size))} σ"


def contribution(proof: Proof) -> str:
    """Its share in what was found strange; empty where nobody says."""
    return share(proof.contribution) if proof.contribution > 0 else ""


def figure(value: float | None, unit: str) -> str:
    """A number with its unit."""
    told = number(value)
    if not unit or told == NOTHING:
        return told
    return f"{told}{unit}" if unit in PREFIXED and told[-1].isalpha() else f"{told} {unit}"


def observed(proof: Proof) -> str:
    """What was seen; of the instance that deviates most, where it is known."""
    if proof.happened:
        return f"code {number(proof.observed)}" if proof.unit == "code" else f"{number(proof.observed)} ×"
    return figure(proof.observed if proof.instance_observed is None else proof.instance_observed, proof.unit)


def expected(proof: Proof) -> str:
    """What is usual, as `observed`."""
    if proof.happened:
        return "none"
    return figure(proof.expected if proof.instance_observed is None else proof.instance_expected, proof.unit)


def feature(proof: Proof) -> str:
    """What of the metric is strange. Its own figures are told where the instance's stand in their place."""
    if proof.happened or proof.instance_observed is None:
        return proof.feature
    return f"{proof.feature}: {number(proof.observed)}, usually {number(proof.expected)}"


def since(proof: Proof) -> str:
    """When a metric began to be strange, to be put behind its feature; empty where nobody says."""
    return f"; since {clock(proof.since)}" if proof.since is not None else ""


def compared(plot: Plot) -> list[str]:
    """What a plot's line is to be compared with."""
    usual = [f"{plot.expected_words} {figure(plot.expected, plot.unit)}"] if plot.expected_words else []
    seen = [f"{plot.instance} {figure(plot.seen, plot.unit)} at its strangest"] if math.isfinite(plot.seen) else []
    return usual + seen


def phase(incident: Incident, at: float) -> str:
    """before, during or after."""
    if at < incident.start:
        return "before"
    return "after" if incident.closed is not None and at > incident.closed else "during"


def fleet(found: Fleet, subsystem: str) -> str:
    """Whether it is one host or many."""
    within = duration(found.within_s)
    known = count(found.hosts, "known host")
    if not found.same:
        told = f"Only this host: no other of {known} had an episode of {subsystem} that began within {within} of it."
    else:
        told = (
            f"Not only this host: {count(found.same, 'other')} of {known} had an episode of {subsystem} that began "
            f"within {within} of it. Look for what they share: switch, rack, storage, job, release."
        )
    if found.others:
        told += f" {count(found.others, 'host')} had one of other subsystems only."
    return told


def unseen(report: Report) -> list[str]:
    """What was not seen or not judged, a sentence each."""
    coverage, span = report.coverage, report.span
    if not coverage.seen:
        return [f"Nothing of this host is stored between {moment(span.begin)} and {moment(span.end)}."]
    told = [gap(each, span) for each in coverage.gaps]
    if coverage.more:
        told.append(f"{count(coverage.more, 'shorter gap')} more.")
    if coverage.lost:
        told.append(f"{count(coverage.lost, 'batch', 'batches')} in all sent and not stored.")
    if coverage.dropped:
        told.append(f"{count(coverage.dropped, 'sample')} that the agent could not keep.")
    if coverage.flawed:
        told.append(f"{count(coverage.flawed, 'batch', 'batches')} repaired to be read.")
    if not told:
        return ["Nothing is missing: every batch of the time shown is stored.", *map(_unscored, report.unscored)]
    seen = ", ".join(f"{name} {share(of)}" for name, of in coverage.seen.items())
    return [*told, f"Seen of the time shown: {seen}.", *map(_unscored, report.unscored)]


def gap(each: Gap, span: Span) -> str:
    """One gap."""
    lost = f", {count(each.lost, 'batch', 'batches')} lost" if each.lost else ""
    what = f"Nothing of {', '.join(each.subsystems)}"
    if each.begin <= span.begin and each.end >= span.end:
        return f"{what} at all."
    if each.end >= span.end:
        return f"{what} after {clock(each.begin)} ({duration(each.end - each.begin)})."
    if each.begin <= span.begin:
        return f"{what} before {clock(each.end)} ({duration(each.end - each.begin)})."
    return f"{what} from {clock(each.begin)} to {clock(each.end)} ({duration(each.end - each.begin)}){lost}."


def without_plot(report: Report) -> str:
    """Evidence that has no plot, and why; empty where all has one."""
    shown = {plot.metric for plot in report.plots}
    names = dict.fromkeys(proof.metric for proof in report.evidence if not proof.happened)
    missing = [name for name in names if name not in shown]
    return f"No telemetry of {', '.join(missing)} is stored for this time." if missing else ""


def _unscored(each: Unscored) -> str:
    """Windows that were not scored."""
    last = "" if each.windows == 1 else "the last "
    why = f"; {last}because: {each.reason}" if each.reason else ""
    return f"Not scored: {count(each.windows, 'window')} {each.state}{why}."


def _time(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(round(seconds, 3), UTC)
    except (OverflowError, OSError, ValueError):
        return None


def _fraction(time: datetime) -> str:
    return f".{time.microsecond // 1000:03d}" if time.microsecond >= 1000 else ""
