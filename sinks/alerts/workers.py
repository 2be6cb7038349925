"""A thread and a bounded queue a receiver: one that hangs holds up nobody else."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from sinks.alerts.channels.base import Channel, ChannelError
from sinks.alerts.notification import DELIVERED, FAILED, REFUSED, Notification, Outcome

LOG: Final = logging.getLogger(__name__)
QUEUE: Final = 4


class Worker:
    """Tells one receiver, one try a notification; whether to try again is for the engine."""

    def __init__(
        self,
        channel: Channel,
        done: Callable[[Notification, Outcome], None],
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._done = done
        self._clock = clock
        self._queue: queue.Queue[Notification | None] = queue.Queue(QUEUE)
        self._busy = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"receiver {name}", daemon=True)
        self._thread.start()

    @property
    def free(self) -> int:
        """Notifications that it takes now."""
        return QUEUE - self._queue.qsize() - self._busy.is_set()

    def give(self, notification: Notification) -> bool:
        """Queue it; False when there is no room."""
        try:
            self._queue.put_nowait(notification)
        except queue.Full:
            return False
        return True

    def stop(self) -> None:
        """Send nothing more than what is being sent."""
        self._stopping.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            LOG.debug("its queue is full: it stops at its next turn")

    def join(self, timeout_s: float) -> None:
        """Wait for the end of what is being sent."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (notification := self._queue.get()) is not None and not self._stopping.is_set():
            self._busy.set()
            try:
                self._done(notification, self._try(notification))
            finally:
                self._busy.clear()

    def _try(self, notification: Notification) -> Outcome:
        began = self._clock()
        code, retry_after = None, None
        try:
            code, status, error = self._channel.send(notification), DELIVERED, ""
        except ChannelError as problem:
            code, retry_after, error = problem.code, problem.retry_after_s, str(problem)
            status = FAILED if problem.again else REFUSED
        except Exception as problem:  # a fault of ours in one channel is not to end its thread
            LOG.exception("%s cannot be told", notification.receiver)
            status, error = FAILED, f"fault of the channel: {type(problem).__name__}"
        return Outcome(status, 1000 * (self._clock() - began), code, error, retry_after)


class Workers:
    """Workers of all receivers; how their tries went waits until somebody asks."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._outcomes: queue.SimpleQueue[tuple[Notification, Outcome]] = queue.SimpleQueue()
        self._workers = {
            name: Worker(channel, lambda one, other: self._outcomes.put((one, other)), name)
            for name, channel in channels.items()
        }

    def free(self) -> dict[str, int]:
        """Notifications that each receiver takes now."""
        return {name: worker.free for name, worker in self._workers.items()}

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        return any(worker.free < QUEUE for worker in self._workers.values())

    def give(self, notification: Notification) -> bool:
        """Hand it over; False when there is no room."""
        return self._workers[notification.receiver].give(notification)

    def outcomes(self) -> list[tuple[Notification, Outcome]]:
        """How tries went since the last time."""
        found = []
        while not self._outcomes.empty():
            found.append(self._outcomes.get())
        return found

    def stop(self, timeout_s: float) -> None:
        """Stop all; what is being sent has so many seconds."""
        for worker in self._workers.values():
            worker.stop()
        until = time.monotonic() + timeout_s
        for worker in self._workers.values():
            worker.join(max(0.0, until - time.monotonic()))
