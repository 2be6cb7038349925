"""What is done beside the inserts, now and then: sums of minutes and hours, samples around episodes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from schemas.settings import WarehouseSettings
from sinks.warehouse.rollups import HOUR, MINUTE, roll_up
from sinks.warehouse.samples import Fetch, Unavailable, copy, due
from sinks.warehouse.store import Store, StoreError

LOG: Final = logging.getLogger(__name__)
LOOK_S: Final = 5.0
HOURS_EVERY: Final = 10
REPEAT_S: Final = 60.0


class Upkeep:
    """Works in a thread of its own with a `store` of its own while `leads` is set: one sink of the group does it. Two
    that do it for a moment disturb nothing.

    counts  what was done: minutes, hours, sample_batches, failures
    """

    def __init__(
        self,
        store: Store,
        settings: WarehouseSettings,
        fetch: Fetch,
        *,
        leads: threading.Event,
        stop: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._store = store
        self._settings = settings
        self._fetch = fetch
        self._leads = leads
        self._stop = stop
        self._clock = clock
        self._rounds = 0
        self._roll_at = 0.0
        self._said: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for its end after `stop` was set; what takes longer is done again by whoever comes next."""
        self._thread.join(seconds)

    def _run(self) -> None:
        pause = min(LOOK_S, self._settings.rollup_s)
        while not self._stop.wait(pause):
            if self._leads.is_set():
                self.turn()
        self._store.close()

    def turn(self) -> None:
        """Do what is due now. A failure is told and counted, and tried again the next time."""
        now = self._clock()
        if now >= self._roll_at:
            self._roll_at = now + self._settings.rollup_s
            self._try("minutes", self._minutes)
            if self._rounds % HOURS_EVERY == 0:
                self._try("hours", self._hours)
            self._rounds += 1
        if self._settings.samples_most_s:
            self._try("samples", self._samples)

    def _minutes(self) -> None:
        self.counts["minutes"] += roll_up(self._store, MINUTE, self._stop.is_set)

    def _hours(self) -> None:
        self.counts["hours"] += roll_up(self._store, HOUR, self._stop.is_set)

    def _samples(self) -> None:
        for item in due(self._store, self._settings):
            if self._stop.is_set():
                return
            copied = copy(self._store, self._fetch, item, self._stop.is_set)
            self.counts["sample_batches"] += copied
            if copied:
                LOG.info("kept the samples of %d messages of %s around episode %s", copied, item.host, item.episode)

    def _try(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (StoreError, Unavailable) as error:
            self.counts["failures"] += 1
            if self._clock() - self._said.get(name, -REPEAT_S) >= REPEAT_S:
                self._said[name] = self._clock()
                LOG.warning("%s: trying again: %s", name, error)
