"""Network links that go down and up, and interfaces that come and go, as the kernel announces them (rtnetlink)."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from producers.notices import Notice
from producers.reading import Wanted

log = logging.getLogger(__name__)

SOURCE: Final = "netlink"
# From linux/netlink.h, linux/rtnetlink.h and linux/if.h.
RTMGRP_LINK: Final = 1
NLMSG_DONE: Final = 3
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
NLM_F_REQUEST_DUMP: Final = 0x1 | 0x300
IFLA_IFNAME: Final = 3
IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
AF_BRIDGE: Final = 7
HEADER: Final = struct.Struct("=IHHII")
LINK: Final = struct.Struct("=BxHiII")
ATTRIBUTE: Final = struct.Struct("=HH")
BUFFER_BYTES: Final = 1 << 16
MOST_MESSAGES: Final = 1000


@dataclass(frozen=True, slots=True)
class Link:
    """State of an interface: switched on, and with a carrier."""

    index: int
    name: str
    on: bool
    carrier: bool
    gone: bool = False


def parse(data: bytes) -> Iterator[Link | None]:
    """Links in a datagram from rtnetlink; None where the answer with all of them ends. What is cut off is left out."""
    place = 0
    while place + HEADER.size <= len(data):
        length, kind, *_ = HEADER.unpack_from(data, place)
        if length < HEADER.size or place + length > len(data):
            return
        if kind == NLMSG_DONE:
            yield None
        elif kind in (RTM_NEWLINK, RTM_DELLINK) and length >= HEADER.size + LINK.size:
            family, _, index, flags, _ = LINK.unpack_from(data, place + HEADER.size)
            name = _name(data[place + HEADER.size + LINK.size : place + length])
            if name and family != AF_BRIDGE:  # a bridge lets go of an interface, which stays
                carrier = bool(flags & IFF_LOWER_UP)
                yield Link(index, name, bool(flags & IFF_UP), carrier, kind == RTM_DELLINK)
        place += (length + 3) & ~3


class Links:
    """Follows the links of this network namespace. Only changes after `open` are told."""

    def __init__(self, wanted: Wanted, wall: Callable[[], int]) -> None:
        self._wanted = wanted
        self._wall = wall
        self._known: dict[int, Link] = {}
        self._socket: socket.socket | None = None
        self._listed: set[int] = set()
        self._complete = False

    def open(self) -> None:
        """Subscribe, and ask for the present state. Where there is no netlink nothing is told, and the log says so."""
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            self._socket.setblocking(False)
            self._socket.bind((0, RTMGRP_LINK))
            self._ask()
        except OSError as error:
            log.warning("links: netlink cannot be used: %s", error.strerror)
            self.close()

    def look(self) -> list[Notice]:
        """What changed since the last call."""
        notices: list[Notice] = []
        for _ in range(MOST_MESSAGES):
            if self._socket is None:
                break
            try:
                data = self._socket.recv(BUFFER_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    log.warning("links: netlink fails: %s", error.strerror)
                    self.close()
                    break
                # Announcements were lost: what is there now tells what they said.
                with contextlib.suppress(OSError):
                    self._ask()
                continue
            for link in parse(data):
                notices += self.take(link)
        return notices

    def take(self, link: Link | None) -> list[Notice]:
        """What `link` says that was not known, and at the end of a list what it lacks. Links that were there when all
        began are no news.
        """
        if link is None:
            missing = [known for index, known in self._known.items() if self._complete and index not in self._listed]
            self._complete = True
            return [notice for known in missing for notice in self.take(replace(known, gone=True))]
        self._listed.add(link.index)
        before = self._known.pop(link.index, None)
        if not self._wanted("interface", link.name):
            return []
        if link.gone:
            return [] if before is None else [self._notice("device_gone", "warning", link, "interface {} went away")]
        self._known[link.index] = link
        if before is None:
            return [] if not self._complete else [self._notice("device_back", "info", link, "interface {} came")]
        if before.carrier == link.carrier:
            return []
        if link.carrier:
            return [self._notice("link_up", "info", link, "interface {} has a link")]
        if link.on:
            return [self._notice("link_down", "warning", link, "interface {} lost its link")]
        return [self._notice("link_down", "info", link, "interface {} was switched off")]

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self) -> None:
        assert self._socket is not None
        self._listed = set()
        body = LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        self._socket.send(HEADER.pack(HEADER.size + len(body), RTM_GETLINK, NLM_F_REQUEST_DUMP, 1, 0) + body)

    def _notice(self, kind: str, severity: str, link: Link, words: str) -> Notice:
        return Notice(self._wall(), kind, "network", severity, words.format(link.name), SOURCE, link.name, None)


def _name(attributes: bytes) -> str:
    place = 0
    while place + ATTRIBUTE.size <= len(attributes):
        length, kind = ATTRIBUTE.unpack_from(attributes, place)
        if length < ATTRIBUTE.size or place + length > len(attributes):
            break
        if kind == IFLA_IFNAME:
            return attributes[place + ATTRIBUTE.size : place + length].rstrip(b"\0").decode("utf-8", "backslashreplace")
        place += (length + 3) & ~3
    return ""
