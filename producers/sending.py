"""What delivery asks of a Kafka client, in its own words: no client library is known here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from producers.segment import Stored


class Verdict(Enum):
    """What became of a message that was sent."""

    DELIVERED = "delivered"
    AGAIN = "not its fault: to be sent again"
    NOT_NOW = "its topic cannot be used: to be sent again for some time"
    REFUSED = "refused for good, alone or for what was sent with it"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the message that was sent as `token`; the reason is in words."""

    token: int
    verdict: Verdict
    reason: str = ""


class Client(Protocol):
    """What sends to Kafka: in order within a topic, as long as nothing is refused; never gives up by itself."""

    @property
    def away(self) -> bool:
        """Whether no broker answers, as far as is known."""

    @property
    def broken(self) -> str:
        """Why the client cannot be used any more; empty as long as it can."""

    def send(self, token: int, message: Stored) -> Outcome | None:
        """Take a message on; what became of it when that is clear at once."""

    def poll(self, seconds: float) -> list[Outcome]:
        """What became of messages, waiting so long for the first one."""

    def renew(self) -> None:
        """Begin anew after it broke; nothing will be heard of messages sent before."""

    def close(self) -> None:
        """Forget all messages that are not delivered yet."""
