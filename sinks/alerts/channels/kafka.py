"""A topic of one's own with what a route sends there: the same Avro records as in reveal.alerts, which has all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.codec import encode
from schemas.topics import ALERTS
from sinks.alerts.channels.base import ChannelError, Kind, Surroundings
from sinks.alerts.limits import NO_LIMIT
from sinks.alerts.notification import Notification


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """topic: must exist, in the same Kafka."""

    topic: str


class KafkaChannel:
    """A record an alert, under its deduplication key."""

    def __init__(self, options: KafkaOptions, surroundings: Surroundings) -> None:
        self._topic = options.topic
        self._produce = surroundings.produce

    def send(self, notification: Notification) -> None:
        """Publish. Raises ChannelError."""
        if self._topic.startswith("reveal."):
            raise ChannelError(
                f"{self._topic} is Reveal's own; {ALERTS} has every alert without a receiver", again=False
            )
        for alert in notification.alerts:
            self._produce(self._topic, alert.key.encode(), encode(alert))


KIND: Final = Kind(KafkaOptions, KafkaChannel, "batch", NO_LIMIT)
