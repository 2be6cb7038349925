"""A source at run time: its open files, what is wrong with them, and when to try again."""

from __future__ import annotations

import errno
import glob
import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import Final

from producers.collector import Collector
from producers.files import KeptFile
from producers.reading import Host, Problem, Source, Texts

log = logging.getLogger(__name__)

SECOND_NS: Final = 1_000_000_000
BACKOFF_NS: Final = SECOND_NS
LONGEST_BACKOFF_NS: Final = 60 * SECOND_NS
RESCAN_NS: Final = 10 * SECOND_NS
HUNG_NS: Final = 5 * SECOND_NS
# What will not come by itself: not in this kernel, switched off, or not allowed.
PERMANENT: Final = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EACCES, errno.EPERM, errno.ENOTDIR})


class _Entry:
    """A file of a source, or a pattern without a match."""

    __slots__ = ("backoff_ns", "file", "key", "kind", "reason", "retry_ns")

    def __init__(self, key: str, file: KeptFile) -> None:
        self.key = key
        self.file = file
        self.kind = self.reason = ""
        self.retry_ns = self.backoff_ns = 0

    def failed(self, error: Exception, now_ns: int) -> bool:
        """Take note of a failure; True when it is news."""
        self.file.close()
        permanent = isinstance(error, OSError) and error.errno in PERMANENT
        kind = "missing" if permanent else "failing"
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        self.backoff_ns = (
            LONGEST_BACKOFF_NS if permanent else min(max(2 * self.backoff_ns, BACKOFF_NS), LONGEST_BACKOFF_NS)
        )
        self.retry_ns = now_ns + self.backoff_ns
        news = (kind, reason) != (self.kind, self.reason)
        self.kind, self.reason = kind, reason
        return news

    def recovered(self) -> None:
        log.info("%s can be read again", self.key)
        self.kind = self.reason = ""
        self.retry_ns = self.backoff_ns = 0


class InlineSource:
    """A source whose files are read where `read` is called."""

    later = False

    def __init__(self, collector: Collector, host: Host, *, patient: bool = False) -> None:
        self.collector = collector
        self.errors = 0
        self._roots = host.roots
        self._clock = host.clock
        self._wanted = host.wanted
        self._patient = patient
        self._entries: list[_Entry] = []
        self._constants: dict[str, bytes] = {}
        self._unmatched: list[str] = []
        self._text = _Entry(collector.name, KeptFile(""))
        self._scan_ns = 0
        self._scanned = False

    def read(self, now_ns: int) -> tuple[int, Texts] | None:
        """As in Source."""
        if now_ns >= self._scan_ns:
            self._scan(now_ns)
        if self._text.retry_ns > now_ns:
            return None
        texts: dict[str, bytes] = {}
        for entry in self._entries:
            if entry.retry_ns > now_ns:
                continue
            try:
                texts[entry.key] = entry.file.read()
            except OSError as error:
                self._note(entry, error, now_ns)
                continue
            if entry.kind:
                entry.recovered()
        return (self._clock(), texts | self._constants) if texts else None

    def request(self, now_ns: int) -> None:
        """As in Source; `read` is the reading itself."""

    def failed(self, reason: str, now_ns: int) -> None:
        """As in Source."""
        self._note(self._text, ValueError(reason), now_ns)

    def understood(self) -> None:
        """As in Source."""
        if self._text.kind:
            self._text.recovered()

    def idle(self) -> bool:
        """As in Source."""
        return not self._entries

    def problems(self, now_ns: int, hung_ns: int = HUNG_NS) -> list[Problem]:
        """As in Source."""
        name = self.collector.name
        found = [Problem(name, path, "missing", "no such file on this machine") for path in self._unmatched]
        entries = [entry for entry in (*self._entries, self._text) if entry.kind]
        return found + [Problem(name, entry.key, entry.kind, entry.reason) for entry in entries]

    def close(self) -> None:
        """As in Source."""
        for entry in self._entries:
            entry.file.close()

    def _note(self, entry: _Entry, error: Exception, now_ns: int) -> None:
        self.errors += 1
        if entry.failed(error, now_ns):
            level = logging.INFO if entry.kind == "missing" else logging.WARNING
            log.log(level, "%s: %s is %s: %s", self.collector.name, entry.key, entry.kind, entry.reason)

    def _scan(self, now_ns: int) -> None:
        """Look which files there are: CPUs and nodes come and go."""
        self._scan_ns = now_ns + RESCAN_NS
        known = {entry.key: entry for entry in self._entries}
        entries: list[_Entry] = []
        unmatched: list[str] = []
        for pattern in self.collector.files:
            keys = list(self._expand(pattern))
            if not keys:
                unmatched.append(pattern)
            for key in keys:
                entry = known.pop(key, None)
                if entry is None:
                    entry = _Entry(key, self._file(key))
                else:
                    entry.file.check()
                entries.append(entry)
        for entry in known.values():
            entry.file.close()
        # What a machine never had is no news.
        level = logging.INFO if self._scanned else logging.DEBUG
        self._scanned = True
        for pattern in set(unmatched) - set(self._unmatched):
            log.log(level, "%s: there is no %s on this machine", self.collector.name, pattern)
        self._entries, self._unmatched = entries, unmatched
        # Constants are of interest only to what is there.
        keys_of_constants = (key for pattern in self.collector.constants for key in self._expand(pattern))
        self._constants = dict(filter(None, map(self._constant, keys_of_constants))) if entries else {}

    def _constant(self, key: str) -> tuple[str, bytes] | None:
        file = self._file(key)
        try:
            return key, file.read()
        except OSError:
            return None
        finally:
            file.close()

    def _file(self, key: str) -> KeptFile:
        return KeptFile(self._path(key), patient=self._patient, attribute=key.startswith("sys/"))

    def _path(self, key: str) -> str:
        root, rest = self._rooted(key)
        return os.path.join(self._roots[root], rest)

    def _rooted(self, key: str) -> tuple[str, str]:
        """Root and path below it; of two roots, such as proc and proc/net, the longer one."""
        root = max((root for root in self._roots if key.startswith(f"{root}/")), key=len)
        return root, key[len(root) + 1 :]

    def _expand(self, pattern: str) -> Iterator[str]:
        if "*" not in pattern:
            yield pattern
            return
        root, rest = self._rooted(pattern)
        # Numbers in names count as numbers: cpu10 comes after cpu9.
        per, before = self.collector.per, rest.partition("*")[0]
        for path in sorted(glob.glob(rest, root_dir=self._roots[root]), key=natural):
            # The directory whose name the first star completes is the instance.
            start = before.rfind("/") + 1
            if not per or self._wanted(per, path[start:].partition("/")[0]):
                yield f"{root}/{path}"


