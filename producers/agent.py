"""The agent's loop: samples on the grid of the wall clock, batches of whole seconds."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Final

from producers.clock import Clock
from producers.frame import Frame
from schemas.records import Telemetry

log = logging.getLogger(__name__)

MILLISECOND_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
STEP_NS: Final = SECOND_NS
REPORT_NS: Final = 60 * SECOND_NS


class Agent:
    """Samples a frame on time and hands every finished batch to `emit`.

    Sample k is due when the wall clock shows k periods since 1970, so the samples of all hosts fall together and never
    drift. A batch is a whole second; with a period that does not divide a second (300 and 600 ms) it is the smallest
    whole number of seconds that holds a whole number of samples, which is 3 s, and such batches begin at multiples of
    3 s. Ticks that were slept through are counted and leave rows of NaN. When wall and monotonic clock disagree by more
    than a second, the wall clock was set: the batch ends where it is, and the next begins on the new time. What is
    sampled before the first whole batch only gives the rates their start and is not published.
    """

    def __init__(self, frame: Frame, clock: Clock, emit: Callable[[Sequence[Telemetry]], None]) -> None:
        self._frame = frame
        self._clock = clock
        self._emit = emit
        self._period_ns = frame.period_ms * MILLISECOND_NS
        self._rows = math.lcm(1000, frame.period_ms) // frame.period_ms
        self._batch: int | None = None
        self._whole = 0
        self.samples = 0
        self.batches = 0
        self.steps = 0

    def run(self, stopped: Callable[[], bool]) -> None:
        """Sample until `stopped` says so, which is asked once a period. The unfinished batch is emitted, too."""
        period_ns = self._period_ns
        wall_ns, monotonic_ns = self._clock.wall_ns(), self._clock.monotonic_ns()
        due = self._anchor(wall_ns)
        report_ns = monotonic_ns + REPORT_NS
        while not stopped():
            if (pause_ns := due * period_ns - self._clock.wall_ns()) > 0:
                # Never longer than two periods: the wall clock may have been set back meanwhile.
                self._clock.sleep(min(pause_ns, 2 * period_ns) / SECOND_NS)
            now_ns, after_ns = self._clock.wall_ns(), self._clock.monotonic_ns()
            step_ns = (now_ns - wall_ns) - (after_ns - monotonic_ns)
            wall_ns, monotonic_ns = now_ns, after_ns
            if abs(step_ns) > STEP_NS:
                log.warning("the clock was set by %+.1f s: starting a new batch", step_ns / SECOND_NS)
                self.steps += 1
                self._close()
                due = self._anchor(wall_ns)
                continue
            tick = wall_ns // period_ns
            if tick < due:
                continue
            self._frame.missed += tick - due
            self._sample(tick)
            due = tick + 1
            if monotonic_ns >= report_ns:
                report_ns = monotonic_ns + REPORT_NS
                self._report()
        self._close()

    def _anchor(self, wall_ns: int) -> int:
        """The next tick after `wall_ns`; batches are published from the first whole one with a sample before it."""
        due = wall_ns // self._period_ns + 1
        self._whole = due // self._rows + 1
        return due

    def _sample(self, tick: int) -> None:
        batch, row = divmod(tick, self._rows)
        if batch != self._batch:
            self._close()
            self._batch = batch
        self._frame.sample(tick, row)
        self.samples += 1
        if row == self._rows - 1:
            self._close()

    def _close(self) -> None:
        if self._batch is None:
            return
        if self._batch >= self._whole:
            self._emit(self._frame.cut(self._batch * self._rows * self._period_ns, self._rows))
            self.batches += 1
        else:
            self._frame.prime(self._rows)
        self._batch = None

    def _report(self) -> None:
        errors = " ".join(f"{name}={count}" for name, count in self._frame.errors().items())
        log.info("%d samples, %d missed, errors: %s", self.samples, self._frame.missed, errors or "none")
        for found in self._frame.problems():
            if found.kind != "missing":
                log.warning("%s: %s is %s: %s", found.collector, found.path, found.kind, found.reason)
