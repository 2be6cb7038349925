"""Messages on disk while they cannot be delivered: a directory of segments, oldest first, within a limit of bytes."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from producers.segment import HEADER_BYTES, Damage, Stored, UnusableError, records, salt_of
from producers.segment_file import Segment, Writer, content

log = logging.getLogger(__name__)

SEGMENT_BYTES: Final = 4 << 20
REFUSED: Final = "refused"
LOCK: Final = "lock"
NAME: Final = re.compile(r"[0-9]{16}\.spool")

Lose = Callable[[str, int, int, str], None]
"""Told of every loss: subsystem ("" where unknown), messages, samples, why."""


class SpoolError(Exception):
    """There is no spool for now; the message says why."""


class Spool:
    """A directory of segments that one process owns. Not safe for threads: one thread uses it, and may wait for a disk.

    What is appended survives the death of the process at once, and that of the machine when its segment is full. A
    segment is deleted when all its messages were handed out by `read` and reported `done`; until then another start
    hands them out again. Messages that Kafka refuses are kept in segments under `refused/`, the first to go when room
    is needed; moved back into the directory they are sent again by the next start.

    directory    made if it is not there
    limit_bytes  of all segments; beyond, the oldest segment goes, whole
    lose         told what goes, and what cannot be read
    """

    def __init__(self, directory: Path, limit_bytes: int, lose: Lose, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Take the directory over. Raises SpoolError when it cannot be used, or another process has it."""
        self.directory = directory
        self.unread = 0
        self.handed = 0
        self.bytes = 0
        self._limit = limit_bytes
        self._lose = lose
        # An eighth, so that dropping the oldest segment leaves the most of what fits.
        self._segment_bytes = min(segment_bytes, limit_bytes // 8)
        self._segments: list[Segment] = []
        self._refused: list[tuple[Path, int]] = []
        self._reader: tuple[Segment, int, int, Iterator[tuple[int, Stored | Damage]]] | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            (directory / REFUSED).mkdir(exist_ok=True, mode=0o700)
            self._lock = _locked(directory / LOCK)
        except OSError as error:
            raise SpoolError(f"{error.strerror}: {error.filename or directory}") from None
        self._next = 1
        self._writer = Writer(directory)
        self._aside = Writer(directory / REFUSED)
        try:
            self._scan()
        except OSError as error:
            os.close(self._lock)
            raise SpoolError(f"{error.strerror}: {error.filename or directory}") from None

    @property
    def messages(self) -> int:
        """Messages on disk that are not known to be delivered."""
        return self.unread + self.handed

    def append(self, message: Stored, *, handed: bool = False) -> Segment:
        """Write a message behind all others; `handed` for one that is out already, when no other is unread.

        Raises OSError when it cannot be written, and leaves what was written as it was; ValueError for a message that
        never can.
        """
        active = self._writer.segment
        if active is not None and active.size >= self._segment_bytes:
            self.seal()
            active = None
        if HEADER_BYTES + message.size > self._limit:
            raise ValueError(f"a message of {message.size} bytes is larger than the spool may be")
        self._make_room(message.size + HEADER_BYTES)
        segment = self._writer.segment
        if segment is None:
            segment = self._writer.start(self._number())
            self._segments.append(segment)
            self.bytes += segment.size
        try:
            self.bytes += self._writer.write(message)
        except OSError:
            self._writer.close(sync=False)
            self._retire(segment)
            raise
        if handed:
            segment.offset = segment.size
            segment.handed += 1
            self.handed += 1
        else:
            segment.count(message, 1)
            self.unread += 1
        return segment

    def read(self) -> tuple[Segment, Stored] | None:
        """Hand out the oldest message that was not yet; None when there is none."""
        while True:
            if self._reader is None and not self._turn_to_next():
                return None
            assert self._reader is not None
            segment, base, end, items = self._reader
            for at, item in items:
                if segment.gone:
                    break
                segment.offset = base + at
                if isinstance(item, Stored):
                    segment.count(item, -1)
                    segment.handed += 1
                    self.handed += 1
                    self.unread -= 1
                    return segment, item
            self._reader = None
            if not segment.gone:
                segment.offset = max(segment.offset, end)
                if segment.offset == segment.size:
                    self._lose_left(segment, f"{segment.path.name} was damaged")
                    self._retire(segment)

    def done(self, segment: Segment) -> None:
        """A message of `segment` that was handed out is delivered, or set aside."""
        segment.handed -= 1
        if not segment.gone:
            self.handed -= 1
            self._retire(segment)

    def rest(self) -> None:
        """Delete the segment that is being written, when nothing in it is needed any more."""
        segment = self._writer.segment
        if segment is not None and not segment.handed and segment.offset == segment.size:
            self._writer.close(sync=False)
            self._retire(segment)

    def set_aside(self, message: Stored) -> None:
        """Keep a message that Kafka refused. Raises OSError, and ValueError for a message that does not fit."""
        if message.size + HEADER_BYTES > self._limit // 2:
            raise ValueError(f"a message of {message.size} bytes is too large to be set aside")
        segment = self._aside.segment
        if segment is not None and segment.size >= self._segment_bytes:
            self._seal_aside()
            segment = None
        self._make_room(message.size + HEADER_BYTES)
        if self._aside.segment is None:
            self.bytes += self._aside.start(self._number()).size
        try:
            self.bytes += self._aside.write(message)
        except OSError:
            self._seal_aside()
            raise

    def seal(self) -> None:
        """Write no more to the present segment, and have the disk keep it. Raises nothing: it is readable anyway."""
        segment = self._writer.segment
        self._writer.close(sync=True)
        if segment is not None:
            self._retire(segment)

    def close(self) -> None:
        """Have the disk keep everything, and let another process have the directory."""
        self.rest()
        self.seal()
        self._seal_aside()
        os.close(self._lock)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _seal_aside(self) -> None:
        if (segment := self._aside.segment) is not None:
            self._aside.close(sync=True)
            self._refused.append((segment.path, segment.size))

    def _turn_to_next(self) -> bool:
        """Load the oldest segment with anything unread, if there is one."""
        while segment := next((each for each in self._segments if each.offset < each.size), None):
            try:
                data = content(segment.path, segment.offset, segment.size)
            except OSError as error:
                if error.errno == errno.ENOENT:
                    self._lose_left(segment, f"{segment.path.name} was removed")
                else:
                    log.error("%s cannot be read and is left alone: %s", segment.path, error.strerror)
                    self.unread -= sum(messages for messages, _ in segment.left.values())
                self._forget(segment)
                continue
            self._reader = segment, segment.offset, segment.size, records(data, segment.salt)
            return True
        return False

    def _retire(self, segment: Segment) -> None:
        if segment is self._writer.segment or segment.handed or segment.offset < segment.size:
            return
        self._forget(segment)
        self._unlink(segment.path)

    def _forget(self, segment: Segment) -> None:
        if segment is self._writer.segment:
            self._writer.close(sync=False)
        segment.gone = True
        self.handed -= segment.handed
        self._segments.remove(segment)
        self.bytes -= segment.size

    def _make_room(self, need: int) -> None:
        while self.bytes + need > self._limit:
            if not self._refused:
                self._seal_aside()
            if self._refused:
                path, size = self._refused.pop(0)
                self.bytes -= size
                log.warning("%s goes, to make room in the spool", path)
                self._unlink(path)
            elif self._segments:
                oldest = self._segments[0]
                self._lose_left(oldest, "the spool is full")
                self._forget(oldest)
                self._unlink(oldest.path)
            else:
                return

    def _lose_left(self, segment: Segment, reason: str) -> None:
        for subsystem, (messages, samples) in segment.left.items():
            if messages:
                self.unread -= messages
                self._lose(subsystem, messages, samples, reason)
        segment.left.clear()

    def _unlink(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.error("%s cannot be deleted, its messages will be sent again: %s", path, error.strerror)

    def _scan(self) -> None:
        """What earlier runs left behind. Raises OSError when the directory cannot be read."""
        strange: list[str] = []
        for path in sorted((self.directory / REFUSED).iterdir()):
            if NAME.fullmatch(path.name):
                self._refused.append((path, path.lstat().st_size))
                self.bytes += self._refused[-1][1]
                self._next = max(self._next, int(path.stem) + 1)
        for path in sorted(self.directory.iterdir()):
            if path.name in (LOCK, REFUSED):
                continue
            if not NAME.fullmatch(path.name):
                strange.append(path.name)
                continue
            self._next = max(self._next, int(path.stem) + 1)
            self._take_up(path)
        if strange:
            names = ", ".join(strange[:5])
            log.warning("%s: files that are not ours are left alone: %s (%d)", self.directory, names, len(strange))
        if self._segments:
            log.info(
                "%s: %d messages of earlier runs, %.1f MB, go out first", self.directory, self.unread, self.bytes / 1e6
            )

    def _take_up(self, path: Path) -> None:
        try:
            data = content(path, 0)
        except OSError as error:
            log.warning("%s cannot be read and is left alone: %s", path, error.strerror)
            return
        if not data:
            # The process died between making the file and writing to it: nothing was in it.
            self._unlink(path)
            return
        try:
            salt = salt_of(data)
        except UnusableError as error:
            self._lose("", 1, 0, f"{path.name}: {error}")
            aside = self.directory / REFUSED / path.name
            try:
                path.rename(aside)
            except OSError as problem:
                log.warning("%s is left alone: %s", path, problem.strerror)
                return
            self._refused.append((aside, len(data)))
            self.bytes += len(data)
            return
        segment = Segment(path, salt, len(data))
        for _, item in records(data[HEADER_BYTES:], salt):
            if isinstance(item, Stored):
                segment.count(item, 1)
                self.unread += 1
            else:
                self._lose(item.subsystem, 1, item.samples, f"{path.name}: {item.reason}")
        self.bytes += segment.size
        self._segments.append(segment)
        if not segment.left:
            self._forget(segment)
            self._unlink(path)


def _locked(path: Path) -> int:
    """A descriptor that holds the lock. Raises SpoolError when another process has it, OSError when it cannot be."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # A lock of the process, not of the descriptor: a child must not keep it when its parent is killed.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        os.close(file)
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        who = f"process {holder}" if holder else "another process"
        raise SpoolError(f"{path.parent} is in use by {who}; every agent needs a spool of its own") from None
    # On a full disk there is no room for the number; the lock holds without it.
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
    return file
