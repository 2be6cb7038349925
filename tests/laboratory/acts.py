"""Faults that no tool acts out: `python -m tests.laboratory.acts NAME SECONDS DIRECTORY [ARGUMENT...]`.

Each ends by itself after SECONDS, or earlier on SIGTERM, and undoes what it did.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

import numpy as np

from tests.laboratory.wire import SOCKET, ip, new_namespace

PAGE: Final = mmap.PAGESIZE
LEFT: Final = 0.04
LEFT_AT_LEAST: Final = 640 << 20
PIECE: Final = 64 << 20
FILL_S: Final = 75.0
MADV_POPULATE_WRITE: Final = 23
STREAM: Final = 512 << 20
HUGE_SHARE: Final = 0.25
HUGE: Final = 2 << 20
MAPPED: Final = 32 << 20
PORTS: Final = 32
FRAMES_PER_S: Final = 40_000
TURN_S: Final = 0.01
WHOEVER: Final = b"\xff" * 6 + b"\x02\x00\x00\x00\x00\x01" + b"\x88\xb5" + bytes(46)
"""A frame to everybody, of the type that is kept for experiments."""

Act = Callable[[float, Path, Sequence[str]], None]


class Ended(BaseException):
    """SIGTERM came."""


def wire(seconds: float, directory: Path, order: Sequence[str]) -> None:
    """Has the wire impaired as long as this process lives. Raises OSError with the wire's words if it cannot be."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10)
        line.connect(str(directory / SOCKET))
        line.sendall(f"{' '.join(order)}\n".encode())
        answer = line.makefile().readline().strip()
        if answer != "done":
            raise OSError(f"the wire says: {answer}")
        time.sleep(seconds)


def softirqs(seconds: float, directory: Path, _: Sequence[str]) -> None:
    """Frames to all ports of a bridge, in a namespace of its own that ends with this process."""
    new_namespace()
    ip("link", "add", "br0", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
    for port in range(PORTS):
        ip("link", "add", f"in{port}", "type", "veth", "peer", "name", f"out{port}")
        ip("link", "set", f"in{port}", "addrgenmode", "none", "master", "br0", "up")
        ip("link", "set", f"out{port}", "addrgenmode", "none", "up")
    ip("link", "set", "br0", "addrgenmode", "none", "up")
    end = time.monotonic() + seconds
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind(("out0", 0))
        due = time.monotonic()
        while time.monotonic() < end:
            for _turn in range(int(FRAMES_PER_S * TURN_S)):
                with suppress(OSError):  # no room: the next one may find some
                    out.send(WHOEVER)
            due = max(due + TURN_S, time.monotonic() - TURN_S)
            time.sleep(max(0.0, due - time.monotonic()))


def memory(seconds: float, directory: Path, _: Sequence[str]) -> None:
    """Takes memory until little is available, in FILL_S at most, and then reads a file through the rest of it.

    The kernel ends this process first should it run out after all.
    """
    Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    floor = max(int(meminfo("MemTotal") * LEFT), LEFT_AT_LEAST)
    with ExitStack() as taken, tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, STREAM)
        end = time.monotonic() + FILL_S
        while meminfo("MemAvailable") > floor + PIECE and time.monotonic() < end:
            _fill(taken.enter_context(private(PIECE)))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if meminfo("MemAvailable") > floor + PIECE:
                _fill(taken.enter_context(private(PIECE)))
            elif not file.read(PIECE // 16):
                file.seek(0)


def private(size: int) -> mmap.mmap:
    """New memory of this process alone; by default it would count as shared."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _fill(piece: mmap.mmap) -> None:
    try:
        piece.madvise(MADV_POPULATE_WRITE)
    except OSError:  # before Linux 5.14
        piece.write(bytes(PIECE))


def huge_pages(seconds: float, directory: Path, _: Sequence[str]) -> None:
    """Sets pages aside, and gives them back."""
    wanted = int(meminfo("MemAvailable") * HUGE_SHARE) // HUGE
    with more_huge_pages(wanted, Path("/proc/sys/vm/nr_hugepages")):
        time.sleep(seconds)


@contextmanager
def more_huge_pages(count: int, setting: Path) -> Iterator[None]:
    """`count` more huge pages for a while. Raises OSError when there are none to be had."""
    before = int(setting.read_text("ascii"))
    try:
        setting.write_text(f"{before + count}\n", "ascii")
        if int(setting.read_text("ascii")) == before:
            raise OSError("the kernel found no memory for huge pages")
        yield
    finally:
        setting.write_text(f"{before}\n", "ascii")


def page_faults(seconds: float, directory: Path, _: Sequence[str]) -> None:
    """Maps memory, touches each page, gives it back, and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        piece = private(MAPPED)
        with suppress(OSError):
            piece.madvise(mmap.MADV_NOHUGEPAGE)
        pages = np.frombuffer(piece, np.uint8)
        pages[::PAGE] = 1
        del pages
        piece.close()


def freeze(seconds: float, directory: Path, pids: Sequence[str]) -> None:
    """Stops processes, and lets them go on."""
    try:
        for pid in pids:
            os.kill(int(pid), signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGCONT)


def meminfo(name: str, path: Path = Path("/proc/meminfo")) -> int:
    """A figure of /proc/meminfo, bytes."""
    line = next(line for line in path.read_text("ascii").splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10


ACTS: Final[Mapping[str, Act]] = {
    "wire": wire,
    "softirqs": softirqs,
    "memory": memory,
    "huge-pages": huge_pages,
    "page-faults": page_faults,
    "freeze": freeze,
}


def _end(number: int, frame: FrameType | None) -> None:
    raise Ended


def main() -> int:
    """Act one out; exit status 1, and why, when the kernel does not let it."""
    name, seconds, directory, *arguments = sys.argv[1:]
    signal.signal(signal.SIGTERM, _end)
    try:
        ACTS[name](float(seconds), Path(directory), arguments)
    except Ended:
        pass
    except (OSError, RuntimeError) as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
