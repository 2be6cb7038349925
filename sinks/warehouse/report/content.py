"""What a report says, as values. All times are seconds since 1970-01-01 UTC; NaN is a value that is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

EVENT: Final = "event."
"""Begins the name of evidence that is no metric but something that happened."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a report looks at, end exclusive. Series have a point every `step_s`."""

    begin: float
    end: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Incident:
    """The episode in its latest state. Fields as in anomaly.avsc.

    confidence  how well the episode fits the cause, 0 to 1; 0 where nobody says
    candidates  all causes that fit, with their confidence
    checks      what to look at, if the cause is known
    remedy      what to do about it, if the cause is known
    others      columns that this program does not know, by name, in words
    """

    id: str
    revision: int
    host: str
    state: str
    start: float
    opened: float
    updated: float
    closed: float | None
    subsystem: str
    shares: Mapping[str, float]
    windows: int
    votes: Mapping[str, int]
    severity: float
    peak_severity: float
    peak: float
    model_version: int
    cause: str | None = None
    explanation: str = ""
    confidence: float = 0.0
    candidates: Mapping[str, float] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    remedy: str = ""
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """When it was over, or last seen."""
        return self.updated if self.closed is None else self.closed


@dataclass(frozen=True, slots=True)
class Proof:
    """One row of evidence. Fields as in anomaly.avsc, in a unit that people think in.

    reveals  what the metric tells, from the catalogue; empty for what the catalogue does not know
    since    when it began to be strange, if the database tells
    direction, contribution  up or down, and share in what was found strange, if the database tells
    """

    metric: str
    subsystem: str
    instance: str
    feature: str
    unit: str
    observed: float
    expected: float
    deviation: float
    instance_observed: float | None = None
    instance_expected: float | None = None
    reveals: str = ""
    since: float | None = None
    direction: str = ""
    contribution: float = 0.0

    @property
    def happened(self) -> bool:
        """Whether it is an event, which has no usual value."""
        return self.metric.startswith(EVENT)


@dataclass(frozen=True, slots=True)
class Series:
    """A line with the band around it: `low` and `high` are of single samples of single instances, empty for no band."""

    at: tuple[float, ...]
    line: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """A metric over the span.

    what      what the line is, in words
    expected  a level to compare it with, NaN if there is none, and in words what it is
    seen      what the instance that deviates most showed at its strangest, NaN if there is none
    since     when it began to be strange
    samples   the same of single samples, and `own` those of the instance that deviates most, for as much of the span as
              they are kept; None where there are none
    """

    metric: str
    subsystem: str
    unit: str
    what: str
    series: Series
    expected: float
    expected_words: str
    since: float
    seen: float = math.nan
    instance: str = ""
    samples: Series | None = None
    own: Series | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The strangest scored window of a step; severity is NaN where none was scored."""

    at: float
    severity: float
    anomalous: bool


@dataclass(frozen=True, slots=True)
class Unscored:
    """Windows of the span that were not scored, and the reason of the last of them."""

    state: str
    reason: str
    windows: int


@dataclass(frozen=True, slots=True)
class Happening:
    """An entry of the timeline.

    kind   episode, event, agent or other (another episode of the host)
    grave  info, warning or critical
    """

    at: float
    kind: str
    what: str
    detail: str = ""
    subsystem: str = ""
    grave: str = "info"


@dataclass(frozen=True, slots=True)
class Gap:
    """Seconds of the span without data of some subsystems. `lost` batches were sent and are not there."""

    begin: float
    end: float
    subsystems: tuple[str, ...]
    lost: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of the span was seen.

    seen     share of the span that each subsystem's batches cover, 0 to 1
    gaps     the longest, in order of time; `more` of them are not listed
    lost     batches that were sent and are not there
    dropped  samples that the agent says it could not keep, in the span
    flawed   batches that had to be repaired to be read
    """

    seen: Mapping[str, float]
    gaps: tuple[Gap, ...] = ()
    more: int = 0
    lost: int = 0
    dropped: int = 0
    flawed: int = 0


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An episode of another host that began at about the same time."""

    id: str
    host: str
    start: float
    subsystem: str
    cause: str | None
    peak_severity: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """Whether it is one host or many: other hosts with an episode that began within `within_s` of this one.

    hosts   how many hosts the database knows
    same    other hosts with an episode of the same subsystem
    others  other hosts with an episode of other subsystems only
    first   some of those episodes, of the same subsystem first, nearest in time first
    """

    within_s: float
    hosts: int
    same: int
    others: int
    first: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Everything about one episode.

    plots        of the evidence, strongest first; metrics without stored telemetry have none
    judgements   of the host over the span, whichever episode they belong to
    happenings   in order of time; `more` of them are not listed
    models       versions of the host's baseline that judged in the span, in order of time
    """

    incident: Incident
    span: Span
    evidence: tuple[Proof, ...]
    plots: tuple[Plot, ...]
    judgements: tuple[Judgement, ...]
    unscored: tuple[Unscored, ...]
    models: tuple[int, ...]
    happenings: tuple[Happening, ...]
    more: int
    coverage: Coverage
    fleet: Fleet
