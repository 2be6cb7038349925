"""An alert as the engine holds it, and its form in the compacted topic: JSON, so that any version can look at it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

FIRING: Final = "firing"
UPDATED: Final = "updated"
RESOLVED: Final = "resolved"
ACKNOWLEDGED: Final = "acknowledged"
SILENCED: Final = "silenced"
EXPIRED: Final = "expired"
STATES: Final = (FIRING, UPDATED, RESOLVED, ACKNOWLEDGED, SILENCED, EXPIRED)
ACTIVE: Final = frozenset({FIRING, ACKNOWLEDGED})
"""States in which somebody is concerned."""
OVER: Final = frozenset({RESOLVED, EXPIRED})
SEVERITIES: Final = ("info", "warning", "critical")
MOST_EPISODES: Final = 20
LONGEST_KEY: Final = 200


@dataclass(frozen=True, slots=True)
class Told:
    """What a receiver knows: the revision, its state, and when it was told, ns."""

    revision: int
    state: str
    at_ns: int


@dataclass(slots=True)
class Held:
    """One alert. Times are ns since 1970-01-01 UTC; those that decide anything are the service's, not the hosts'.

    state     firing, acknowledged, silenced, resolved or expired
    episodes  id and last revision of the newest episodes, oldest first; open: those of them that are not closed
    born_ns   when it began to fire this time; heard_ns: when something of it was heard last
    calm_ns   since when no episode of it is open
    parent    key of the group alert that is told instead; members: of a group, keys of its alerts; hosts: of a group,
              those affected now; most: how many it were at the height; told_hosts: how many when it was news last
    news      revision that receivers are to know
    told      what each receiver knows
    """

    key: str
    scope: str
    host: str = ""
    group: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    state: str = RESOLVED
    revision: int = 0
    subsystem: str = ""
    cause: str | None = None
    severity: str = "warning"
    peak: float = 0.0
    since_ns: int = 0
    updated_ns: int = 0
    born_ns: int = 0
    heard_ns: int = 0
    calm_ns: int | None = None
    resolved_ns: int | None = None
    episodes: dict[str, int] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    description: str = ""
    evidence: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    remedy: str = ""
    reason: str = ""
    acknowledged: str = ""
    parent: str | None = None
    members: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    most: int = 0
    told_hosts: int = 0
    receivers: list[str] = field(default_factory=list)
    news: int = 0
    told: dict[str, Told] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What it is grouped by: its cause, or its subsystem while that is unknown."""
        return self.cause or self.subsystem

    @property
    def known_to_anybody(self) -> bool:
        """Whether a receiver holds it for firing."""
        return any(told.state != RESOLVED for told in self.told.values())

    def known_to(self, receiver: str) -> bool:
        """Whether the receiver holds it for firing."""
        told = self.told.get(receiver)
        return told is not None and told.state != RESOLVED

    def remember(self, episode: str, revision: int) -> None:
        """Note the newest revision of an episode, and forget the oldest closed ones."""
        self.episodes.pop(episode, None)
        self.episodes[episode] = revision
        for old in [name for name in self.episodes if name not in self.open][
            : max(0, len(self.episodes) - MOST_EPISODES)
        ]:
            del self.episodes[old]

    def encode(self) -> bytes:
        """As JSON."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values["told"] = {name: asdict(told) for name, told in self.told.items()}
        return json.dumps(values, separators=(",", ":"), sort_keys=True).encode()


def decode_held(data: bytes) -> Held:
    """What `encode` made, also of another version: unknown fields are passed over. Raises ValueError."""
    values: Any = json.loads(data)
    if not isinstance(values, dict) or not isinstance(values.get("key"), str):
        raise ValueError("no alert")
    known = {item.name for item in fields(Held)}
    try:
        values["told"] = {name: Told(**told) for name, told in values.get("told", {}).items()}
        return Held(**{name: value for name, value in values.items() if name in known})
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no alert: {error}") from None


def short_id(key: str) -> str:
    """The key in 12 characters."""
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def make_key(*parts: str) -> str:
    """A deduplication key of its parts; no longer than what PagerDuty takes."""
    key = "/".join(part.replace("/", "_") for part in parts)
    return key if len(key) <= LONGEST_KEY else f"{key[: LONGEST_KEY - 13]}-{short_id(key)}"
