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
    direction: str = ""
    since_ns: int | None = None
    contribution: float = 0.0


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
    confidence: float = 0.0
    candidates: Mapping[str, float] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened on a host at one moment; identity (host, session, sequence). Fields as in event.avsc.

    kind      one of EVENT_KINDS
    severity  info, warning or critical
    """

    host: str
    session: str
    sequence: int
    time_ns: int
    kind: str
    subsystem: str
    severity: str
    message: str
    source: str
    instance: str = ""
    code: int | None = None
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """A state of an alert; identity (key, revision), the highest revision counts. Fields as in alert.avsc."""

    key: str
    id: str
    revision: int
    state: str
    scope: str
    severity: str
    peak_severity: float
    since_ns: int
    updated_ns: int
    time_ns: int
    summary: str
    group: str = ""
    parent: str | None = None
    host: str = ""
    hosts: tuple[str, ...] = ()
    host_count: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    subsystem: str = ""
    cause: str | None = None
    resolved_ns: int | None = None
    episodes: tuple[str, ...] = ()
    description: str = ""
    evidence: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    remedy: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    receivers: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One try to tell a receiver of alerts; identity (id, attempt). Fields as in delivery.avsc."""

    id: str
    attempt: int
    time_ns: int
    receiver: str
    channel: str
    status: str
    latency_ms: float
    alert: str
    state: str
    revision: int
    code: int | None = None
    error: str = ""
    alerts: tuple[str, ...] = ()
    count: int = 1
    digest: bool = False


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a person says of an alert; identity id. Fields as in feedback.avsc."""

    id: str
    time_ns: int
    alert: str
    verdict: str
    host: str = ""
    subsystem: str = ""
    cause: str | None = None
    episode: str = ""
    until_ns: int | None = None
    by: str = ""
    note: str = ""


EVENT_KINDS: Mapping[str, str] = {
    "xid": "an error that the NVIDIA driver reports by number",
    "gpu_lost": "a GPU that does not answer any more, or fell off the bus",
    "gpu_back": "a GPU that answers again",
    "machine_check": "a hardware error that the processor reports",
    "memory_error": "a corrected or uncorrected error of main memory",
    "soft_lockup": "a CPU that did not schedule for many seconds",
    "hard_lockup": "a CPU that did not even take interrupts",
    "rcu_stall": "a CPU or task that holds up the kernel's grace periods",
    "hung_task": "a task that waits without being interruptible for minutes",
    "oom_kill": "a process that the kernel killed to get memory",
    "link_down": "a network link that went down",
    "link_up": "a network link that came up",
    "device_gone": "a CPU, interface, disk or other device that went away",
    "device_back": "a device that came, or came back",
    "disk_error": "a request that a disk answered with an error",
    "filesystem_error": "a file system that found itself damaged or turned read-only",
    "pcie_error": "an error that a PCIe port or device reports",
    "thermal": "a processor or device that reports heat",
    "clock_step": "a wall clock that was set",
    "suspend": "a machine that stood still for a while",
    "source_hung": "a source of the agent that does not answer",
    "source_back": "a source of the agent that answers again",
    "collector_shed": "a collector that the agent switched off to stay within its budget",
    "collector_back": "a collector that the agent switched on again",
    "samples_lost": "samples or messages that could not be kept",
}
"""Kinds of events, with what they are."""


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
    """A piece of a worker's knowledge of a host, in slot `model/0`, `model/1`, `row/N`, `events` or `progress`; the
    newest of a slot counts. In slot `control` what a person asks of the worker.
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


Record = Telemetry | Verdict | Episode | DeadLetter | StateRecord | Event | Alert | Delivery | Feedback
