"""What crosses a boundary: frozen, typed records. The codec turns them into bytes and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Telemetry:
    """One second of one subsystem of one host.

    instances  names of the instances of each dimension
    metrics    by metric name, float32 of shape (count, instances of its dimension), NaN where absent; counters as
    rates per second.
               A metric that the host lacks is not there.
    flaws      what the codec had to repair, in words; empty for a sound message. Not on the wire.
    """

    subsystem: str
    host: str
    session: str
    sequence: int
    start_ns: int
    period_ms: int
    count: int
    instances: Mapping[str, tuple[str, ...]]
    metrics: Mapping[str, NDArray[np.float32]]
    dropped: int = 0
    agent: str = ""
    flaws: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DetectorScore:
    """What one detector says of a window. Higher is stranger; `threshold` is the 99th percentile on the baseline."""

    detector: str
    score: float
    threshold: float
    tail_probability: float
    vote: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the ensemble says of one window of one host; identity (host, window_start_ns). Fields as in verdict.avsc."""

    host: str
    window_start_ns: int
    window_end_ns: int
    state: str
    coverage: float
    reason: str = ""
    model_version: int = 0
    scores: tuple[DetectorScore, ...] = ()
    votes: int = 0
    severity: float = 0.0
    anomalous: bool = False
    subsystem: str | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    episode: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One metric that speaks for an anomaly. Fields as in anomaly.avsc."""

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


@dataclass(frozen=True, slots=True)
class Episode:
    """State of an anomaly of one host; identity (id, revision), the highest revision counts. Fields as in
    anomaly.avsc.
    """

    id: str
    revision: int
    host: str
    state: str
    start_ns: int
    opened_ns: int
    updated_ns: int
    closed_ns: int | None
    subsystem: str
    shares: Mapping[str, float]
    windows: int
    votes: Mapping[str, int]
    severity: float
    peak_severity: float
    peak_ns: int
    model_version: int
    cause: str | None = None
    explanation: str = ""
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be used, with the reason; identity (topic, partition, offset, reason)."""

    topic: str
    partition: int
    offset: int
    service: str
    reason: str
    detail: str
    key: bytes | None = None
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A piece of a worker's knowledge of a host, in slot `model/0`, `model/1`, `row/N` or `progress`; the newest of a
    slot counts.
    """

    host: str
    slot: str
    manifest: str
    arrays: Mapping[str, NDArray[np.generic]]

    @property
    def key(self) -> bytes:
        """Key of the compacted topic."""
        return state_key(self.host, self.slot)


def state_key(host: str, slot: str) -> bytes:
    """Key of a slot of a host in the compacted topic. Host names hold no zero byte."""
    return f"{host}\0{slot}".encode()


Record = Telemetry | Verdict | Episode | DeadLetter | StateRecord
