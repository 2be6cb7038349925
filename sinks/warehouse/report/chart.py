"""Charts as SVG, without scripts; colours come from classes of the page."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sinks.warehouse.report import words
from sinks.warehouse.report.content import Gap, Incident, Judgement, Plot, Report, Series, Span
from sinks.warehouse.report.markup import Markup, element, short

WIDTH: Final = 560.0
HEIGHT: Final = 190.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 10.0, 20.0, 24.0
HATCH: Final = element(
    "svg",
    element(
        "pattern",
        element("path", d="M0 6L6 0", class_="hatch"),
        id="hatch",
        width=6.0,
        height=6.0,
        patternUnits="userSpaceOnUse",
    ),
    class_="defs",
    aria_hidden="true",
)
"""Must stand once in the page: what was not seen is filled with it."""
ONSET_S: Final = (5.0, 15.0)
"""Seconds before and after it that are shown sample by sample: few enough that each can be seen."""
ONSET_LEAST: Final = 40
BREAK_STEPS: Final = 2.5
"""Points further apart than so many steps are not joined."""
TIMES: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a chart draws: `span` from left to right, `low` to `high` from bottom to top."""

    span: Span
    low: float
    high: float

    def x(self, at: float) -> float:
        """Place of a time, kept within the chart."""
        place = (min(max(at, self.span.begin), self.span.end) - self.span.begin) / (self.span.end - self.span.begin)
        return LEFT + place * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Place of a value."""
        return TOP + (self.high - value) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def metric_chart(plot: Plot, report: Report) -> Markup:
    """Means with the band of single samples, the samples themselves, those of the instance that deviates most, the
    level to compare with, and the episode shaded.
    """
    series, own = plot.series, plot.own
    frame = _frame(report.span, [*series.line, *series.low, *series.high, plot.expected, plot.seen])
    gaps = [gap for gap in report.coverage.gaps if plot.subsystem in gap.subsystems]
    parts = [*_ground(frame, report.incident, gaps), *_scale(frame), *_bands(frame, series)]
    for sampled, kind in ((plot.samples, "samples"), (own, "own")):
        if sampled is not None:
            # Where they lie closer than a line is thick, they would hide all else.
            parts += _lines(frame, sampled, f"{kind} behind" if len(sampled.at) > WIDTH else kind)
    parts += [*_lines(frame, series, "line"), *_level(frame, plot.expected, frame.span, "expected")]
    if own is None:
        # Samples say more than this level.
        parts += _level(frame, plot.seen, Span(report.incident.start, report.incident.end, 0.0), "seen")
    unit = f", {plot.unit}" if plot.unit else ""
    told = f"{plot.metric}{unit}: from {words.number(min(series.line))} to {words.number(max(series.line))}"
    return _svg(told, parts)


def onset_chart(plot: Plot, report: Report) -> Markup | None:
    """The moments in which the metric began to be strange, sample by sample; None where fewer than ONSET_LEAST samples
    are kept of them.
    """
    span = Span(plot.since - ONSET_S[0], plot.since + ONSET_S[1], 1.0)
    samples, own = _cut(plot.samples, span), _cut(plot.own, span)
    if len(samples.at) < ONSET_LEAST:
        return None
    frame = _frame(span, [*samples.line, *samples.low, *samples.high, *own.line, plot.expected])
    gaps = [gap for gap in report.coverage.gaps if plot.subsystem in gap.subsystems and gap.end > span.begin]
    parts = [
        *_ground(frame, report.incident, [gap for gap in gaps if gap.begin < span.end]),
        *_scale(frame),
        *_bands(frame, samples),
        *_lines(frame, own, "own"),
        *_lines(frame, samples, "line"),
        *_level(frame, plot.expected, span, "expected"),
    ]
    return _svg(f"{plot.metric} from {words.clock(span.begin)} to {words.clock(span.end)}, sample by sample", parts)


def severity_chart(judgements: Sequence[Judgement], report: Report) -> Markup:
    """Severity of each window, the anomalous ones marked."""
    scored = [each for each in judgements if math.isfinite(each.severity)]
    frame = _frame(report.span, [0.0, 1.0, *(each.severity for each in scored)])
    parts = [*_ground(frame, report.incident, report.coverage.gaps), *_scale(frame)]
    parts += _lines(frame, Series(tuple(each.at for each in scored), tuple(each.severity for each in scored)), "line")
    parts += [
        element("circle", cx=frame.x(each.at), cy=frame.y(each.severity), r=1.8, class_="strange")
        for each in scored
        if each.anomalous
    ]
    return _svg("severity of the host's windows", parts)


def share_bars(shares: Mapping[str, float]) -> Markup:
    """A bar for each subsystem, the largest first."""
    rows = sorted(shares.items(), key=lambda item: -item[1])
    parts = []
    for row, (name, share) in enumerate(rows):
        y = 24.0 * row
        long = max(0.0, min(1.0, share)) * (WIDTH - LEFT - 80) if math.isfinite(share) else 0.0
        parts += [
            element("text", name, x=LEFT - 6, y=y + 15, text_anchor="end"),
            element("rect", x=LEFT, y=y + 3, width=max(long, 1.0), height=16.0, class_="bar"),
            element("text", words.share(share), x=LEFT + long + 6, y=y + 15),
        ]
    return _svg("share of each subsystem", parts, 24.0 * max(len(rows), 1))


def _svg(told: str, parts: Sequence[Markup], height: float = HEIGHT) -> Markup:
    box = f"0 0 {short(WIDTH)} {short(height)}"
    return element("svg", element("title", told), *parts, viewBox=box, role="img", aria_label=told)


def _frame(span: Span, values: Sequence[float]) -> Frame:
    known = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    # From zero where that costs little height, since a bar of nothing is what a reader expects below a rate.
    if 0 < low < 0.5 * high:
        low = 0.0
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        room = 0.1 * abs(high) or 1.0
        low, high = low - (room if low else 0.0), high + room
    room = 0.05 * (high - low)
    end = max(span.end, span.begin + 1e-3)
    return Frame(Span(span.begin, end, span.step_s), low - (room if low else 0.0), high + room)


def _ground(frame: Frame, incident: Incident, gaps: Sequence[Gap]) -> Iterator[Markup]:
    """The episode shaded, what was not seen hatched, the peak as a line, and words above them."""
    begin, end = frame.x(incident.start), frame.x(incident.end if incident.closed is not None else frame.span.end)
    tall = HEIGHT - TOP - BOTTOM
    yield element("rect", x=begin, y=TOP, width=max(end - begin, 1.0), height=tall, class_="during")
    for gap in gaps:
        left = frame.x(gap.begin)
        long = max(frame.x(gap.end) - left, 1.0)
        told = element("title", words.gap(gap, frame.span))
        yield element("rect", told, x=left, y=TOP, width=long, height=tall, class_="unseen")
    if frame.span.begin <= incident.peak <= frame.span.end:
        peak = frame.x(incident.peak)
        yield element("line", x1=peak, x2=peak, y1=TOP, y2=HEIGHT - BOTTOM, class_="peak")
    places = (("before", LEFT, begin), ("during", begin, end), ("after", end, WIDTH - RIGHT))
    for name, left, right in places:
        if right - left > 44 or name == "during":
            x = min(max((left + right) / 2, LEFT + 18), WIDTH - RIGHT - 18)
            yield element("text", name, x=x, y=TOP - 6, text_anchor="middle", class_="phase")


def _scale(frame: Frame) -> Iterator[Markup]:
    for value in _ticks(frame.low, frame.high):
        y = frame.y(value)
        yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
        yield element("text", words.number(value), x=LEFT - 6, y=y + 3.5, text_anchor="end")
    span = frame.span
    step = next((each for each in TIMES if (span.end - span.begin) / each <= 7), TIMES[-1])
    at = math.ceil(span.begin / step) * step
    while at <= span.end:
        x = frame.x(at)
        yield element("line", x1=x, x2=x, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM + 4, class_="tick")
        if LEFT + 12 < x < WIDTH - RIGHT - 16:
            yield element("text", words.clock(at), x=x, y=HEIGHT - BOTTOM + 16, text_anchor="middle")
        at += step


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round values between `low` and `high`."""
    rough = (high - low) / 4
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * scale for factor in (1, 2, 2.5, 5, 10) if factor * scale >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]


