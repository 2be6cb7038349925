"""How the agent itself is: numbers that its parts keep up to date, published as the metrics `agent.*`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Vitals:
    """Numbers since the start, or of now. Each has one writer.

    period_ms  current sampling period
    sample_ms  time that the last sample took to read, ms
    dropped    samples that could not be taken or kept so far
    spooled    messages that wait on disk
    shed       collectors that are switched off to stay within the budget
    failing    files and devices that cannot be read at the moment
    hung       sources whose answer is overdue
    """

    period_ms: int = 0
    sample_ms: float = 0.0
    dropped: int = 0
    spooled: int = 0
    shed: int = 0
    failing: int = 0
    hung: int = 0
