"""The kernel's log as it grows: /dev/kmsg, or a file or pipe with the same records."""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Final

log = logging.getLogger(__name__)

RECORD_BYTES: Final = 16 << 10
"""The kernel refuses to read into less than a record, which is below 9 KiB."""
MOST_RECORDS: Final = 1000
"""So many records a call: in a storm the kernel's buffer runs over, which is counted, and the agent stays cheap."""
RETRY_NS: Final = 60_000_000_000
HEADER: Final = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;]{0,80};")
PAIR: Final = re.compile(rb" [A-Z_]{1,32}=")
KERNEL_PRIORITIES: Final = 8
"""A priority of 8 or more has a facility: a process wrote it, and may pretend anything."""
WORDS: Final = {
    errno.EPERM: "not permitted: the agent needs CAP_SYSLOG (or kernel.dmesg_restrict = 0)",
    errno.EACCES: "not permitted: the agent needs read access to it, and CAP_SYSLOG where kernel.dmesg_restrict is 1",
    errno.ENOENT: "not there, as in most containers: mount the host's and name it in the setting `kmsg`",
    errno.ENXIO: "not there, as in most containers: mount the host's and name it in the setting `kmsg`",
}


class KernelLog:
    """Reads what the log gets from `open` on. Nothing ever waits, and no failure is more than a `problem` in words.

    wall, steady  clocks, ns; the second one counts since the machine started, as the log does
    lost          records that were overwritten before they could be read
    problem       why nothing is read, in words; empty while all is well
    """

    def __init__(self, path: str, wall: Callable[[], int], steady: Callable[[], int]) -> None:
        self.lost = 0
        self.problem = ""
        self._path = path
        self._wall = wall
        self._steady = steady
        self._descriptor = -1
        self._device = False
        self._sequence: int | None = None
        self._rest = b""
        self._seen_ns = 0
        self._retry_ns = 0

    def open(self) -> None:
        """Begin at the end of the log; an empty path is none."""
        if not self._path:
            return
        self._retry_ns = self._steady() + RETRY_NS
        self._seen_ns = self._wall()
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            mode = os.fstat(self._descriptor).st_mode
            self._device = stat.S_ISCHR(mode)
            if not stat.S_ISFIFO(mode):
                os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as error:
            self._failed(error)
            return
        self._sequence, self._rest, self.problem = None, b"", ""

    def read(self) -> Iterator[tuple[int, str]]:
        """(time ns since 1970, line) of what the kernel itself has said since the last call, oldest first."""
        if self._descriptor < 0:
            if self._steady() < self._retry_ns:
                return
            self.open()
            if self._descriptor < 0:
                return
        now_ns, booted_ns = self._wall(), self._wall() - self._steady()
        for record in self._records():
            header = HEADER.match(record)
            priority, sequence, microseconds = map(int, header.groups()) if header else (0, 0, 0)
            if header and self._device:
                self._count(sequence)
            if priority >= KERNEL_PRIORITIES:
                continue
            # The log's clock drifts, but what is new was said since the last look.
            said_ns = booted_ns + microseconds * 1000 if header else now_ns
            time_ns = min(max(said_ns, self._seen_ns), now_ns)
            for line in _lines(record[header.end() if header else 0 :]):
                yield time_ns, line
        self._seen_ns = now_ns

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _records(self) -> Iterator[bytes]:
        count = 0
        while count < MOST_RECORDS:
            try:
                chunk = os.read(self._descriptor, RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.EPIPE:
                    self._failed(error)
                    return
                count += 1  # overwritten while it was read: the gap in the numbers tells how many are gone
                continue
            if not chunk:
                return
            if self._device:
                count += 1
                yield chunk
                continue
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            if len(self._rest) > RECORD_BYTES:
                self._rest = b""
            for line in whole:
                count += 1
                if not PAIR.match(line):
                    yield line

    def _count(self, sequence: int) -> None:
        if self._sequence is not None and sequence > self._sequence + 1:
            self.lost += sequence - self._sequence - 1
        self._sequence = sequence

    def _failed(self, error: OSError) -> None:
        self.close()
        self._retry_ns = self._steady() + RETRY_NS
        words = WORDS.get(error.errno or 0) or error.strerror or str(error)
        problem = f"{self._path} is {words}" if error.errno in WORDS else f"{self._path} cannot be read: {words}"
        if problem != self.problem:
            self.problem = problem
            log.info("kernel log: %s", problem)


def _lines(text: bytes) -> Iterator[str]:
    """Lines of a record without the pairs of names and values after it. The kernel escapes what cannot be printed, and
    so do we: nothing that a device says may move a terminal's cursor.
    """
    said = b"\n".join(line for line in text.split(b"\n") if not PAIR.match(line))
    for line in said.replace(b"\\x0a", b"\n").replace(b"\\x09", b" ").replace(b"\t", b" ").split(b"\n"):
        words = line.decode("utf-8", "backslashreplace")
        if not words.isprintable():
            words = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in words)
        if words:
            yield words
