"""One look at a machine: the present value of every channel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from producers.clock import Clock
from producers.collector import Collector
from producers.frame import Frame
from producers.reading import STARTING
from schemas.catalogue import catalogue

INTERVAL_S: Final = 0.5
PATIENCE_S: Final = 0.5
# All that asking twice leaves time for.
HUNG_NS: Final = int(PATIENCE_S * 0.9 * 1e9)
# A driver may take seconds for its first answer.
STARTS: Final = 20
ABSENT: Final = ("no such file on this machine", "no such device on this machine")


@dataclass(frozen=True, slots=True)
class Value:
    """The value of one channel, in the unit of the catalogue."""

    metric: str
    instance: str
    unit: str
    value: float


def glance(frame: Frame, clock: Clock) -> list[Value]:
    """Reads everything twice, half a second apart, for the sake of rates. Channels without a value are not there."""
    frame.sample(0, 0)
    clock.sleep(INTERVAL_S)
    # Any tick far enough away makes every source due, however slow its own cadence.
    later = 3_600_000 // frame.period_ms
    frame.sample(later, 1)
    # The same tick again only picks up what sources with threads of their own have read meanwhile.
    clock.sleep(PATIENCE_S if frame.waits() else 0)
    frame.sample(later, 1)
    for _ in range(STARTS):
        if not any(problem.reason.startswith(STARTING) for problem in frame.problems(HUNG_NS)):
            break
        clock.sleep(PATIENCE_S)
        frame.sample(later, 1)
    metrics = catalogue()
    values: list[Value] = []
    for record in frame.cut(clock.wall_ns(), 2):
        for name, matrix in record.metrics.items():
            metric = metrics[name]
            last = np.where(np.isnan(matrix[1]), matrix[0], matrix[1])
            names = record.instances[metric.dimension]
            values += [
                Value(name, instance, metric.unit, value)
                for instance, value in zip(names, last.tolist(), strict=True)
                if math.isfinite(value)
            ]
    order = {name: index for index, name in enumerate(metrics)}
    return sorted(values, key=lambda value: order[value.metric])


def remarks(frame: Frame, values: Sequence[Value], collectors: Sequence[Collector]) -> list[str]:
    """What a person should know beside the values: sources that gave nothing and why, metrics without a value.

    Of hardware that a machine lacks, which is most of what there is, only the names of the collectors are told.
    """
    problems = frame.problems(HUNG_NS)
    seen = {value.metric for value in values}
    told = {found.collector for found in problems if found.kind == "missing"}
    told -= {found.collector for found in problems if found.kind != "missing"}
    lacking = [each for each in collectors if each.name in told and seen.isdisjoint(each.metrics)]
    absent = {collector.name for collector in lacking}
    lines = [
        f"{found.collector}: {found.path} is {found.kind}: {found.reason}"
        for found in problems
        if found.collector not in absent or found.reason not in ABSENT
    ]
    lines += frame.notes()
    if quiet := sorted(absent - {found.collector for found in problems if found.reason not in ABSENT}):
        lines.append(f"not on this machine: {', '.join(quiet)}")
    filled = {metric for collector in collectors if collector.name not in absent for metric in collector.metrics}
    if silent := [name for name in catalogue() if name in filled and name not in seen]:
        lines.append(f"without a value at the moment: {', '.join(silent)}")
    return lines
