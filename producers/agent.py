"""The agent's loop: samples on the grid of the wall clock, batches of whole seconds."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from typing import Final

from producers.adaptive import QUIET_S, Pace
from producers.budget import Budget
from producers.clock import Clock
from producers.frame import Frame, Superseded
from producers.usage import Usage
from schemas.records import Telemetry

log = logging.getLogger(__name__)

MILLISECOND_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
STEP_NS: Final = SECOND_NS
SUSPEND_NS: Final = SECOND_NS
LOST_NS: Final = 3 * SECOND_NS
REPORT_NS: Final = 60 * SECOND_NS
LOOK_S: Final = 1.0
LOOKS: Final = 5
"""The loop counts as stuck when so many looks in a row find it where it was. Looks are counted and not seconds, since
an agent that was stopped, or a machine that was suspended, has not looked either.
"""


class Agent:
    """Samples a frame on time and hands every finished batch to `emit`.

    Sample k is due when the wall clock shows k periods since 1970, so the samples of all hosts fall together and never
    drift. A batch is a whole second; with a period that does not divide a second (300 and 600 ms) it is the smallest
    whole number of seconds that holds a whole number of samples, which is 3 s, and such batches begin at multiples of
    3 s. Ticks that were slept through are counted and leave rows of NaN. When the wall clock goes another way than the
    one that knows suspends, by more than a second, it was set; when that one runs ahead of the monotonic clock, the
    machine was suspended. In both cases the batch ends where it is, and the next begins on the new time. What is
    sampled before the first whole batch only gives the rates their start and is not published.

    The loop has a thread of its own, and the caller's watches it: a reading that hangs in the kernel keeps its thread,
    and another one goes on with the loop.

    attention  whether something about this host asks for a close look, for adaptive sampling
    give_way   called when the loop is stuck, and why: it may be what keeps others waiting
    quiet_s    how long a host must be quiet to be sampled less often
    look_s     how often the loop is looked after
    """

    def __init__(
        self,
        frame: Frame,
        clock: Clock,
        emit: Callable[[Sequence[Telemetry]], None],
        *,
        attention: Callable[[], bool] = lambda: False,
        give_way: Callable[[str], None] = lambda why: None,
        quiet_s: float = QUIET_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._frame = frame
        self._clock = clock
        self._emit = emit
        self._give_way = give_way
        self._look_s = look_s
        self._notices = frame.host.notices
        settings = frame.host.settings
        self._budget = Budget(frame, settings.budget_pct, settings.budget_mb, Usage(frame.host.roots["proc"]))
        self._pace: Pace | None = None
        if settings.adaptive:
            self._pace = Pace(frame, settings.quiet_period_ms, attention, quiet_s=quiet_s)
        self._batch: int | None = None
        self._whole = 0
        self._due = 0
        self._clocks = self._read = (0, 0, 0)
        self._report_ns = 0
        self._sampled_ns = 0
        self._turns = 0
        self._doing = ""
        self._leave = False
        self._error: BaseException | None = None
        self.samples = 0
        self.batches = 0
        self.steps = 0
        self.suspends = 0
        self.stalled = ""
        """What the loop is stuck in, in words; empty while it moves."""
        self._set_period()

    def run(self, stopped: Callable[[], bool]) -> None:
        """Sample until `stopped` says so, which is asked once a period. The unfinished batch is emitted, too."""
        self._clocks = self._now()
        self._anchor()
        self._report_ns = self._clocks[1] + REPORT_NS
        self._leave, self._error = False, None
        try:
            while True:
                thread = threading.Thread(target=self._work, args=(stopped,), name="sampling", daemon=True)
                thread.start()
                if not self._watch(thread, stopped):
                    break
        finally:
            self._leave = True
        if self._error is not None:
            raise self._error

    def since_sample_s(self) -> float | None:
        """Time since the last sample began; None before the first."""
        return (self._clock.monotonic_ns() - self._sampled_ns) / SECOND_NS if self.samples else None

    def _watch(self, thread: threading.Thread, stopped: Callable[[], bool]) -> bool:
        """Wait until the loop ends; True when it is stuck in a reading and another thread is to go on."""
        turns, looks = self._turns, 0
        while True:
            thread.join(self._look_s)
            if not thread.is_alive():
                self.stalled = ""
                return False
            looks = looks + 1 if turns == self._turns else 0
            turns = self._turns
            if looks == LOOKS:
                self._give_way("its loop has not moved")
            if looks < LOOKS:
                if looks == 0 and self.stalled:
                    log.warning("the loop moves again")
                    self.stalled = ""
                continue
            if name := self._frame.abandon(self._clocks[1]):
                log.error(
                    "%s: a reading has not come back for %.1f s: sampling goes on without it",
                    name,
                    looks * self._look_s,
                )
                self.stalled = ""
                return True
            if not self.stalled:
                self.stalled = f"stuck in {self._doing}"
                log.error("the loop has not moved for %.1f s: %s", looks * self._look_s, self.stalled)
            if stopped():
                return False

    def _work(self, stopped: Callable[[], bool]) -> None:
        try:
            self._loop(stopped)
            self._close()
        except Superseded as late:
            late.serve()
        except BaseException as error:
            self._error = error

    def _loop(self, stopped: Callable[[], bool]) -> None:
        while not (stopped() or self._leave):
            self._turns += 1
            self._doing = "waiting"
            if (pause_ns := self._due * self._period_ns - self._clock.wall_ns()) > 0:
                # Never longer than two periods: the wall clock may have been set back meanwhile.
                self._clock.sleep(min(pause_ns, 2 * self._period_ns) / SECOND_NS)
            if self._jumped():
                self._close()
                self._anchor()
                continue
            wall_ns, monotonic_ns, _ = self._clocks
            tick = wall_ns // self._period_ns
            if tick < self._due:
                continue
            self._miss(tick - self._due)
            self._due = tick + 1
            self._sample(tick)
            if monotonic_ns >= self._report_ns:
                self._report_ns = monotonic_ns + REPORT_NS
                self._report()

    def _now(self) -> tuple[int, int, int]:
        return self._clock.wall_ns(), self._clock.monotonic_ns(), self._clock.boot_ns()

    def _jumped(self) -> bool:
        """Read the clocks; whether the wall clock was set or the machine suspended since they were read last."""
        step_ns, suspend_ns = self._moved()
        if abs(step_ns) <= STEP_NS and suspend_ns <= SUSPEND_NS:
            self._clocks = self._read
            return False
        # Whatever took the processor away between the readings of two clocks looks like a jump: read them again.
        step_ns, suspend_ns = self._moved()
        self._clocks = self._read
        suspended, stepped = suspend_ns > SUSPEND_NS, abs(step_ns) > STEP_NS
        if suspended:
            self.suspends += 1
            self._tell("suspend", f"the machine was suspended for {suspend_ns / SECOND_NS:.1f} s", severity="info")
        if stepped:
            self.steps += 1
            self._tell("clock_step", f"the clock was set by {step_ns / SECOND_NS:+.1f} s")
        return suspended or stepped

    def _moved(self) -> tuple[int, int]:
        """How far the wall clock was set, and how long the machine was suspended, ns, since the clocks were read."""
        self._read = self._now()
        wall_ns, monotonic_ns, boot_ns = (now - then for now, then in zip(self._read, self._clocks, strict=True))
        return wall_ns - boot_ns, boot_ns - monotonic_ns

    def _miss(self, ticks: int) -> None:
        self._frame.missed += ticks
        if (lost_ns := ticks * self._period_ns) > LOST_NS:
            text = f"the agent did not run for {lost_ns / SECOND_NS:.1f} s: {ticks} samples could not be taken"
            self._tell("samples_lost", text)

    def _tell(self, kind: str, text: str, severity: str = "warning") -> None:
        log.warning(text)
        self._notices.add(kind, "cpu", text, severity=severity)

    def _set_period(self) -> None:
        period_ms = self._frame.period_ms
        self._period_ns = period_ms * MILLISECOND_NS
        self._rows = math.lcm(1000, period_ms) // period_ms

    def _anchor(self) -> None:
        """The next tick after now; batches are published from the first whole one with a sample before it."""
        self._due = self._clocks[0] // self._period_ns + 1
        self._whole = self._due // self._rows + 1

    def _sample(self, tick: int) -> None:
        batch, row = divmod(tick, self._rows)
        if batch != self._batch:
            self._close()
            self._batch = batch
        self._doing = "reading"
        self._frame.sample(tick, row)
        self.samples += 1
        self._sampled_ns = self._clocks[1]
        if self._pace is not None:
            if row == 0 or self._pace.slow:
                self._pace.look(self._clocks[1])
            if row == 0:
                self._choose(batch)
        if row == self._rows - 1:
            self._close()

    def _choose(self, batch: int) -> None:
        """At the first sample of a second, which every period has, another one may be chosen for the second."""
        assert self._pace is not None
        period_ms = self._pace.choose(self._clocks[1])
        if period_ms != self._frame.period_ms:
            self._frame.pace(period_ms)
            self._set_period()
            self._due = batch * self._rows + 1

    def _close(self) -> None:
        if self._batch is None:
            return
        if self._batch >= self._whole:
            records = self._frame.cut(self._batch * self._rows * self._period_ns, self._rows)
            self._doing = "publishing"
            self._emit(records)
            self.batches += 1
        else:
            self._frame.prime(self._rows)
        self._batch = None
        self._budget.look(self._clocks[1])

    def _report(self) -> None:
        errors = " ".join(f"{name}={count}" for name, count in self._frame.errors().items())
        log.info("%d samples, %d missed, errors: %s", self.samples, self._frame.missed, errors or "none")
        for found in self._frame.problems():
            if found.kind != "missing":
                log.warning("%s: %s is %s: %s", found.collector, found.path, found.kind, found.reason)
