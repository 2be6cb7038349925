"""What the sink knows of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Status:
    """A picture of one moment. Counts are since the start.

    messages, rows     read, and stored; rows by table
    inserts, insert_s  statements that were confirmed, and the time they took
    failures           statements and dead letters that had to be tried again
    rejected           messages that could not be read, by reason; capped is how many of them were not copied
    lost               messages that were deleted from their topics before they were read
    lag                messages that are not read yet, by topic
    lag_s              age of the oldest message that is not stored yet, s; 0 when all are
    waiting            why nothing is stored at the moment; empty when it is
    leads              it sums up minutes and copies samples; upkeep counts what of it was done
    turn_s             seconds since the last turn of the loop
    """

    instance: str
    version: str
    messages: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    inserts: int = 0
    insert_s: float = 0.0
    failures: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    capped: int = 0
    lost: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    lag_s: float = 0.0
    waiting: str = ""
    leads: bool = False
    upkeep: Mapping[str, int] = field(default_factory=dict)
    turn_s: float = 0.0
