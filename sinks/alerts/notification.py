"""What is handed to a channel, and how that went."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import Alert

DELIVERED = "delivered"
FAILED = "failed"
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Notification:
    """One message to one receiver. Every try of it has the same id.

    alerts  at least one, each in the state that the receiver is to know
    digest  it sums up what the rate limit held back
    again   it only says once more what the receiver knows, for one that would forget
    """

    id: str
    receiver: str
    alerts: tuple[Alert, ...]
    attempt: int = 1
    digest: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a try went: delivered, failed (it is tried again) or refused (it is not).

    code           HTTP or SMTP status, where there was one
    retry_after_s  what the receiver asked for
    """

    status: str
    latency_ms: float
    code: int | None = None
    error: str = ""
    retry_after_s: float | None = None
