"""Fixtures of all tests."""

import signal

from tests.clickhouse_fixture import clickhouse, make_clickhouse
from tests.kafka_fixture import kafka, new_kafka

__all__ = ["clickhouse", "kafka", "make_clickhouse", "new_kafka"]


def pytest_configure() -> None:
    """A shell that runs the tests in the background has them ignore SIGINT, and the services they start as well."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
