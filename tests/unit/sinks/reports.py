"""A report of every kind of fact, for the tests of its formats."""

from __future__ import annotations

import math

from sinks.warehouse.report.content import (
    Coverage,
    Fleet,
    Gap,
    Happening,
    Incident,
    Judgement,
    Neighbour,
    Plot,
    Proof,
    Report,
    Series,
    Span,
    Unscored,
)

START = 1_790_000_000.0


def example(text: str = "host-1", closed: bool = True) -> Report:
    """An episode of 30 s, a minute after the span begins; `text` stands wherever others choose the words."""
    at = tuple(START - 60 + second for second in range(150) if not 100 <= second < 110)
    line = tuple(90.0 if START <= moment < START + 30 else 10.0 for moment in at)
    series = Series(at, line, tuple(value - 5 for value in line), tuple(value + 5 for value in line))
    return Report(
        incident=Incident(
            id=text,
            revision=4,
            host=text,
            state="closed" if closed else "updated",
            start=START,
            opened=START + 2,
            updated=START + 35,
            closed=START + 30 if closed else None,
            subsystem="gpu",
            shares={"gpu": 0.75, "cpu": 0.25},
            windows=28,
            votes={"zscore": 28, "iforest": 20},
            severity=3.25,
            peak_severity=8.5,
            peak=START + 10,
            model_version=7,
            cause=text,
            explanation=text,
            checks=(text, "look at the fans"),
            remedy=text,
            others={"rack": text},
        ),
        span=Span(START - 60, START + 90, 1.0),
        evidence=(
            Proof("gpu.temp", "gpu", text, text, "C", 90.0, 10.0, 12.5, 95.0, 11.0, text, START + 1),
            Proof("cpu.time.user", "cpu", "", "trend", "s/s", math.nan, 1.0, -7.0),
            Proof("event.xid", "gpu", "gpu3", text, "code", 79.0, 0.0, 1000.0, reveals="an error of the driver"),
        ),
        plots=(Plot("gpu.temp", "gpu", "C", text, series, 10.0, text, START, 95.0, text),),
        judgements=tuple(
            Judgement(moment, math.nan if moment < START - 50 else value / 10, value > 50)
            for moment, value in zip(at, line, strict=True)
        ),
        unscored=(Unscored("withheld", text, 3),),
        models=(6, 7),
        happenings=(
            Happening(START - 30, "other", text, text, "cpu"),
            Happening(START + 2, "episode", "episode opened", text, "gpu", "warning"),
            Happening(START + 5, "event", text, text, "gpu", "critical"),
        ),
        more=2,
        coverage=Coverage({"gpu": 0.93, "cpu": 1.0}, (Gap(START + 40, START + 50, ("gpu",), 10),), 0, 10, 5, 1),
        fleet=Fleet(300.0, 40, 1, 2, (Neighbour(text, text, START + 3, "gpu", None, 4.5),)),
    )
