"""/proc/net/sockstat: sockets in use and the memory of TCP."""

from __future__ import annotations

from typing import Final

from producers.collector import Collector, Reading, only, plain
from producers.collectors.fields import Fields, Found, host_metrics
from producers.reading import Texts

NAMES: Final = {
    "sock.used": "sockets.used",
    "tcp.in_use": "TCP.inuse",
    "tcp.mem_pages": "TCP.mem",
    "tcp.orphan": "TCP.orphan",
    "tcp.time_wait": "TCP.tw",
}


def find(text: bytes, found: Found) -> tuple[str, ...]:
    """Walks lines `LABEL: name number name number ...`."""
    position = 0
    for line in text.splitlines():
        tokens = line.split()
        if tokens:
            label = tokens[0].rstrip(b":").decode("ascii", "replace")
            for index in range(1, len(tokens) - 1, 2):
                name = tokens[index].decode("ascii", "replace")
                found(f"{label}.{name}", position + index + 1, (position, position + index))
        position += len(tokens)
    return ()


class Sockstat:
    """Parser of /proc/net/sockstat."""

    def __init__(self) -> None:
        self._fields = Fields(find, host_metrics(NAMES))

    def __call__(self, texts: Texts) -> Reading:
        """Sockets, and pages of memory."""
        return self._fields(only(texts))


SOCKSTAT = Collector("sockstat", ("proc/net/sockstat",), plain(Sockstat), tuple(NAMES))
