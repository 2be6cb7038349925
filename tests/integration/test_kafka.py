"""The local Kafka with a real broker: start, topics, clients, SIGKILL, damage."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from aiokafka.partitioner import murmur2
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from deploy.kafka.config import JVM_OPTIONS
from deploy.kafka.errors import LocalKafkaError, PortBusyError
from deploy.kafka.jars import default_cache, pinned_jars
from deploy.kafka.ports import free_ports
from deploy.kafka.runtime import Runtime, StartupCache, java
from deploy.kafka.server import CACHE_STEP, LocalKafka
from deploy.kafka.topics import TopicError, create_topics
from schemas.topics import TopicSpec, topic_table
from tests.kafka_fixture import NewKafka, local_kafka, new_topic
from tests.streams import wait_for

pytestmark = pytest.mark.stack

PRODUCER = {"enable.idempotence": True, "compression.type": "zstd", "partitioner": "murmur2_random", "linger.ms": 5}


def client(kafka: LocalKafka) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": kafka.bootstrap}


def configs(kafka: LocalKafka, topic: str) -> Mapping[str, str | None]:
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(client(kafka))
    entries = admin.describe_configs([resource])[resource].result(10)
    return {name: entry.value for name, entry in entries.items()}


def read_all(kafka: LocalKafka, topic: str, timeout_s: float = 120) -> list[Message]:
    """Every message of the topic, from its beginning to where it ends now."""
    consumer = Consumer({**client(kafka), "group.id": "read-all", "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ends = {part: consumer.get_watermark_offsets(TopicPartition(topic, part), timeout=10)[1] for part in partitions}
        consumer.assign([TopicPartition(topic, part, 0) for part in partitions])
        messages: list[Message] = []
        deadline = time.monotonic() + timeout_s
        while len(messages) < sum(ends.values()):
            assert time.monotonic() < deadline, f"read {len(messages)} of {sum(ends.values())} messages"
            for message in consumer.consume(500, timeout=0.5):
                assert message.error() is None
                messages.append(message)
        return messages
    finally:
        consumer.close()


def test_listens_on_loopback_only(kafka: LocalKafka) -> None:
    assert kafka.pid is not None
    listening = [
        connection.laddr
        for connection in psutil.Process(kafka.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {address.port for address in listening} == {kafka.port, kafka.controller_port}
    assert {address.ip.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_log_is_readable(kafka: LocalKafka) -> None:
    wait_for(
        lambda: " INFO  KafkaRaftServer: [KafkaRaftServer nodeId=1] Kafka Server started\n" in kafka.log.read_text(),
        "a word about the start",
    )
    assert [line for line in kafka.output.read_text().splitlines() if "Picked up" not in line] == []


def test_topics_are_created_and_altered_but_keep_their_number_of_partitions(kafka: LocalKafka) -> None:
    name = new_topic(kafka, partitions=2)
    same = TopicSpec(name, 2, {"retention.ms": "1000000"})
    (altered,) = create_topics(client(kafka), [same])
    assert (altered.name, altered.action) == (name, "altered")
    assert altered.detail == "retention.ms from 604800000 to 1000000"
    assert create_topics(client(kafka), [same]) == []

    for number in (1, 3):
        with pytest.raises(TopicError, match=f"{name} has 2 partitions, {number} are wanted"):
            create_topics(client(kafka), [TopicSpec(name, number, {})])
    assert configs(kafka, name)["retention.ms"] == "1000000"


def test_the_topic_table_is_created_once_by_many(kafka: LocalKafka) -> None:
    table = topic_table(2)
    with ThreadPoolExecutor(3) as pool:
        changes = [
            change for made in pool.map(lambda _: create_topics(client(kafka), table), range(3)) for change in made
        ]
    assert Counter(change.name for change in changes) == Counter(spec.name for spec in table)
    assert create_topics(client(kafka), table) == []
    for spec in table:
        assert dict(spec.configs).items() <= configs(kafka, spec.name).items()


def test_a_refused_topic_is_explained(kafka: LocalKafka) -> None:
    with pytest.raises(TopicError, match=r"refused to create topic test\.bad: .*no\.such\.setting"):
        create_topics(client(kafka), [TopicSpec("test.bad", 1, {"no.such.setting": "1"})])


def test_no_broker_is_explained() -> None:
    (port,) = free_ports(1)
    with pytest.raises(TopicError, match="is it running"):
        create_topics({"bootstrap.servers": f"127.0.0.1:{port}"}, [TopicSpec("test", 1, {})], timeout_s=0.5)


def test_an_unknown_topic_stays_unknown(kafka: LocalKafka) -> None:
    admin = AdminClient(client(kafka))
    found = admin.list_topics("test.mistyped", timeout=10).topics["test.mistyped"]
    assert found.error is not None
    assert found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "test.mistyped" not in admin.list_topics(timeout=10).topics


def test_messages_go_where_every_client_of_ours_expects_them(kafka: LocalKafka) -> None:
    topic = new_topic(kafka, partitions=5)
    producer = Producer({**client(kafka), **PRODUCER})
    sent = {f"host-{i}".encode(): os.urandom(100) for i in range(200)}
    for key, value in sent.items():
        producer.produce(topic, value, key)
    assert producer.flush(10) == 0
    messages = read_all(kafka, topic)
    assert {message.key(): message.value() for message in messages} == sent
    assert all(message.partition() == (murmur2(message.key()) & 0x7FFFFFFF) % 5 for message in messages)


def test_a_message_of_nearly_4_mib_passes(kafka: LocalKafka) -> None:
    topic = new_topic(kafka, partitions=1)
    value = os.urandom((4 << 20) - 1000)
    producer = Producer({**client(kafka), **PRODUCER, "message.max.bytes": 4 << 20})
    producer.produce(topic, value)
    assert producer.flush(10) == 0
    assert [message.value() for message in read_all(kafka, topic)] == [value]


def test_a_group_of_the_new_protocol_resumes_where_it_committed(kafka: LocalKafka) -> None:
    topic = new_topic(kafka, partitions=1)
    producer = Producer({**client(kafka), **PRODUCER})
    for i in range(10):
        producer.produce(topic, str(i))
    assert producer.flush(10) == 0

    group = {
        "group.id": topic,
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }

    def read(count: int) -> list[bytes | None]:
        consumer = Consumer({**client(kafka), **group})
        try:
            consumer.subscribe([topic])
            got: list[Message] = []
            deadline = time.monotonic() + 20
            while len(got) < count and time.monotonic() < deadline:
                got += consumer.consume(count - len(got), timeout=0.5)
            consumer.commit(message=got[-1], asynchronous=False)
            return [message.value() for message in got]
        finally:
            consumer.close()

    assert read(4) == [b"0", b"1", b"2", b"3"]
    assert read(6) == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_the_broker_dies_with_its_owner(tmp_path: Path) -> None:
    port, controller_port = free_ports(2)
    script = (
        "import sys; from pathlib import Path; from deploy.kafka.server import LocalKafka; "
        f"kafka = LocalKafka(Path(sys.argv[1]), port={port}, controller_port={controller_port}); "
        "kafka.start(); kafka.wait_ready(); print(kafka.pid, flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with owner:
        assert owner.stdout is not None
        broker = psutil.Process(int(owner.stdout.readline()))
        assert broker.name() == "java"
        owner.kill()
    wait_for(lambda: not broker.is_running() or broker.status() == psutil.STATUS_ZOMBIE, "its end")


def test_a_clean_stop_and_a_start_keep_the_data_on_other_ports(new_kafka: NewKafka) -> None:
    kafka = new_kafka()
    topic = new_topic(kafka)
    producer = Producer({**client(kafka), **PRODUCER})
    producer.produce(topic, "kept")
    assert producer.flush(10) == 0
    kafka.stop()
    assert kafka.pid is None
    assert not kafka.ready()
    port, controller_port = free_ports(2)
    with LocalKafka(kafka.directory, port=port, controller_port=controller_port) as again:
        assert [message.value() for message in read_all(again, topic)] == [b"kept"]


def test_the_port_of_a_running_broker_is_busy(kafka: LocalKafka, tmp_path: Path) -> None:
    with pytest.raises(PortBusyError, match=f"port {kafka.port} "):
        LocalKafka(tmp_path, port=kafka.port).start()


def test_a_broker_that_ends_at_once_shows_why(tmp_path: Path) -> None:
    broker = local_kafka(tmp_path)
    broker.prepare()
    broker.properties.write_text(broker.properties.read_text("ascii").replace("node.id=1", "node.id=-7"), "ascii")
    broker.start()
    with pytest.raises(LocalKafkaError, match=r"(?s)ended with status 1 .*node\.id"):
        broker.wait_ready()
    broker.stop()


def test_a_damaged_startup_cache_is_made_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    with local_kafka(tmp_path / "first"):
        pass  # the user's cache has all jars now
    for jar in pinned_jars():
        shutil.copy(default_cache(os.environ) / jar.name, cache)
    made = StartupCache(cache, Runtime(java(), tuple(cache / jar.name for jar in pinned_jars()), JVM_OPTIONS))
    made.path.write_bytes(b"damaged")
    assert not made.intact()

    port, controller_port = free_ports(2)
    broker = LocalKafka(tmp_path / "second", port=port, controller_port=controller_port, cache=cache)
    steps: list[str] = []
    broker.prepare(lambda done, total, name: steps.append(name))
    assert steps == [CACHE_STEP, CACHE_STEP]
    assert made.intact()
    with broker:
        assert str(made.path) in Path(f"/proc/{broker.pid}/maps").read_text("utf-8")


@pytest.mark.parametrize("content", [None, b"", b"junk" * 10_000])
def test_the_broker_starts_with_whatever_lies_at_the_startup_caches_place(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "startup.aot"
    if content is not None:
        path.write_bytes(content)
    port, controller_port = free_ports(2)
    with LocalKafka(
        tmp_path / "kafka",
        port=port,
        controller_port=controller_port,
        startup_cache=False,
        jvm_options=[f"-XX:AOTCache={path}"],
    ) as broker:
        assert broker.ready()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_becomes_the_broker_and_stops_on_signals(tmp_path: Path, number: signal.Signals) -> None:
    port, controller_port = free_ports(2)
    script = (
        "import argparse, sys; from deploy.commands import kafka; parser = argparse.ArgumentParser(); "
        "kafka.configure(parser); sys.exit(kafka.run(parser.parse_args()))"
    )
    arguments = ["--directory", str(tmp_path), "--port", str(port), "--controller-port", str(controller_port)]
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], stderr=subprocess.PIPE)
    try:
        LocalKafka(tmp_path, port=port).wait_ready()
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + number
    assert f"Kafka serves 127.0.0.1:{port} as process {process.pid}" in errors.decode()
