"""What a Kafka message holds, judged without Kafka: bytes in, a record of the right kind out, or Rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.codec import Rejected, decode, encode
from schemas.records import Alert, DeadLetter, Delivery, Episode, Event, Feedback, StateRecord, Telemetry, Verdict
from schemas.topics import ALERTS, ANOMALIES, DEAD, DELIVERIES, EVENTS, FEEDBACK, MODELS, TELEMETRY, VERDICTS

SERVICE: Final = "warehouse"
VALUE_BYTES: Final = 64 << 10
# What ClickHouse's DateTime holds with room to spare; a clock beyond is broken, and would make a partition a message.
EARLIEST_NS: Final = 946_684_800_000_000_000  # 2000-01-01
LATEST_NS: Final = 4_102_444_800_000_000_000  # 2100-01-01

Result = Verdict | Episode | Event | DeadLetter | StateRecord | Alert | Delivery | Feedback
Stored = Telemetry | Result
SUBSYSTEM_OF: Final[Mapping[str, str]] = {topic: subsystem for subsystem, topic in TELEMETRY.items()}
RESULT_KINDS: Final[Mapping[str, type[Result]]] = {
    VERDICTS: Verdict,
    ANOMALIES: Episode,
    EVENTS: Event,
    DEAD: DeadLetter,
    MODELS: StateRecord,
    ALERTS: Alert,
    DELIVERIES: Delivery,
    FEEDBACK: Feedback,
}
MODEL: Final = b"model/"
TOPICS: Final = (*SUBSYSTEM_OF, *RESULT_KINDS)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it came. `time_ms` is Kafka's timestamp, ms since 1970-01-01 UTC."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A record with where it came from."""

    record: Stored
    partition: int
    offset: int
    time_ms: int


def is_kept(message: Message) -> bool:
    """Whether anything of the message is for the warehouse: of what workers note of their state only the models are.
    By the key alone, since most of that topic is large.
    """
    if message.topic != MODELS:
        return True
    return message.value is not None and (message.key or b"").rpartition(b"\0")[2].startswith(MODEL)


def process_message(message: Message) -> Accepted:
    """The record in `message`, of the kind that its topic carries. Raises Rejected for whatever else it holds."""
    record = decode(message.value)
    if message.topic in SUBSYSTEM_OF:
        _check_telemetry(record, SUBSYSTEM_OF[message.topic])
    else:
        kind = RESULT_KINDS[message.topic]
        if not isinstance(record, kind):
            raise Rejected("wrong-record", f"{message.topic} carries {kind.__name__}, got {type(record).__name__}")
        _check_times(record)
    assert isinstance(record, Stored)
    return Accepted(record, message.partition, message.offset, message.time_ms)


def dead_letter(message: Message, error: Rejected) -> DeadLetter:
    """What is kept of a message that cannot be read."""
    value = message.value if message.value is None else message.value[:VALUE_BYTES]
    return DeadLetter(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        service=SERVICE,
        reason=error.reason,
        detail=error.detail,
        key=message.key,
        value=value,
    )


def unusable_letter(item: Accepted, detail: str) -> DeadLetter | None:
    """What is kept of a record that passed every check and still cannot be stored; nothing of a dead letter."""
    record = item.record
    if isinstance(record, DeadLetter):
        return None
    topic = (
        TELEMETRY[record.subsystem]
        if isinstance(record, Telemetry)
        else next(topic for topic, kind in RESULT_KINDS.items() if isinstance(record, kind))
    )
    key = (record.receiver if isinstance(record, Delivery) else record.host).encode()
    message = Message(topic, item.partition, item.offset, item.time_ms, key, encode(record))
    return dead_letter(message, Rejected("wrong-record", detail))


def _check_telemetry(record: object, subsystem: str) -> None:
    if not isinstance(record, Telemetry):
        raise Rejected("wrong-record", f"expected telemetry, got {type(record).__name__}")
    if record.subsystem != subsystem:
        raise Rejected("wrong-record", f"expected telemetry of {subsystem}, got {record.subsystem}")
    _check_time("start", record.start_ns)


def _check_times(record: object) -> None:
    if isinstance(record, Verdict):
        _check_time("window start", record.window_start_ns)
        _check_time("window end", record.window_end_ns)
    elif isinstance(record, Episode):
        for name in ("start_ns", "opened_ns", "updated_ns", "peak_ns"):
            _check_time(name, getattr(record, name))
        if record.closed_ns is not None:
            _check_time("closed_ns", record.closed_ns)
        for row in record.evidence:
            if row.since_ns is not None:
                _check_time("since_ns", row.since_ns)
    elif isinstance(record, Event | Delivery):
        _check_time("time", record.time_ns)
    elif isinstance(record, Alert | Feedback):
        for name in ("time_ns", "since_ns", "updated_ns", "resolved_ns", "until_ns"):
            if (value := getattr(record, name, None)) is not None:
                _check_time(name, value)


def _check_time(name: str, value: int) -> None:
    if not EARLIEST_NS <= value < LATEST_NS:
        raise Rejected("wrong-record", f"{name} {value} ns is not between the years 2000 and 2100")