def _pieces(at: Sequence[float], span: Span) -> Iterator[slice]:
    """Runs of points without a break."""
    begin = 0
    for place in range(1, len(at) + 1):
        if place == len(at) or at[place] - at[place - 1] > BREAK_STEPS * span.step_s:
            yield slice(begin, place)
            begin = place


def _cut(series: Series | None, span: Span) -> Series:
    """What of `series` lies in `span`."""
    if series is None:
        return Series((), ())
    inside = slice(bisect_left(series.at, span.begin), bisect_left(series.at, span.end))
    return Series(series.at[inside], series.line[inside], series.low[inside], series.high[inside])


def _bands(frame: Frame, series: Series) -> Iterator[Markup]:
    for piece in _pieces(series.at, frame.span) if series.low else ():
        at = series.at[piece]
        there = _points(frame, at, series.high[piece])
        back = _points(frame, at[::-1], series.low[piece][::-1])
        yield element("polygon", points=f"{there} {back}", class_="band")


def _lines(frame: Frame, series: Series, kind: str) -> Iterator[Markup]:
    for piece in _pieces(series.at, frame.span):
        at, values = series.at[piece], series.line[piece]
        if len(at) > 1:
            yield element("polyline", points=_points(frame, at, values), class_=kind)
        else:
            yield element("circle", cx=frame.x(at[0]), cy=frame.y(values[0]), r=1.5, class_=f"{kind} point")


def _level(frame: Frame, value: float, span: Span, kind: str) -> Iterator[Markup]:
    if math.isfinite(value):
        y = frame.y(value)
        yield element("line", x1=frame.x(span.begin), x2=frame.x(span.end), y1=y, y2=y, class_=kind)


def _points(frame: Frame, at: Sequence[float], values: Sequence[float]) -> str:
    return " ".join(f"{short(frame.x(when))},{short(frame.y(value))}" for when, value in zip(at, values, strict=True))
