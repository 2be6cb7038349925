"""Loopback ports: whether one is free, and which ones are."""

from __future__ import annotations

import secrets
import socket

from deploy.kafka.config import HOST
from deploy.kafka.errors import PortBusyError

# Below the ports that the kernel gives to outgoing connections: one stays free while its server restarts.
CANDIDATES = range(20_000, 32_768)


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        # As Java does: connections of a server that was killed do not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def check_free(port: int, option: str) -> None:
    """Raises PortBusyError, which names the port and `option` as the way to choose another."""
    if not is_free(port):
        raise PortBusyError(port, option)


def listens(port: int, timeout_s: float = 0.5) -> bool:
    """Whether something accepts connections on this loopback port."""
    try:
        with socket.create_connection((HOST, port), timeout_s):
            return True
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Different ports that are free now."""
    found: set[int] = set()
    while len(found) < count:
        port = secrets.choice(CANDIDATES)
        if is_free(port):
            found.add(port)
    return list(found)
