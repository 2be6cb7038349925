"""The spool's files: one that is written, and what of one was handed out."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from producers.segment import HEADER_BYTES, LARGEST_BYTES, Stored, header, record

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Segment:
    """A file of the spool.

    offset  where the next message to be handed out begins
    left    messages and samples that were not handed out yet, by subsystem
    handed  messages that were handed out and are not done
    gone    it was dropped to keep within the limit
    """

    path: Path
    salt: int
    size: int
    offset: int = HEADER_BYTES
    left: dict[str, tuple[int, int]] = field(default_factory=dict)
    handed: int = 0
    gone: bool = False

    def count(self, message: Stored, sign: int) -> None:
        """One more, or one less, that was not handed out."""
        messages, samples = self.left.get(message.subsystem, (0, 0))
        self.left[message.subsystem] = messages + sign, samples + sign * message.samples


class Writer:
    """The segment of a directory that is being written, if there is one."""

    def __init__(self, directory: Path) -> None:
        self.segment: Segment | None = None
        self._directory = directory
        self._file = -1

    def start(self, number: int) -> Segment:
        """Begin a new segment. Raises OSError."""
        path = self._directory / f"{number:016d}.spool"
        salt = secrets.randbits(32)
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _write(file, header(salt))
        except OSError:
            os.close(file)
            with suppress(OSError):
                path.unlink()
            raise
        self._file = file
        self.segment = Segment(path, salt, HEADER_BYTES)
        return self.segment

    def write(self, message: Stored) -> int:
        """Add a message to the segment; bytes written. Raises ValueError for one that does not fit, and OSError: then
        nothing more may be written to this segment.
        """
        assert self.segment is not None
        data = record(message, self.segment.salt)
        try:
            _write(self._file, data)
        except OSError:
            # Half a record would be counted as damage by the next start.
            with suppress(OSError):
                os.ftruncate(self._file, self.segment.size)
            raise
        self.segment.size += len(data)
        return len(data)

    def close(self, *, sync: bool) -> None:
        """Write no more to the segment; with `sync` wait until the disk has it."""
        if self.segment is None:
            return
        self.segment = None
        try:
            if sync:
                os.fdatasync(self._file)
                directory = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(directory)
                finally:
                    os.close(directory)
        except OSError as error:
            log.error("%s: the disk does not confirm what was written: %s", self._directory, error.strerror)
        finally:
            os.close(self._file)


def _write(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, data[written:])


def content(path: Path, start: int, end: int | None = None) -> bytes:
    """Bytes of a file from `start` to `end`. Raises OSError, also for what is no file, or too large for a segment."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size > 2 * LARGEST_BYTES:
            raise OSError(errno.EFBIG, "too large for a segment", str(path))
        parts: list[bytes] = []
        at, end = start, status.st_size if end is None else end
        while at < end and (part := os.pread(file, end - at, at)):
            parts.append(part)
            at += len(part)
        return b"".join(parts)
    finally:
        os.close(file)
