"""Sampling before everything else. A host whose processors are overcommitted is what the agent is there to see, and a
scheduler that shares fairly may not run it for seconds then.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import ClassVar, Final

log = logging.getLogger(__name__)

BUSY_S: Final = 0.5
"""The kernel complains of a thread that goes first and does not wait for anything for so long."""
LOWEST: Final = 1


class Priority:
    """Lets this process go before all that share the processors fairly, where that is allowed: with CAP_SYS_NICE, or a
    limit on real-time priority (RLIMIT_RTPRIO) of at least 1.

    It gives way when one of its threads does not sleep for BUSY_S, so that it never takes a processor away from the
    host; for that the kernel sends SIGXCPU (RLIMIT_RTTIME). All threads go first or none: one that waits for the
    interpreter's lock is as late as the one that holds it.
    """

    gave_way: ClassVar[bool] = False
    """Whether this process has given way."""

    def __init__(self) -> None:
        self.first = False
        self.refused = ""
        """Why it does not go first, in words; empty while it does, or was not asked to."""

    def go_first(self) -> None:
        """From now on the calling thread and those that it starts go first, if they may. Call it in the main thread."""
        _, most = resource.getrlimit(resource.RLIMIT_RTTIME)
        wanted = round(BUSY_S * 1e6)
        soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        try:
            resource.setrlimit(resource.RLIMIT_RTTIME, (soft, most))
            signal.signal(signal.SIGXCPU, self._busy)
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(LOWEST))
        except OSError as error:
            self.refused = f"the kernel does not let sampling go first ({error.strerror or error})"
            log.info("%s: samples are lost when the processors are overcommitted", self.refused)
        else:
            self.first, self.refused = True, ""

    def give_way(self, why: str) -> None:
        """No thread goes first any more."""
        if not self.first:
            return
        Priority.gave_way, self.first = True, False
        for thread in os.listdir("/proc/self/task"):
            with suppress(OSError):  # it has ended
                os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))
        self.refused = f"sampling gives way: {why}"
        log.warning("%s", self.refused)

    def _busy(self, number: int, frame: FrameType | None) -> None:
        self.give_way(f"it did not sleep for {BUSY_S:g} s")


@contextmanager
def as_usual() -> Iterator[None]:
    """What is started by the calling thread meanwhile does not go first."""
    policy = os.sched_getscheduler(0)
    if policy != os.SCHED_RR:
        yield
        return
    param = os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        yield
    finally:
        if not Priority.gave_way:
            with suppress(OSError):  # the limit was lowered meanwhile
                os.sched_setscheduler(0, policy, param)
