"""Threads of receivers: one that hangs or breaks holds up nobody."""

from __future__ import annotations

import threading
import time

import pytest

from sinks.alerts.channels.base import ChannelError
from sinks.alerts.notification import DELIVERED, FAILED, REFUSED, Notification, Outcome
from sinks.alerts.workers import QUEUE, Workers
from tests.unit.sinks.alerts.test_channels import alert


class Channel:
    """Does what the test says."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sent: list[Notification] = []
        self.goes_on = threading.Event()
        self.goes_on.set()

    def send(self, notification: Notification) -> int:
        assert self.goes_on.wait(20)
        self.sent.append(notification)
        if self.error is not None:
            raise self.error
        return 200


def collect(workers: Workers, number: int) -> list[tuple[Notification, Outcome]]:
    found: list[tuple[Notification, Outcome]] = []
    deadline = time.monotonic() + 10
    while len(found) < number:
        assert time.monotonic() < deadline, found
        found += workers.outcomes()
        time.sleep(0.01)
    return found


def test_one_that_hangs_does_not_hold_up_the_other_and_its_queue_is_bounded() -> None:
    stuck, well = Channel(), Channel()
    stuck.goes_on.clear()
    workers = Workers({"stuck": stuck, "well": well})
    one = alert()
    taken = sum(workers.give(Notification(str(number), "stuck", (one,))) for number in range(20))
    assert QUEUE <= taken <= QUEUE + 1
    for number in range(QUEUE):
        assert workers.give(Notification(str(number), "well", (one,)))
    assert [outcome.status for _, outcome in collect(workers, QUEUE)] == [DELIVERED] * QUEUE
    assert workers.free()["well"] == QUEUE
    assert workers.free()["stuck"] <= 0
    stuck.goes_on.set()
    workers.stop(5)
    assert len(stuck.sent) <= taken


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ChannelError("no", again=True, code=503, retry_after_s=7.0), FAILED),
        (ChannelError("no", again=False, code=400), REFUSED),
        (RuntimeError("a fault with a secret in its text"), FAILED),
    ],
)
def test_failures_become_outcomes_and_the_thread_lives_on(error: Exception, status: str) -> None:
    channel = Channel(error)
    workers = Workers({"r": channel})
    assert workers.give(Notification("1", "r", (alert(),)))
    ((_, outcome),) = collect(workers, 1)
    assert outcome.status == status
    assert "secret" not in outcome.error
    if isinstance(error, ChannelError):
        assert (outcome.code, outcome.retry_after_s) == (error.code, error.retry_after_s)
    channel.error = None
    assert workers.give(Notification("2", "r", (alert(),)))
    assert collect(workers, 1)[0][1].status == DELIVERED
    workers.stop(5)
