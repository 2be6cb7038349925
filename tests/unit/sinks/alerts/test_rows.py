"""Alerts, tries and feedback on their way into ClickHouse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.codec import Rejected, decode, encode
from schemas.records import Alert, Delivery, Feedback
from schemas.topics import ALERTS, DELIVERIES, FEEDBACK
from sinks.warehouse.messages import Message, process_message, unusable_letter
from sinks.warehouse.rows import inserts
from tests.unit.sinks.alerts.simulated import START
from tests.unit.sinks.alerts.test_channels import alert

TRY = Delivery("n1", 2, START, "pager", "pagerduty", "failed", 12.5, "k", "firing", 7, 500, "no", ("k", "l"), 2, True)
SAID = Feedback("f1", START, "k", "expected", "h1", "gpu", None, "e1", START + 5_000_000_000, "ada", "note")


def message(topic: str, record: Alert | Delivery | Feedback) -> Message:
    return Message(topic, 1, 5, 0, b"k", encode(record))


@pytest.mark.parametrize(
    ("topic", "record"), [(ALERTS, alert()), (DELIVERIES, TRY), (FEEDBACK, SAID)], ids=["alert", "try", "feedback"]
)
def test_they_survive_the_wire_and_become_a_row(topic: str, record: Alert | Delivery | Feedback) -> None:
    assert decode(encode(record)) == record
    accepted = process_message(message(topic, record))
    assert accepted is not None
    (insert,) = inserts([accepted])
    assert insert.table == f"{topic.removeprefix('reveal.')}_log"
    (row,) = insert.rows.to_pylist()
    assert row["time"].timestamp() * 1e9 == record.time_ns
    assert (row["kafka_partition"], row["kafka_offset"]) == (1, 5)
    for name in ("key", "revision", "severity", "receiver", "code", "digest", "verdict", "by", "cause", "summary"):
        if hasattr(record, name):
            assert row[name] == getattr(record, name)
    letter = unusable_letter(accepted, "why")
    assert letter is not None
    assert letter.topic == topic


@pytest.mark.parametrize(
    ("topic", "record"),
    [
        (ALERTS, replace(alert(), since_ns=1)),
        (ALERTS, replace(alert(), resolved_ns=2**62)),
        (DELIVERIES, replace(TRY, time_ns=0)),
        (FEEDBACK, replace(SAID, until_ns=1)),
        (ALERTS, SAID),
    ],
)
def test_what_no_table_holds_is_rejected(topic: str, record: Alert | Delivery | Feedback) -> None:
    with pytest.raises(Rejected):
        process_message(message(topic, record))
