"""The topic table: every topic of Reveal, its key, its record and its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.catalogue import SUBSYSTEMS

DAY_MS: Final = 86_400_000

TELEMETRY: Final[Mapping[str, str]] = {subsystem: f"reveal.telemetry.{subsystem}" for subsystem in SUBSYSTEMS}
EVENTS: Final = "reveal.events"
MODELS: Final = "reveal.models"
CONTROL: Final = "reveal.control"
VERDICTS: Final = "reveal.verdicts"
ANOMALIES: Final = "reveal.anomalies"
DEAD: Final = "reveal.dead"
ALERTS: Final = "reveal.alerts"
ALERT_STATE: Final = "reveal.alert-state"
DELIVERIES: Final = "reveal.deliveries"
FEEDBACK: Final = "reveal.feedback"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it is to be created. replication -1 takes the broker's default."""

    name: str
    partitions: int
    configs: Mapping[str, str]
    replication: int = -1


def topic_table(partitions: int, replication: int = -1) -> tuple[TopicSpec, ...]:
    """All topics. Those of hosts have the same number of partitions and are keyed by host, so that one worker gets all
    of a host and writes its results and state to the partition of the same number. The state of the alerts has one
    partition: who owns it is the one alert service that works, and sees all hosts.
    """
    delete = {"cleanup.policy": "delete"}
    # The time of arrival at the broker tells a backlog from fresh messages, whatever the hosts' clocks say.
    arriving = {
        **delete,
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": str(DAY_MS),
        "segment.ms": str(DAY_MS // 24),
    }
    telemetry = tuple(TopicSpec(name, partitions, arriving, replication) for name in TELEMETRY.values())
    # The newest segment is never compacted, so it is kept small: a worker that takes over reads the whole partition.
    compacted = {
        "cleanup.policy": "compact",
        "max.compaction.lag.ms": str(DAY_MS // 144),
        "max.message.bytes": str(4 << 20),
        "min.cleanable.dirty.ratio": "0.2",
        "segment.bytes": str(32 << 20),
        "segment.ms": str(DAY_MS // 144),
    }
    return (
        *telemetry,
        TopicSpec(EVENTS, partitions, {**arriving, "retention.ms": str(7 * DAY_MS)}, replication),
        TopicSpec(MODELS, partitions, compacted, replication),
        # What was asked of a worker is in its progress once it is done; a model may come along.
        TopicSpec(
            CONTROL,
            partitions,
            {**arriving, "retention.ms": str(7 * DAY_MS), "max.message.bytes": str(4 << 20)},
            replication,
        ),
        TopicSpec(VERDICTS, partitions, {**delete, "retention.ms": str(7 * DAY_MS)}, replication),
        TopicSpec(ANOMALIES, partitions, {**delete, "retention.ms": str(30 * DAY_MS)}, replication),
        TopicSpec(DEAD, partitions, {**delete, "retention.ms": str(7 * DAY_MS)}, replication),
        TopicSpec(ALERTS, partitions, {**delete, "retention.ms": str(30 * DAY_MS)}, replication),
        TopicSpec(ALERT_STATE, 1, compacted, replication),
        TopicSpec(DELIVERIES, partitions, {**delete, "retention.ms": str(7 * DAY_MS)}, replication),
        TopicSpec(FEEDBACK, partitions, {**delete, "retention.ms": str(365 * DAY_MS)}, replication),
    )
