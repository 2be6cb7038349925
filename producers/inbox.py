"""What was made and waits to be sent or stored: a queue in memory, bounded in bytes."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from producers.segment import Stored

OVERHEAD: Final = 400
"""Bytes that a message takes in memory beside its value."""


class Inbox:
    """A queue between the sampling loop and the thread that delivers. Nobody waits for the other one."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._bytes = 0
        self._queue: deque[Stored] = deque()
        self._condition = threading.Condition()

    def __len__(self) -> int:
        return len(self._queue)

    def room(self) -> bool:
        """Whether less than half of the limit is taken."""
        return self._bytes < self._limit // 2

    def put(self, message: Stored) -> list[Stored]:
        """Add a message; the oldest ones, which had to go for it."""
        gone: list[Stored] = []
        with self._condition:
            self._queue.append(message)
            self._bytes += _cost(message)
            while self._bytes > self._limit and self._queue:
                gone.append(self._queue.popleft())
                self._bytes -= _cost(gone[-1])
            self._condition.notify()
        return gone

    def take(self) -> Stored | None:
        """The oldest message, if there is any."""
        with self._condition:
            if not self._queue:
                return None
            message = self._queue.popleft()
            self._bytes -= _cost(message)
            return message

    def take_all(self) -> list[Stored]:
        """All messages, oldest first."""
        with self._condition:
            messages = list(self._queue)
            self._queue.clear()
            self._bytes = 0
            return messages

    def give_back(self, message: Stored) -> None:
        """Undo a `take`."""
        with self._condition:
            self._queue.appendleft(message)
            self._bytes += _cost(message)

    def wake(self) -> None:
        """End a `wait`."""
        with self._condition:
            self._condition.notify()

    def wait(self, seconds: float) -> None:
        """Until there is a message, or `wake`, or so long; returns at once if there is one."""
        with self._condition:
            if not self._queue:
                self._condition.wait(seconds)


def _cost(message: Stored) -> int:
    return OVERHEAD + len(message.value)
