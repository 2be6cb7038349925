"""Fixtures of all tests."""

from tests.clickhouse_fixture import clickhouse, make_clickhouse
from tests.kafka_fixture import kafka, new_kafka

__all__ = ["clickhouse", "kafka", "make_clickhouse", "new_kafka"]
