"""One form of log line for all services: on stderr, in UTC."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from schemas.settings import SettingsError

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OURS: Final = ("reveal", "deploy", "producers", "stream_processors", "sinks")
CHATTY: Final = ("faust", "mode", "aiokafka")
MOST_KEYS: Final = 1000
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


class UtcFormatter(logging.Formatter):
    """Times such as 2026-01-31T12:00:00.123Z."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class Repeats(logging.Filter):
    """Lets a message through once in `every_s`, and says then how many like it there were in between.

    Clients that have lost their broker say so some ten times a second, which buries everything else. Messages are alike
    when their logger and their text before the values are filled in are the same.
    """

    def __init__(self, every_s: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s = every_s
        self._clock = clock
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message goes through."""
        key = (record.name, str(record.msg))
        now = self._clock()
        last, held = self._told.get(key, (float("-inf"), 0))
        if now - last < self._every_s:
            self._told[key] = (last, held + 1)
            return False
        if held:
            record.msg = f"{record.getMessage()} (and {held} more like it)"
            record.args = ()
        if len(self._told) >= MOST_KEYS:
            self._told.clear()
        self._told[key] = (now, 0)
        return True


def configure(environ: Mapping[str, str]) -> None:
    """Send the process's log to stderr, from the level that REVEAL_LOG_LEVEL names (INFO unless set) upwards.

    Raises SettingsError for a level that does not exist.
    """
    level = environ.get("REVEAL_LOG_LEVEL", "INFO").upper()
    if level not in LEVELS:
        raise SettingsError(f"REVEAL_LOG_LEVEL must be one of {', '.join(LEVELS)}, not {level!r}")
    handler = logging.StreamHandler()
    handler.setFormatter(UtcFormatter(FORMAT))
    root = logging.getLogger()
    # Of libraries only what is wrong is of interest, and not every time it goes wrong.
    repeats = Repeats()
    handler.addFilter(lambda record: record.name.startswith(OURS) or repeats.filter(record))
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
    root.handlers[:] = [handler]
    root.setLevel(level)
