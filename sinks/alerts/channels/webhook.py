"""Any HTTP endpoint: JSON, signed."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from schemas.settings import Secret
from sinks.alerts.channels.base import Kind, Surroundings
from sinks.alerts.channels.http import PATIENCE_S, post
from sinks.alerts.limits import Limit
from sinks.alerts.notification import Notification
from sinks.alerts.text import as_json

TIMESTAMP: Final = "X-Reveal-Timestamp"
SIGNATURE: Final = "X-Reveal-Signature"


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """url: where to; secret: signs the body; headers: sent along; ca_file: PEM of who vouches for the endpoint."""

    url: Secret
    secret: Secret = Secret("")
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = PATIENCE_S
    ca_file: str = ""


class WebhookChannel:
    """POSTs {"version", "id", "receiver", "digest", "alerts"}."""

    def __init__(self, options: WebhookOptions, surroundings: Surroundings) -> None:
        self._options = options
        self._now_ns = surroundings.now_ns

    def send(self, notification: Notification) -> int:
        """Post it. Raises ChannelError."""
        options = self._options
        content = {
            "version": 1,
            "id": notification.id,
            "receiver": notification.receiver,
            "digest": notification.digest,
            "alerts": [as_json(alert) for alert in notification.alerts],
        }
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        headers = {**options.headers, "Content-Type": "application/json", "Idempotency-Key": notification.id}
        if options.secret:
            time_s = str(self._now_ns() // 1_000_000_000)
            headers |= {TIMESTAMP: time_s, SIGNATURE: f"sha256={sign(options.secret, time_s, body)}"}
        return post(options.url, body, headers, timeout_s=options.timeout, ca_file=options.ca_file)[0]


def sign(secret: str, time_s: str, body: bytes) -> str:
    """HMAC-SHA256 of the time, a dot and the body, in hexadecimal: the time keeps an old message from being played
    again.
    """
    return hmac.new(secret.encode(), time_s.encode() + b"." + body, hashlib.sha256).hexdigest()


KIND: Final = Kind(WebhookOptions, WebhookChannel, "message", Limit(60, 600))
