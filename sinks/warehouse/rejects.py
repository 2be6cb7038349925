"""How many unreadable messages are copied to the dead-letter topic: a flood of them must not become a second flood."""

from __future__ import annotations

from collections import Counter
from typing import Final

from schemas.codec import Rejected
from schemas.records import DeadLetter
from schemas.topics import DEAD
from sinks.warehouse.messages import Message, dead_letter

PER_SECOND: Final = 50.0
BURST: Final = 500.0


class Rejects:
    """Counts rejects and decides which are copied: a burst, then so many a second.

    counts  by reason, since the start
    capped  how many were not copied because there were too many; they are still in their topic
    """

    def __init__(self, per_second: float = PER_SECOND, burst: float = BURST) -> None:
        self.per_second = per_second
        self.burst = burst
        self.counts: Counter[str] = Counter()
        self.capped = 0
        self._left = burst
        self._at: float | None = None

    def judge(self, message: Message, error: Rejected, now: float) -> DeadLetter | None:
        """Letter to send for `message`, or None: one of the dead-letter topic itself (a letter about a letter would
        never end), or one too many. `now` in seconds of a steady clock.
        """
        self.counts[error.reason] += 1
        if message.topic == DEAD:
            return None
        if self._at is not None:
            self._left = min(self.burst, self._left + (now - self._at) * self.per_second)
        self._at = now
        if self._left < 1:
            self.capped += 1
            return None
        self._left -= 1
        return dead_letter(message, error)
