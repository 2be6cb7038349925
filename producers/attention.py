"""Whether a host asks for a close look: one of its episodes is open, or was a moment ago."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from schemas.records import Episode

AFTER_S: Final = 60.0
FORGET_S: Final = 1200.0
"""An open episode is told again as long as it goes on, and learnt as the new normal after a quarter of an hour; of one
that is not heard of for longer, the end was lost.
"""


class Attention:
    """Follows the episodes of `host`; calling it says whether it asks for a close look. Any thread may use it."""

    def __init__(self, host: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._clock = clock
        self._open: dict[str, float] = {}
        self._until_s = float("-inf")

    def take(self, episode: Episode) -> None:
        """Take note of a state of an episode."""
        if episode.host != self._host:
            return
        now_s = self._clock()
        if episode.state == "closed":
            self._open.pop(episode.id, None)
            self._until_s = now_s + AFTER_S
        else:
            self._open[episode.id] = now_s

    def __call__(self) -> bool:
        """Whether an episode is open, or was within AFTER_S."""
        now_s = self._clock()
        for name, heard_s in list(self._open.items()):
            if now_s - heard_s > FORGET_S:
                self._open.pop(name, None)
        return bool(self._open) or now_s < self._until_s
