"""The messages of one topic that are out, and when those that came back may go again."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import Final

from producers.segment import Stored
from producers.segment_file import Segment

RESEND_S: Final = 0.1
LONGEST_BACKOFF_S: Final = 30.0


@dataclass(slots=True, eq=False)
class Out:
    """A message that is out: handed to the client, or parked.

    token    counts what goes out
    since    when it went out first, s
    segment  where it lies on disk; None while only memory has it
    alone    it was refused together with others, and is to go by itself
    """

    token: int
    message: Stored
    since: float
    segment: Segment | None = None
    alone: bool = False


@dataclass(slots=True)
class Lane:
    """One topic: what flies, what is parked in order until nothing flies, and since when the topic is in trouble."""

    flying: dict[int, Out] = field(default_factory=dict)
    parked: list[Out] = field(default_factory=list)
    retry_at: float = 0.0
    trouble_since: float | None = None
    _backoff_s: float = 0.0

    def closed(self) -> bool:
        """Whether a new message has to be parked behind others, or must not join one that flies alone."""
        return bool(self.parked) or (len(self.flying) == 1 and next(iter(self.flying.values())).alone)

    def park(self, out: Out, now: float) -> None:
        """A message came back, or may not go yet."""
        self.flying.pop(out.token, None)
        self.retry_at = max(self.retry_at, now + RESEND_S)
        insort(self.parked, out, key=lambda each: each.token)

    def ready(self, now: float) -> list[Out]:
        """Parked messages that may go now, no longer parked: none while any flies; a suspect, and the first one of a
        topic in trouble, goes alone.
        """
        if not self.parked or self.flying or now < self.retry_at:
            return []
        single = self.parked[0].alone or self.trouble_since is not None
        count = 1 if single else next((n for n, out in enumerate(self.parked) if out.alone), len(self.parked))
        ready, self.parked = self.parked[:count], self.parked[count:]
        return ready

    def well(self) -> None:
        """The topic takes messages."""
        self.retry_at = self._backoff_s = 0.0
        self.trouble_since = None

    def trouble(self, now: float, patience_s: float) -> bool:
        """The topic takes none: it is left alone for a while. Whether that has gone on for longer than `patience_s`."""
        if self.trouble_since is None:
            self.trouble_since = now
        if now - self.trouble_since >= patience_s:
            return True
        self._backoff_s = min(max(2 * self._backoff_s, 1.0), LONGEST_BACKOFF_S, patience_s)
        self.retry_at = now + self._backoff_s
        return False

    def recall(self) -> None:
        """Nothing will be heard of what flies: it is parked again."""
        self.parked = sorted([*self.flying.values(), *self.parked], key=lambda each: each.token)
        self.flying.clear()
