"""Being told to stop: a flag or an event that SIGTERM and SIGINT set, for loops that look at it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

LOG: Final = logging.getLogger(__name__)
STOP_S: Final = 10.0
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def stop_flag() -> Callable[[], bool]:
    """From now on SIGTERM and SIGINT only set a flag; says whether it is set. Call it in the main thread."""
    stop = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal stop
        stop = True

    for number in SIGNALS:
        signal.signal(number, on_signal)
    return lambda: stop


def stop_event() -> threading.Event:
    """From now on SIGTERM and SIGINT set the event, and `end_soon`. Call it in the main thread."""
    stop = threading.Event()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def wait() -> None:
        while os.read(read_end, 1)[0] not in SIGNALS:
            pass
        end_soon()
        stop.set()

    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    # Handlers of Python wait for the main thread to come back from the client's code; this does not.
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=wait, name="signals", daemon=True).start()
    return stop


def end_soon() -> None:
    """This process, which was told to stop and loses nothing by SIGKILL, ends in STOP_S at the latest, with status 0.
    Clients of Kafka can wait without end for a broker that is gone
    (https://github.com/confluentinc/librdkafka/issues/3740).
    """
    timer = threading.Timer(STOP_S, _end)
    timer.daemon = True
    timer.start()


def _end() -> None:
    LOG.warning("not done within %.0f s of being told to stop: what was not confirmed will be done again", STOP_S)
    os._exit(0)
