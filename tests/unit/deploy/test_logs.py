"""Logs: a client that repeats itself does not bury the rest."""

from __future__ import annotations

import logging

from deploy.logs import Repeats


def record(name: str, message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord(name, logging.ERROR, "file", 1, message, args, None)


def test_repeats_are_held_back_and_counted() -> None:
    now = 0.0
    repeats = Repeats(5.0, clock=lambda: now)  # reads `now` as it is below
    assert repeats.filter(record("aiokafka", "no node %s", 1))
    for now in (1.0, 2.0, 4.9):  # noqa: B007
        assert not repeats.filter(record("aiokafka", "no node %s", 2))
    assert repeats.filter(record("aiokafka", "another message"))
    assert repeats.filter(record("faust", "no node %s", 1))
    now = 5.0
    again = record("aiokafka", "no node %s", 3)
    assert repeats.filter(again)
    assert again.getMessage() == "no node 3 (and 3 more like it)"
    now = 10.0
    plain = record("aiokafka", "no node %s", 4)
    assert repeats.filter(plain)
    assert plain.getMessage() == "no node 4"
