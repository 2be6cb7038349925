"""The broker's settings: one node on loopback, recovering in seconds, bounded in memory and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deploy.kafka.errors import LocalKafkaError

HOST: Final = "127.0.0.1"
LOG4J: Final = Path(__file__).with_name("log4j2.properties")

# Shared by every run, the training run included: the ahead-of-time cache is only good for the options it was made with.
JVM_OPTIONS: Final = (
    # On one machine the optimising compiler costs more CPU than its code saves.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    # A cache that does not fit is ignored by the JVM; what it has to say about that is no matter for users.
    "-Xlog:aot*=off",
    # snappy and zstd load native code; without these two Java prints warnings about it.
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "-Djava.awt.headless=true",
    f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
)


def run_options(directory: Path, heap_mb: int) -> tuple[str, ...]:
    """JVM options of one broker: heap in MiB, its log file, and its own place for temporary files."""
    return (
        f"-Xmx{heap_mb}m",
        f"-Dreveal.kafka.log={directory / 'kafka.log'}",
        f"-Djava.io.tmpdir={directory / 'tmp'}",
        f"-XX:ErrorFile={directory / 'java-crash.log'}",
    )


def server_properties(data: Path, port: int, controller_port: int) -> str:
    """The text of server.properties. Raises LocalKafkaError for a data path that Kafka cannot take."""
    if "," in str(data):
        raise LocalKafkaError(
            f"Kafka cannot keep its data in {data}, because of the ',' in the path: choose another directory"
        )
    settings: dict[str, str | int] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"BROKER://{HOST}:{port}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        # After a SIGKILL the new broker waits for the old one's registration to expire: 9 s by default.
        "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 500,
        # A mistyped topic is an error, not a topic.
        "auto.create.topics.enable": "false",
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 4,
        # A group starts at once, and a killed member of the new protocol is missed within 10 s instead of 45.
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.min.session.timeout.ms": 6000,
        "group.consumer.session.timeout.ms": 10_000,
        "group.consumer.min.heartbeat.interval.ms": 1000,
        "group.consumer.heartbeat.interval.ms": 2000,
        # A model of a host is the largest message.
        "message.max.bytes": 4 << 20,
        "replica.fetch.max.bytes": 4 << 20,
        # Bounded by size as well as by time: at most 160 MiB a partition, whatever comes in.
        "log.retention.bytes": 128 << 20,
        "log.segment.bytes": 32 << 20,
        "log.index.size.max.bytes": 1 << 20,
        "log.retention.hours": 168,
        "log.retention.check.interval.ms": 60_000,
        # Holds 300,000 keys of a compacted topic; the default would be half of the heap.
        "log.cleaner.dedupe.buffer.size": 8 << 20,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "num.recovery.threads.per.data.dir": 2,
    }
    return "# Written at every start from deploy/kafka/config.py: changes made here are lost.\n" + "".join(
        f"{name}={_escape(str(value))}\n" for name, value in settings.items()
    )


def _escape(value: str) -> str:
    """A value as a Java properties file takes it: Latin-1 with \\uXXXX in UTF-16 units."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)
