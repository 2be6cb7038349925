"""The real Kafka for tests: one broker for the session, and further ones for tests that stop or kill theirs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.kafka.ports import free_ports
from deploy.kafka.server import LocalKafka
from deploy.kafka.topics import create_topics
from schemas.topics import TopicSpec

NewKafka = Callable[[], LocalKafka]


def local_kafka(directory: Path) -> LocalKafka:
    """A broker on free ports, neither prepared nor started."""
    port, controller_port = free_ports(2)
    return LocalKafka(directory, port=port, controller_port=controller_port)


def new_topic(kafka: LocalKafka, partitions: int = 4) -> str:
    """The name of a new topic that no other test uses."""
    name = f"test.{uuid.uuid4().hex}"
    create_topics({"bootstrap.servers": kafka.bootstrap}, [TopicSpec(name, partitions, {})])
    return name


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A running broker that all tests share: make topics of your own, leave the broker alone."""
    with local_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def new_kafka(tmp_path: Path) -> Iterator[NewKafka]:
    """Makes running brokers for this test alone; they are stopped after it, in whatever state it leaves them."""
    brokers: list[LocalKafka] = []

    def make() -> LocalKafka:
        broker = local_kafka(tmp_path / f"kafka-{len(brokers)}")
        brokers.append(broker)
        broker.start()
        broker.wait_ready()
        return broker

    yield make
    for broker in brokers:
        broker.stop()
