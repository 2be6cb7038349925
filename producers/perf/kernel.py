"""The system call perf_event_open, for which the C library has no function, and what its errors mean."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from dataclasses import dataclass
from typing import Final, Protocol

SYSCALLS: Final = {"x86_64": 298, "aarch64": 241}
# Time enabled, time running, all of a group at once.
READ_FORMAT: Final = 1 | 2 | 8
CLOSE_ON_EXEC: Final = 8
# type, size, config, period, sample type, read format, flags, wakeup, breakpoint type, config1, config2: version 1 of
# the structure, which every kernel since 3.3 knows.
ATTRIBUTES: Final = struct.Struct("=IIQQQQQIIQQ")
# What this machine has not, as opposed to what it forbids.
ABSENT: Final = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV, errno.ENXIO})
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE})


@dataclass(frozen=True, slots=True)
class Event:
    """What to count: as in perf_event_attr. `scale` makes the unit of `metric` of a count."""

    metric: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    scale: float = 1.0

    def attributes(self) -> bytes:
        """The structure perf_event_attr: counts at once, in user mode and kernel, without sampling."""
        return ATTRIBUTES.pack(
            self.type, ATTRIBUTES.size, self.config, 0, 0, READ_FORMAT, 0, 0, 0, self.config1, self.config2
        )


class Kernel(Protocol):
    """Who counts."""

    def open(self, event: Event, cpu: int, leader: int) -> int:
        """Descriptor that counts `event` of all tasks on `cpu`, in the group of `leader` or, with -1, in a new one.

        Raises OSError.
        """

    def read(self, descriptor: int, size: int) -> bytes:
        """Number of counters of the group, ns enabled, ns running, counts: 64 bit each. Raises OSError."""

    def close(self, descriptor: int) -> None:
        """Give a descriptor back."""

    def limit(self) -> int:
        """How many descriptors the process may have."""


class Linux:
    """The kernel that this process runs on."""

    def __init__(self) -> None:
        self._number = SYSCALLS.get(platform.machine())
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long

    def open(self, event: Event, cpu: int, leader: int) -> int:
        """As in Kernel."""
        if self._number is None:
            raise OSError(errno.ENOSYS, f"Reveal does not know perf_event_open of {platform.machine()}")
        attributes = ctypes.create_string_buffer(event.attributes(), ATTRIBUTES.size)
        everyone, flags = ctypes.c_int(-1), ctypes.c_ulong(CLOSE_ON_EXEC)
        descriptor: int = self._syscall(
            ctypes.c_long(self._number), attributes, everyone, ctypes.c_int(cpu), ctypes.c_int(leader), flags
        )
        if descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return descriptor

    def read(self, descriptor: int, size: int) -> bytes:
        """As in Kernel."""
        return os.read(descriptor, size)

    def close(self, descriptor: int) -> None:
        """As in Kernel."""
        os.close(descriptor)

    def limit(self) -> int:
        """As in Kernel."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def explain(number: int, paranoid: str) -> str:
    """Error `number` of perf_event_open in words, and what to do; `paranoid` is kernel.perf_event_paranoid."""
    if number == errno.EACCES:
        return (
            f"not permitted while kernel.perf_event_paranoid is {paranoid or 'unknown'}: give the agent CAP_PERFMON "
            "(CAP_SYS_ADMIN before Linux 5.8 and on kernels that demand it), or set kernel.perf_event_paranoid to 0"
        )
    if number == errno.EPERM:
        return (
            "perf_event_open is forbidden, as the seccomp filter of a container does: allow it in the profile and give "
            "the agent CAP_PERFMON"
        )
    if number in EXHAUSTED:
        return "too few file descriptors: raise LimitNOFILE of the service (ulimit -n), or disable the collector"
    if number == errno.ENOSYS:
        return "this kernel or sandbox has no perf_event_open"
    if number in ABSENT:
        return "this machine has no such counter"
    return os.strerror(number)
