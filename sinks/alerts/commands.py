"""What people ask of the service: records in the state topic, each under a key of its own, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from sinks.alerts.held import SEVERITIES
from sinks.alerts.matching import Matcher
from sinks.alerts.silences import Expected, Silence

ACK: Final = "ack/"
SILENCE: Final = "silence/"
EXPECTED: Final = "expected/"
ALERT: Final = "alert/"
OWN: Final = "own/"
"""Prefixes of keys: the first three are written by people's commands, the others by the service."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Somebody looks after the alert with this key."""

    key: str
    by: str
    comment: str = ""


Command = Ack | Silence | Expected
Message = tuple[bytes, bytes | None]
"""Key and value in the state topic; no value removes what was there."""


def encode_command(command: Command) -> Message:
    """As it is written into the state topic."""
    values: dict[str, Any]
    if isinstance(command, Ack):
        key, values = f"{ACK}{command.key}", {"key": command.key, "by": command.by, "comment": command.comment}
    elif isinstance(command, Silence):
        key = f"{SILENCE}{command.id}"
        values = {name: getattr(command, name) for name in ("id", "starts_ns", "ends_ns", "key", "by", "comment")}
        values["match"] = {name: list(wanted) for name, wanted in command.matcher.patterns.items()}
        values["severity"] = command.matcher.severity
    else:
        key = f"{EXPECTED}{command.id}"
        values = {name: getattr(command, name) for name in Expected.__slots__}
    return key.encode(), json.dumps(values, sort_keys=True).encode()


def remove(prefix: str, name: str) -> Message:
    """Takes a command back."""
    return f"{prefix}{name}".encode(), None


def decode_command(key: str, value: bytes) -> Command:
    """The command in a record of the state topic. Raises ValueError for what is none."""
    try:
        values: Any = json.loads(value)
        if key.startswith(ACK):
            return Ack(str(values["key"]), str(values["by"]), str(values.get("comment", "")))
        if key.startswith(SILENCE):
            match = {str(name): tuple(map(str, wanted)) for name, wanted in values.pop("match").items()}
            severity = values.pop("severity")
            if severity and severity not in SEVERITIES:
                raise ValueError(f"severity {severity!r}")
            silence = Silence(matcher=Matcher(match, severity), **values)
            if not (isinstance(silence.starts_ns, int) and isinstance(silence.ends_ns, int)):
                raise ValueError("times are whole nanoseconds")
            return silence
        if key.startswith(EXPECTED):
            expected = Expected(**values)
            if not isinstance(expected.until_ns, int):
                raise ValueError("times are whole nanoseconds")
            return expected
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{key} holds no command: {error}") from None
    raise ValueError(f"{key} is no command")