class ThreadSource:
    """A source that may block: a daemon thread of its own reads it on request, and the frame picks up what came.

    inner     what the thread reads; the files of the collector, if not given
    asked_ns  monotonic time at which a reading of `inner` began that is still under way in some thread, which is to
              call `serve` when it has it
    """

    later = True

    def __init__(self, collector: Collector, host: Host, inner: Source | None = None, asked_ns: int = 0) -> None:
        self.collector = collector
        self._inner = inner or InlineSource(collector, host, patient=True)
        self._clock = host.clock
        self._cpu_s = 0.0
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._latest: tuple[int, Texts] | None = None
        self._asked_ns = asked_ns
        self._quiet_ns = 0
        self._thread: threading.Thread | None = None

    @property
    def errors(self) -> int:
        """Failures so far."""
        return self._inner.errors

    def request(self, now_ns: int) -> None:
        """As in Source; nothing happens while a reading is still under way."""
        if self._asked_ns or now_ns < self._quiet_ns:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"read-{self.collector.name}", daemon=True)
            self._thread.start()
        self._asked_ns = now_ns
        self._requests.put(True)

    def read(self, now_ns: int) -> tuple[int, Texts] | None:
        """The reading that came since the last call."""
        latest, self._latest = self._latest, None
        return latest

    def idle(self) -> bool:
        """As in Source."""
        return self._quiet_ns > 0

    def failed(self, reason: str, now_ns: int) -> None:
        """As in Source."""
        self._inner.failed(reason, now_ns)

    def understood(self) -> None:
        """As in Source."""
        self._inner.understood()

    def problems(self, now_ns: int, hung_ns: int = HUNG_NS) -> list[Problem]:
        """As in Source."""
        waited = now_ns - self._asked_ns
        if self._asked_ns and waited >= hung_ns:
            name = self.collector.name
            path = self.collector.files[0] if self.collector.files else name
            return [Problem(name, path, "hung", f"no answer for {waited / SECOND_NS:.1f} s")]
        return self._inner.problems(now_ns, hung_ns)

    def cpu_s(self) -> float:
        """Processor time of the thread so far, s."""
        return self._cpu_s

    def serve(self, reading: tuple[int, Texts] | None) -> None:
        """Be the thread of this source from now on; `reading` is the one that was under way."""
        self._thread = threading.current_thread()
        self._latest, self._asked_ns = reading, 0
        self._run()

    def close(self) -> None:
        """Let the thread end, if it ever comes back."""
        self._requests.put(False)

    def _run(self) -> None:
        began_s = time.thread_time()
        while self._requests.get():
            try:
                now_ns = self._clock()
                self._inner.request(now_ns)
                self._latest = self._inner.read(now_ns)
                if self._latest is None:
                    # Nothing there to be read: no need to wake up for it before the next look.
                    self._quiet_ns = self._clock() + RESCAN_NS
                else:
                    self._quiet_ns = 0
            except Exception as error:
                # The thread must live on: whatever a driver makes of a read is this source's failure alone.
                self._inner.failed(f"{type(error).__name__}: {error}", self._clock())
            self._cpu_s = time.thread_time() - began_s
            self._asked_ns = 0
        self._inner.close()


def natural(text: str) -> list[tuple[int, int | str]]:
    """Sort key that takes the numbers in `text` as numbers."""
    parts: list[tuple[int, int | str]] = []
    digits = ""
    for character in f"{text}\0":
        if character in "0123456789":
            digits += character
            continue
        if digits:
            parts.append((0, int(digits)))
            digits = ""
        parts.append((1, character))
    return parts
