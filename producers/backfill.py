"""What the log says while a spool is sent."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)

PROGRESS_S: Final = 10.0


class Backfill:
    """Tells when it begins, every PROGRESS_S, and when it is done."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._say_at = 0.0
        self._delivered = 0

    def delivered(self, now: float, left: int, age_s: float) -> None:
        """A message of the spool was delivered; `left` others are there, the oldest of age `age_s`."""
        if self._began is None:
            self._began, self._say_at, self._delivered = now, now + PROGRESS_S, 0
            log.info("delivering from the spool: %d messages, the oldest %.0f s old", left + 1, age_s)
        self._delivered += 1

    def look(self, now: float, left: int, age_s: float) -> None:
        """Say how it goes, if it is time."""
        if self._began is None:
            return
        took_s = now - self._began
        if not left:
            log.info("the spool is empty: %d messages delivered in %.1f s", self._delivered, took_s)
            self._began = None
        elif now >= self._say_at:
            self._say_at = now + PROGRESS_S
            log.info(
                "spool: %d messages delivered, %.0f/s; %d left, the oldest %.0f s old",
                self._delivered,
                self._delivered / took_s,
                left,
                age_s,
            )
