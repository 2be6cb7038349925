"""/sys/class/net: errors that /proc/net/dev does not tell apart, carrier and state of each network interface.

Speed has a source of its own: the kernel asks the driver for it, and waits for a lock that a driver may hold for long.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from typing import Final

from producers.collector import NAN, Collector, Layout, Parser, Reading, number, plain
from producers.collectors.sysfs import Meaning, Sysfs
from producers.optional import label, optional
from producers.probe import Probe
from producers.reading import Host, Source, Texts

DIRECTORY: Final = "sys/class/net"
PATH: Final = re.compile(r"/net/([^/]+)/(?:statistics/)?(\w+)$")
COUNTERS: Final = {
    "rx_missed_errors": "net.rx_missed",
    "rx_crc_errors": "net.rx_crc",
    "tx_aborted_errors": "net.tx_aborted",
    "carrier_changes": "net.carrier_changes",
}
STATE: Final = "operstate"
METRICS: Final = {**COUNTERS, STATE: "net.operstate"}
LINK_ERRORS: Final = (
    "rx_length_errors",
    "rx_frame_errors",
    "rx_over_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
)
# Whether frames can pass. Of a driver that says "unknown", of a link in test or one that waits, nothing can be said.
STATES: Final = {b"up": 1.0, b"down": 0.0, b"lowerlayerdown": 0.0, b"notpresent": 0.0}
# What drivers answer that do not know, as signed and unsigned numbers of several widths.
NO_SPEED: Final = frozenset({-1, 0, 65535, 4294967295})
SPEEDLESS: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT, errno.ENODEV})


class Netclass:
    """Parser of the files of all interfaces."""

    def __init__(self) -> None:
        self._paths: tuple[str, ...] = ()
        self._single: list[tuple[int, bool]] = []
        self._sums: list[list[int]] = []
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Counters and states; link errors only where all their terms could be read."""
        if tuple(texts) != self._paths:
            self._learn(tuple(texts))
        cells = list(texts.values())
        values: list[float] = [
            STATES.get(cells[index].strip(), NAN) if state else number(cells[index]) for index, state in self._single
        ]
        values += [sum(number(cells[index]) for index in terms) for terms in self._sums]
        return self._layout, values

    def _learn(self, paths: tuple[str, ...]) -> None:
        channels: list[tuple[str, str]] = []
        self._single = []
        terms: dict[str, list[int]] = {}
        for index, path in enumerate(paths):
            match = PATH.search(path)
            interface, name = match.groups() if match else ("", "")
            if name in METRICS:
                channels.append((METRICS[name], label(interface)))
                self._single.append((index, name == STATE))
            elif name in LINK_ERRORS:
                terms.setdefault(label(interface), []).append(index)
        summed = {interface: indices for interface, indices in terms.items() if len(indices) == len(LINK_ERRORS)}
        self._sums = list(summed.values())
        self._layout = Layout((*channels, *(("net.link_errors", interface) for interface in summed)))
        self._paths = paths


def _describe_speeds(texts: Texts) -> Meaning:
    names = {path: label(path.split("/")[-2] if "/" in path else path) for path in texts}
    return Meaning({("net.speed", name): (path,) for path, name in names.items()})


def speed(text: bytes) -> float:
    """Mbit/s; NaN where the driver does not know."""
    value = number(text)
    return NAN if value in NO_SPEED else value


def _speeds() -> Parser:
    return Sysfs(_describe_speeds, convert=speed)


def speeds(collector: Collector, host: Host) -> Source:
    """Reads the speed of each wanted interface that has one."""
    root = os.path.join(host.roots["sys"], "class/net")

    def find() -> Iterator[str]:
        try:
            names = sorted(os.listdir(root))
        except FileNotFoundError:
            return
        for name in names:
            # A file such as bonding_masters is no interface.
            if host.wanted("interface", name) and os.path.isdir(os.path.join(root, name)):
                yield f"{DIRECTORY}/{name}/speed"

    def look(key: str) -> bytes | None:
        try:
            with open(os.path.join(root, *key.split("/")[-2:]), "rb") as file:
                return file.read()
        except OSError as error:
            # A link that is down has no speed, and many virtual interfaces never have one.
            if error.errno in SPEEDLESS:
                return None
            raise

    return Probe(collector, host, find, look)


NETCLASS: Final = Collector(
    "netclass",
    (
        f"{DIRECTORY}/*/{STATE}",
        f"{DIRECTORY}/*/carrier_changes",
        *(f"{DIRECTORY}/*/statistics/{name}" for name in (*COUNTERS, *LINK_ERRORS) if name != "carrier_changes"),
    ),
    plain(Netclass),
    (*METRICS.values(), "net.link_errors"),
    every_ms=1000,
    per="interface",
    source=optional,
)
NETSPEED: Final = Collector(
    "netspeed", (f"{DIRECTORY}/*/speed",), plain(_speeds), ("net.speed",), every_ms=5000, may_block=True, source=speeds
)
