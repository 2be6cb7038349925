"""Fixtures of all tests."""

import signal
from typing import Final

import pytest

from tests.clickhouse_fixture import clickhouse, make_clickhouse
from tests.kafka_fixture import broker, kafka, new_kafka

__all__ = ["broker", "clickhouse", "kafka", "make_clickhouse", "new_kafka"]


def pytest_configure() -> None:
    """A shell that runs the tests in the background has them ignore SIGINT, and the services they start as well."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


LONGEST: Final = (
    "test_worker_faults",
    "test_end_to_end",
    "test_spool",
    "test_warehouse_faults",
    "test_warehouse",
    "test_alerts",
    "test_warehouse_kills",
    "test_worker",
    "test_kafka",
    "test_server",
    "test_query",
    "test_models",
    "test_analyst",
    "test_fleet",
    "test_gpu",
    "test_report",
    "test_clickhouse_server",
    "test_agent",
)
"""The files that take longest, of those that run a few at a time: they begin first, so that all end at one time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
