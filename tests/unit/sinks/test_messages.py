"""What process_message takes, and what it rejects with which reason."""

from __future__ import annotations

import dataclasses

import pytest

from schemas.codec import Rejected, decode, encode
from schemas.records import Telemetry
from schemas.topics import ANOMALIES, DEAD, EVENTS, MODELS, TELEMETRY, VERDICTS
from sinks.warehouse.messages import Message, dead_letter, is_kept, process_message, unusable_letter
from tests.synthetic import second
from tests.unit.sinks.examples import episode, event, letter, verdict


def message(topic: str, value: bytes | None, offset: int = 5) -> Message:
    return Message(topic, 2, offset, 1_790_000_000_123, b"h1", value)


@pytest.mark.parametrize(
    ("topic", "record"),
    [(VERDICTS, verdict("h1", 0)), (ANOMALIES, episode("h1", 1)), (EVENTS, event("h1", 1)), (DEAD, letter(3))],
    ids=["verdict", "episode", "event", "letter"],
)
def test_takes_what_the_topic_carries(topic: str, record: object) -> None:
    accepted = process_message(message(topic, encode(record)))  # type: ignore[arg-type]
    assert repr(accepted.record) == repr(record)  # NaN is not equal to itself
    assert (accepted.partition, accepted.offset, accepted.time_ms) == (2, 5, 1_790_000_000_123)


def test_takes_telemetry() -> None:
    accepted = process_message(message(TELEMETRY["cpu"], encode(second("h1", "cpu", 0))))
    assert isinstance(accepted.record, Telemetry)
    assert accepted.record.host == "h1"


@pytest.mark.parametrize(
    ("topic", "value", "reason"),
    [
        (VERDICTS, None, "empty"),
        (VERDICTS, b"nonsense", "not-avro"),
        (VERDICTS, b"\xc3\x01" + bytes(8), "unknown-schema"),
        (VERDICTS, encode(verdict("h1", 0))[:-3], "unreadable-body"),
        (VERDICTS, encode(episode("h1", 0)), "wrong-record"),
        (ANOMALIES, encode(second("h1", "cpu", 0)), "wrong-record"),
        (TELEMETRY["cpu"], encode(verdict("h1", 0)), "wrong-record"),
        (TELEMETRY["cpu"], encode(second("h1", "memory", 0)), "wrong-record"),
        (DEAD, encode(verdict("h1", 0)), "wrong-record"),
        (EVENTS, encode(verdict("h1", 0)), "wrong-record"),
        (EVENTS, encode(dataclasses.replace(event("h1", 0), severity="awful")), "wrong-record"),
        (EVENTS, encode(event("h1", 0))[:-1], "unreadable-body"),
        (VERDICTS, encode(event("h1", 0)), "wrong-record"),
        (TELEMETRY["gpu"], encode(event("h1", 0)), "wrong-record"),
    ],
)
def test_rejects_what_it_does_not_carry(topic: str, value: bytes | None, reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        process_message(message(topic, value))
    assert caught.value.reason == reason


@pytest.mark.parametrize("year_ns", [1, 946_684_799_999_999_999, 4_102_444_800_000_000_000, 2**63 - 1])
def test_rejects_times_that_no_table_holds(year_ns: int) -> None:
    telemetry = dataclasses.replace(second("h1", "cpu", 0), start_ns=year_ns)
    window = dataclasses.replace(verdict("h1", 0), window_end_ns=year_ns)
    closing = dataclasses.replace(episode("h1", 0), closed_ns=year_ns)
    happened = dataclasses.replace(event("h1", 0), time_ns=year_ns)
    records = ((TELEMETRY["cpu"], telemetry), (VERDICTS, window), (ANOMALIES, closing), (EVENTS, happened))
    for topic, record in records:
        with pytest.raises(Rejected, match="between the years 2000 and 2100"):
            process_message(message(topic, encode(record)))


def test_a_dead_letter_names_the_place_and_holds_the_beginning_of_the_message() -> None:
    made = dead_letter(message(VERDICTS, b"x" * 100_000), Rejected("not-avro", "starts with 78"))
    assert (made.topic, made.partition, made.offset, made.service) == (VERDICTS, 2, 5, "warehouse")
    assert (made.reason, made.detail, made.key) == ("not-avro", "starts with 78", b"h1")
    assert made.value == b"x" * 65_536
    assert decode(encode(made)) == made


def test_a_record_without_a_row_gets_a_letter_unless_it_is_one() -> None:
    accepted = process_message(message(ANOMALIES, encode(episode("h1", 1))))
    made = unusable_letter(accepted, "too strange")
    assert made is not None
    assert (made.topic, made.offset, made.reason, made.detail) == (ANOMALIES, 5, "wrong-record", "too strange")
    assert made.value is not None
    assert decode(made.value) == episode("h1", 1)
    assert unusable_letter(process_message(message(DEAD, encode(letter(1)))), "too strange") is None


@pytest.mark.parametrize(
    ("topic", "key", "value", "kept"),
    [
        (MODELS, b"h\0model/1", b"x", True),
        (MODELS, b"h\0model/1", None, False),
        (MODELS, b"h\0progress", b"x", False),
        (MODELS, b"h\0row/17", b"x", False),
        (MODELS, None, b"x", False),
        (VERDICTS, None, None, True),
    ],
)
def test_of_the_state_of_workers_only_models_are_kept(topic: str, key: bytes, value: bytes, kept: bool) -> None:
    assert is_kept(Message(topic, 0, 0, 0, key, value)) == kept
