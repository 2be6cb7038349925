"""What the agent says of itself to people and to their monitoring: one frozen picture of now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from producers.reading import Problem
from producers.vitals import Vitals

STALLED_S = 10.0
"""A sampling loop that has not moved for so long does not work. Suspend and stopped processes do not count as work."""


@dataclass(frozen=True, slots=True)
class Status:
    """The agent at one moment. Counts are since its start.

    since_sample_s  time since the last sample, s; None before the first
    stalled         what the sampling loop is stuck in, in words; empty while it moves
    reachable       whether Kafka answers; None before it is known
    errors, costs   by collector: failures, and seconds of processor time
    notes           what a person should know, in words
    """

    host: str
    version: str
    since_sample_s: float | None
    stalled: str
    samples: int
    missed: int
    batches: int
    delivered: int
    failed: int
    waiting: int
    reachable: bool | None
    vitals: Vitals
    errors: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()

    def ailments(self) -> list[str]:
        """Why the agent is not alive, in words; empty when it is."""
        if self.stalled:
            return [f"the sampling loop is {self.stalled}"]
        if self.since_sample_s is not None and self.since_sample_s > STALLED_S:
            return [f"no sample for {self.since_sample_s:.0f} s"]
        return []

    def obstacles(self) -> list[str]:
        """Why what it samples does not arrive, in words; empty when it does."""
        found = self.ailments()
        if self.batches == 0:
            found.append("no batch yet")
        if self.reachable is None:
            found.append("nothing delivered to Kafka yet")
        elif not self.reachable:
            found.append(
                f"Kafka does not answer; {self.vitals.spooled} messages wait on disk, {self.waiting} in memory"
            )
        if self.reachable and self.vitals.spooled:
            found.append(f"{self.vitals.spooled} messages wait on disk")
        return found
