"""A lock between processes that dies with its holder."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.kafka.errors import LocalKafkaError

POLL_S = 0.1


@contextmanager
def exclusive(path: Path, timeout_s: float = 900) -> Iterator[None]:
    """Hold the lock file `path`, in one thread of one process at a time.

    The kernel drops the lock with the process, so that a killed one leaves nothing to clean up.
    Raises LocalKafkaError when another holds it for longer than timeout_s.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LocalKafkaError(
                        f"another process has been preparing Kafka for {timeout_s:.0f} s: "
                        f"end it, then start again (it holds the lock {path})"
                    ) from None
                time.sleep(POLL_S)
        yield
