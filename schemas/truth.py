"""Ground truth of a simulated fleet: what was wrong with which host when, and what changed without being wrong."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("fault", "change")
STATES: Final = ("begun", "ended", "cut off")


@dataclass(frozen=True, slots=True)
class Truth:
    """One thing that happened to one host; identity id, of two the later state counts.

    kind            fault, or change: of the job, which no detector should report for long
    state           begun; ended; cut off, when the simulation stopped before its end
    name            of the fault, or job-start, job-end, other-model, evaluation, checkpoint
    cause           name of the cause that is to be found; that of the change for a change
    subsystem       to which it is to be attributed; empty for a change
    end_ns          when it ended, or is to end
    intensity       1 is the full fault
    metrics         those that a fault moves, each with a + or - before its name
    instance        the core, GPU, port or disk that it strikes; empty for the whole host
    twin            host with the same profile, doing the same job at the same time, with no fault then; empty if none
    run             names the simulation: its seed and start
    """

    id: str
    run: str
    kind: str
    state: str
    host: str
    profile: str
    name: str
    cause: str
    subsystem: str
    onset_ns: int
    end_ns: int
    intensity: float = 1.0
    metrics: tuple[str, ...] = ()
    instance: str = ""
    twin: str = ""

    def line(self) -> str:
        """A line of JSON, without its end."""
        return json.dumps(dataclasses.asdict(self))


def read_truth(lines: Iterable[str]) -> Iterator[Truth]:
    """Truths in lines of JSON, as they were written. Raises ValueError for a line that is none."""
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            yield Truth(**{**values, "metrics": tuple(values["metrics"])})
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"line {number} is no ground truth: {error}") from None


def last_states(truths: Iterable[Truth]) -> list[Truth]:
    """Each thing once, in its last state, in order of onset."""
    found = {truth.id: truth for truth in truths}
    return sorted(found.values(), key=lambda truth: (truth.onset_ns, truth.id))
