"""The real Kafka for tests: one broker for the session without topics, one for each file that asks for it with Reveal's
topics, and further ones for tests that stop or kill theirs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deploy.kafka.ports import free_ports
from deploy.kafka.server import LocalKafka
from deploy.kafka.topics import create_topics
from schemas.topics import TopicSpec
from tests.streams import make_topics

NewKafka = Callable[[], LocalKafka]


def local_kafka(directory: Path) -> LocalKafka:
    """A broker on free ports, not started, with new storage where there is none."""
    port, controller_port = free_ports(2)
    kafka = LocalKafka(directory, port=port, controller_port=controller_port)
    if not kafka.data.exists():
        for name, content in _storage().items():
            path = kafka.data / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return kafka


@cache
def _storage() -> Mapping[Path, bytes]:
    """Files of formatted storage: the tool that makes it, a second of Java, runs once and not for each broker."""
    with TemporaryDirectory() as place:
        kafka = LocalKafka(Path(place))
        kafka.prepare()
        return {path.relative_to(kafka.data): path.read_bytes() for path in kafka.data.rglob("*") if path.is_file()}


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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A running broker with Reveal's topics for the tests of one file."""
    kafka = local_kafka(tmp_path_factory.mktemp("broker"))
    kafka.start()
    try:
        kafka.wait_ready()
        make_topics(kafka.bootstrap)
        yield kafka
    finally:
        kafka.kill()


@pytest.fixture
def new_kafka(tmp_path: Path) -> Iterator[NewKafka]:
    """Makes running brokers for this test alone; they are killed after it, in whatever state it leaves them."""
    brokers: list[LocalKafka] = []

    def make() -> LocalKafka:
        broker = local_kafka(tmp_path / f"kafka-{len(brokers)}")
        brokers.append(broker)
        broker.start()
        broker.wait_ready()
        return broker

    yield make
    for broker in brokers:
        broker.kill()
