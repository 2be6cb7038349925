"""What became of the messages: counted, said in the log, and noticed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from producers.notices import Notices
from producers.vitals import Vitals
from schemas.catalogue import SUBSYSTEMS

log = logging.getLogger(__name__)

SAY_EVERY_S: Final = 60.0


@dataclass(slots=True)
class Counts:
    """Messages so far: delivered by the broker, refused by it for good, dropped because there was no room for them or
    they could not be read from the spool.
    """

    delivered: int = 0
    failed: int = 0
    dropped: int = 0


class Ledger:
    """Counts of one agent, for all its threads. `say` tells what is lost, at once and then once a minute."""

    def __init__(
        self,
        notices: Notices | None = None,
        vitals: Vitals | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = Counts()
        self._notices = notices or Notices()
        self._vitals = vitals or Vitals()
        self._clock = clock
        self._lock = threading.Lock()
        self._lost: dict[str, int] = {}
        self._untold: dict[str, tuple[int, int, str]] = {}
        self._say_at = float("-inf")

    def lost(self, subsystem: str) -> int:
        """Samples of `subsystem` that are lost."""
        return self._lost.get(subsystem, 0)

    def delivered(self) -> None:
        """One more."""
        self.counts.delivered += 1

    def refused(self) -> None:
        """One more that Kafka will not have."""
        self.counts.failed += 1

    def spooled(self, messages: int) -> None:
        """So many are on disk now."""
        self._vitals.spooled = messages

    def lose(self, subsystem: str, messages: int, samples: int, reason: str) -> None:
        """So many messages with so many samples of `subsystem` ("" where that is not known) are lost."""
        with self._lock:
            self.counts.dropped += messages
            self._lost[subsystem] = self._lost.get(subsystem, 0) + samples
            before = self._untold.get(subsystem, (0, 0, ""))
            self._untold[subsystem] = (before[0] + messages, before[1] + samples, reason)

    def say(self) -> None:
        """Tell of losses that were not told yet, unless something was told within the last minute. Call it often."""
        with self._lock:
            now = self._clock()
            if not self._untold or now < self._say_at:
                return
            self._say_at = now + SAY_EVERY_S
            untold, self._untold = self._untold, {}
        for subsystem, (messages, samples, reason) in untold.items():
            text = f"{messages} messages with {samples} samples of {subsystem or 'an unknown subsystem'} lost: {reason}"
            log.warning(text)
            self._notices.add("samples_lost", subsystem or SUBSYSTEMS[0], text)
