"""RDMA's netlink socket: how many resources each RDMA device has given out. Numbers from linux/rdma/rdma_netlink.h."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

PROTOCOL: Final = 20
CLIENT: Final = 5 << 10
RES_GET: Final = 9
REQUEST_DUMP: Final = 0x301
ERROR: Final = 2
DONE: Final = 3
HEADER: Final = struct.Struct("=IHHII")
ATTRIBUTE: Final = struct.Struct("=HH")
DEVICE_NAME: Final = 2
SUMMARY: Final = 15
ENTRY: Final = 16
ENTRY_NAME: Final = 17
ENTRY_COUNT: Final = 18
TYPE_MASK: Final = 0x3FFF
TIMEOUT_S: Final = 2.0
SIZE: Final = 1 << 16
MOST_PARTS: Final = 1000


def rdma_resources() -> dict[str, dict[str, int]]:
    """Resources by device and kind (qp, cq, mr, pd, ...), as `rdma resource` shows them.

    Raises OSError: ENOENT where the kernel has no RDMA, TimeoutError when it does not answer.
    """
    try:
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, PROTOCOL)
    except OSError as error:
        if error.errno in (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT):
            raise OSError(errno.ENOENT, "this kernel has no RDMA netlink protocol") from error
        raise
    with link:
        link.settimeout(TIMEOUT_S)
        link.sendto(HEADER.pack(HEADER.size, CLIENT + RES_GET, REQUEST_DUMP, 1, 0), (0, 0))
        found: dict[str, dict[str, int]] = {}
        for _ in range(MOST_PARTS):
            part, finished = resources(link.recv(SIZE))
            found |= part
            if finished:
                return found
    raise OSError(errno.EMSGSIZE, "the kernel's answer has no end")


def resources(packet: bytes) -> tuple[dict[str, dict[str, int]], bool]:
    """Resources by device in one packet, and whether it is the last one. Raises OSError for what the kernel refuses."""
    found: dict[str, dict[str, int]] = {}
    offset = 0
    while offset + HEADER.size <= len(packet):
        length, kind, _, _, _ = HEADER.unpack_from(packet, offset)
        if length < HEADER.size or offset + length > len(packet):
            raise OSError(errno.EBADMSG, "a netlink message that is cut short")
        body = packet[offset + HEADER.size : offset + length]
        if kind in (ERROR, DONE):
            code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
            if code:
                raise OSError(code, os.strerror(code))
            return found, True
        if kind == CLIENT + RES_GET:
            fields = dict(attributes(body))
            if DEVICE_NAME in fields:
                found[_text(fields[DEVICE_NAME])] = dict(_counts(fields.get(SUMMARY, b"")))
        offset += _aligned(length)
    return found, False


def attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and value of each attribute; ends before one that is cut short."""
    offset = 0
    while offset + ATTRIBUTE.size <= len(body):
        length, kind = ATTRIBUTE.unpack_from(body, offset)
        if length < ATTRIBUTE.size or offset + length > len(body):
            return
        yield kind & TYPE_MASK, body[offset + ATTRIBUTE.size : offset + length]
        offset += _aligned(length)


def _counts(summary: bytes) -> Iterator[tuple[str, int]]:
    for kind, entry in attributes(summary):
        fields = dict(attributes(entry))
        if kind == ENTRY and ENTRY_NAME in fields and len(fields.get(ENTRY_COUNT, b"")) == 8:
            yield _text(fields[ENTRY_NAME]), struct.unpack("=Q", fields[ENTRY_COUNT])[0]


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode("utf-8", "replace")


def _aligned(length: int) -> int:
    return (length + 3) & ~3
