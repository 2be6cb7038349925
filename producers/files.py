"""Files of /proc and /sys that stay open: a kept descriptor costs a third of opening the file each time."""

from __future__ import annotations

import os
import stat
from typing import Final

CHUNK: Final = 1 << 16
PAGE: Final = 4096


class KeptFile:
    """A file that is read from its start again and again.

    With `patient`, opening and reading may wait for whatever the file waits for. Without, a file that is no regular
    file is refused, so that a pipe cannot stop its reader. An `attribute` of sysfs comes whole in one read.
    """

    def __init__(self, path: str, *, patient: bool = False, attribute: bool = False) -> None:
        self.path = path
        self._patient = patient
        self._attribute = attribute
        self._descriptor = -1

    def read(self) -> bytes:
        """Whole content. Raises OSError; an empty file is one too, as the kernel has something to say in each."""
        if self._descriptor < 0:
            self._open()
            return self._content()
        try:
            return self._content()
        except OSError:
            # A CPU or device that went and came back left this descriptor dead.
            self.close()
            self._open()
            return self._content()

    def check(self) -> None:
        """Let go of a file that the path no longer names."""
        if self._descriptor >= 0:
            try:
                now, kept = os.stat(self.path), os.fstat(self._descriptor)
            except OSError:
                self.close()
                return
            if (now.st_dev, now.st_ino) != (kept.st_dev, kept.st_ino):
                self.close()

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        flags = os.O_RDONLY | os.O_CLOEXEC
        if self._patient:
            self._descriptor = os.open(self.path, flags)
            return
        descriptor = os.open(self.path, flags | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(0, "not a regular file", self.path)
        self._descriptor = descriptor

    def _content(self) -> bytes:
        # One read of a sequence file ends after a page or so, whatever the size asked for.
        content = chunk = os.pread(self._descriptor, CHUNK, 0)
        if self._attribute and 0 < len(content) < PAGE:
            return content
        while chunk:
            chunk = os.pread(self._descriptor, CHUNK, len(content))
            content += chunk
        if not content:
            raise OSError(0, "the file is empty", self.path)
        return content


def mounted_over(mountinfo: bytes, root: str) -> frozenset[str]:
    """Paths below `root`, relative to it, on which something else is mounted (lxcfs, say), from /proc/self/mountinfo.

    What is mounted there is a program's answer, and may never come.
    """
    prefix = os.path.realpath(root).encode() + b"/"
    found = set()
    for line in mountinfo.splitlines():
        fields = line.split()
        if len(fields) > 4 and fields[4].startswith(prefix):
            found.add(fields[4][len(prefix) :].decode("utf-8", "replace"))
    return frozenset(found)
