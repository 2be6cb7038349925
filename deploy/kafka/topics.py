"""Topics of a cluster, local or not, brought to what their table says; and whether the cluster serves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports are implicit
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from deploy.kafka.errors import LocalKafkaError
from schemas.topics import TopicSpec

POLL_S = 0.05

# Settings of librdkafka, as its own clients take them.
ClientConfig = Mapping[str, str | int | float | bool]


class TopicError(LocalKafkaError):
    """A topic cannot be brought to what its specification says; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class TopicChange:
    """What was done to one topic. detail: for people."""

    name: str
    action: Literal["created", "altered"]
    detail: str


def create_topics(
    client_config: ClientConfig, topics: Iterable[TopicSpec], *, timeout_s: float = 30
) -> list[TopicChange]:
    """Create missing topics, set configurations that differ; returns what was changed.

    client_config: of librdkafka, `bootstrap.servers` and whatever TLS and SASL need. Configurations that a topic's
    specification does not name are left alone. On return every partition has a leader.
    Raises TopicError, among others for a topic that has another number of partitions than specified.
    """
    deadline = time.monotonic() + timeout_s
    wanted = {spec.name: spec for spec in topics}
    admin = _admin(client_config)
    present = _partitions(admin, timeout_s)
    for spec in wanted.values():
        if present.get(spec.name, spec.partitions) != spec.partitions:
            # More of them would move hosts to other partitions, away from their state and their history.
            raise TopicError(
                f"topic {spec.name} has {present[spec.name]} partitions, {spec.partitions} are wanted, and their "
                f"number stays as it is: set REVEAL_KAFKA_PARTITIONS to {present[spec.name]}, or delete the topic with "
                "its data"
            )
    changes = [
        *_create(admin, [spec for spec in wanted.values() if spec.name not in present], timeout_s),
        *_alter(admin, [spec for spec in wanted.values() if spec.name in present and spec.configs], timeout_s),
    ]
    while missing := [
        spec.name for spec in wanted.values() if _led(admin, deadline).get(spec.name, 0) < spec.partitions
    ]:
        if time.monotonic() > deadline:
            raise TopicError(f"topics have partitions without a leader after {timeout_s:.0f} s: {', '.join(missing)}")
        time.sleep(POLL_S)
    return changes


def cluster_serves(client_config: ClientConfig, timeout_s: float = 1) -> bool:
    """Whether a broker answers and every partition has a leader. Costs one metadata request."""
    try:
        metadata = _admin(client_config).list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    partitions = (partition for topic in metadata.topics.values() for partition in topic.partitions.values())
    return bool(metadata.brokers) and all(partition.leader >= 0 for partition in partitions)


def _admin(client_config: ClientConfig) -> AdminClient:
    # What librdkafka has to say about a broker that is away is told by our own errors.
    quiet = logging.Logger("librdkafka", logging.CRITICAL)
    return AdminClient({"socket.timeout.ms": 10_000, **client_config}, logger=quiet)


def _partitions(admin: AdminClient, timeout_s: float) -> dict[str, int]:
    return {
        name: len(topic.partitions)
        for name, topic in _call(lambda: admin.list_topics(timeout=timeout_s)).topics.items()
    }


def _led(admin: AdminClient, deadline: float) -> dict[str, int]:
    metadata = _call(lambda: admin.list_topics(timeout=max(1.0, deadline - time.monotonic())))
    return {
        name: sum(part.leader >= 0 for part in topic.partitions.values()) for name, topic in metadata.topics.items()
    }


def _create(admin: AdminClient, specs: list[TopicSpec], timeout_s: float) -> list[TopicChange]:
    if not specs:
        return []
    new = [NewTopic(spec.name, spec.partitions, spec.replication, config=dict(spec.configs)) for spec in specs]
    futures = _call(lambda: admin.create_topics(new, operation_timeout=timeout_s))
    # A topic that exists by now: another process of ours was quicker.
    return [
        TopicChange(spec.name, "created", f"{spec.partitions} partitions")
        for spec in specs
        if _result(f"create topic {spec.name}", futures[spec.name], timeout_s, KafkaError.TOPIC_ALREADY_EXISTS)
    ]


def _alter(admin: AdminClient, specs: list[TopicSpec], timeout_s: float) -> list[TopicChange]:
    if not specs:
        return []
    described = _call(lambda: admin.describe_configs([ConfigResource(ResourceType.TOPIC, spec.name) for spec in specs]))
    values = {
        resource.name: _result(f"read the configuration of {resource.name}", future, timeout_s)
        for resource, future in described.items()
    }
    resources, changes = [], []
    for spec in specs:
        now = {name: entry.value for name, entry in values[spec.name].items()}
        differing = {name: value for name, value in spec.configs.items() if now.get(name) != value}
        if differing:
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in differing.items()
            ]
            resources.append(ConfigResource(ResourceType.TOPIC, spec.name, incremental_configs=entries))
            detail = ", ".join(f"{name} from {now.get(name)} to {value}" for name, value in differing.items())
            changes.append(TopicChange(spec.name, "altered", detail))
    if resources:
        for resource, future in _call(lambda: admin.incremental_alter_configs(resources)).items():
            _result(f"alter the configuration of {resource.name}", future, timeout_s)
    return changes


def _call(request: Callable[[], Any]) -> Any:
    try:
        return request()
    except KafkaException as error:
        raise TopicError(
            f"Kafka does not answer: {error.args[0].str()}; is it running, and is bootstrap.servers right?"
        ) from error


def _result(what: str, future: Future[Any], timeout_s: float, accepted: int | None = None) -> Any:
    """The future's value, True where it has none; False for the accepted error."""
    try:
        value = future.result(timeout_s)
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() == accepted:
            return False
        raise TopicError(f"Kafka refused to {what}: {cause.str()}") from error
    except TimeoutError as error:
        raise TopicError(f"Kafka did not {what} within {timeout_s:.0f} s") from error
    return True if value is None else value
