"""The health log of an NVMe disk, asked from its controller."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

# NVME_IOCTL_ADMIN_CMD and struct nvme_admin_cmd of linux/nvme_ioctl.h.
ADMIN: Final = 0xC0484E41
COMMAND: Final = struct.Struct("=BBHIIIQQII6III")
# Get Log Page, of all namespaces: NVM Express Base Specification 2.0, 5.16.
GET_LOG_PAGE: Final = 0x02
ALL_NAMESPACES: Final = 0xFFFFFFFF
HEALTH: Final = 0x02
SIZE: Final = 512

Ioctl: TypeAlias = Callable[[int, int, bytearray], int]


def _ioctl(descriptor: int, request: int, argument: bytearray) -> int:
    return int(fcntl.ioctl(descriptor, request, argument))


def health_log(path: str, ioctl: Ioctl = _ioctl) -> bytes:
    """The 512 bytes of the SMART / health information log of the controller that is the device `path`.

    Raises OSError, in words where the agent may not ask. May hang for as long as the controller is.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            log = ctypes.create_string_buffer(SIZE)
            # No time-out of ours: when one passes, the kernel resets the controller. 0 is the kernel's own.
            command = bytearray(
                COMMAND.pack(
                    *(GET_LOG_PAGE, 0, 0, ALL_NAMESPACES, 0, 0, 0, ctypes.addressof(log), 0, SIZE),
                    *((SIZE // 4 - 1) << 16 | HEALTH, 0, 0, 0, 0, 0, 0, 0),
                )
            )
            status = ioctl(descriptor, ADMIN, command)
        finally:
            os.close(descriptor)
    except PermissionError as error:
        words = "only a process with CAP_SYS_ADMIN that may open the device can read an NVMe health log"
        raise OSError(error.errno, words, path) from error
    if status:
        raise OSError(errno.EIO, f"the controller refused to give its health log: status {status:#x}", path)
    return log.raw
