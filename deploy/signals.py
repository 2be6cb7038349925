"""Being told to stop: a flag or an event that SIGTERM and SIGINT set, for loops that look at it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
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
    """From now on SIGTERM and SIGINT set the event. Call it in the main thread, for a service that loses nothing by
    SIGKILL: one that has not ended STOP_S after the signal is ended, with status 0. Clients of Kafka can wait without
    end for a broker that is gone (https://github.com/confluentinc/librdkafka/issues/3740).
    """
    stop = threading.Event()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def end() -> None:
        while os.read(read_end, 1)[0] not in SIGNALS:
            pass
        stop.set()
        time.sleep(STOP_S)
        LOG.warning("not done within %.0f s of being told to stop: what was not confirmed will be done again", STOP_S)
        os._exit(0)

    for number in SIGNALS:
        signal.signal(number, lambda *_: None)
    # Handlers of Python wait for the main thread to come back from the client's code; this does not.
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=end, name="stop", daemon=True).start()
    return stop
