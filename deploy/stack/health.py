"""Health checks: callables that say whether a service serves, within seconds and without raising."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HttpCheck:
    """Whether `http://host:port/path` answers with status 200."""

    host: str
    port: int
    path: str
    timeout_s: float = 2.0

    def __call__(self) -> bool:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout_s)
        try:
            connection.request("GET", self.path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


@dataclass(slots=True)
class Heartbeat:
    """Whether the file `path` was touched since the last look. Compares the file's times with each other only, so that
    a set clock does not matter.
    """

    path: Path
    last_ns: int = -1

    def __call__(self) -> bool:
        try:
            now_ns = self.path.stat().st_mtime_ns
        except OSError:
            return False
        beaten = now_ns != self.last_ns
        self.last_ns = now_ns
        return beaten
