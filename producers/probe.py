"""A source that is asked device by device, such as file systems or disks, where each may hang."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from producers.collector import Collector
from producers.reading import Host, Problem, Texts
from producers.source import HUNG_NS, PERMANENT, SECOND_NS

log = logging.getLogger(__name__)

Find: TypeAlias = Callable[[], Iterable[str]]
Look: TypeAlias = Callable[[str], bytes | None]


@dataclass(slots=True, eq=False)
class _Turn:
    """One round of questions: which name is asked, and since when; what came; when it was over (0 before)."""

    name: str
    since_ns: int
    asked: int = 0
    ended_ns: int = 0
    texts: dict[str, bytes] = field(default_factory=dict)
    problems: dict[str, Problem] = field(default_factory=dict)


class Probe:
    """A source that asks about one name after the other, in a thread of its own for each round.

    A name that does not answer keeps its thread; another round begins without it at once, and it is asked again when
    its thread came back. So there are never more threads than names, and none waits for another.

    find  names that there are now
    look  what one of them says; None when it has nothing to say, which is no failure

    Both may hang and may raise whatever they like.
    """

    later = True

    def __init__(self, collector: Collector, host: Host, find: Find, look: Look) -> None:
        self.errors = 0
        self._name = collector.name
        self._subject = collector.files[0]
        self._clock = host.clock
        self._find = find
        self._look = look
        self._turn: _Turn | None = None
        self._latest: _Turn | None = None
        self._hanging: dict[str, _Turn] = {}
        self._problems: dict[str, Problem] = {}
        self._refused = ""
        self._nothing = False
        self._cpu_s = 0.0

    def request(self, now_ns: int) -> None:
        """As in Source; nothing happens while a round is under way."""
        self._collect(now_ns)
        if self._turn is None:
            self._start(now_ns)

    def read(self, now_ns: int) -> tuple[int, Texts] | None:
        """What the round that ended since the last call has found."""
        self._collect(now_ns)
        latest, self._latest = self._latest, None
        return (latest.ended_ns, latest.texts) if latest is not None and latest.texts else None

    def idle(self) -> bool:
        """As in Source."""
        return self._nothing

    def problems(self, now_ns: int, hung_ns: int = HUNG_NS) -> list[Problem]:
        """As in Source."""
        found = dict(self._problems)
        waiting = list(self._hanging.values())
        if self._turn is not None and not self._turn.ended_ns and now_ns - self._turn.since_ns >= hung_ns:
            waiting.append(self._turn)
        for turn in waiting:
            if not turn.ended_ns:
                reason = f"no answer for {(now_ns - turn.since_ns) / SECOND_NS:.1f} s"
                found[turn.name] = Problem(self._name, turn.name, "hung", reason)
        if self._refused:
            found[""] = Problem(self._name, self._subject, "failing", self._refused)
        return list(found.values())

    def failed(self, reason: str, now_ns: int) -> None:
        """As in Source; the next round comes late enough to need no pause."""
        self.errors += 1
        if reason != self._refused:
            log.warning("%s: cannot be used: %s", self._name, reason)
        self._refused = reason

    def understood(self) -> None:
        """As in Source."""
        self._refused = ""

    def cpu_s(self) -> float:
        """Processor time of all rounds so far, s."""
        return self._cpu_s

    def close(self) -> None:
        """As in Source: a round under way ends by itself, and its thread does not keep the process."""

    def _start(self, now_ns: int) -> None:
        self._hanging = {name: turn for name, turn in self._hanging.items() if not turn.ended_ns}
        if self._subject in self._hanging:
            return
        self._turn = turn = _Turn(self._subject, now_ns)
        arguments = (turn, frozenset(self._hanging))
        threading.Thread(target=self._run, args=arguments, name=f"probe-{self._name}", daemon=True).start()

    def _run(self, turn: _Turn, skipped: frozenset[str]) -> None:
        try:
            for name in self._find():
                turn.asked += 1
                if name in skipped:
                    continue
                turn.name, turn.since_ns = name, self._clock()
                try:
                    text = self._look(name)
                except Exception as error:
                    # Whatever one device makes of the question is its failure alone.
                    turn.problems[name] = self._problem(name, error)
                    continue
                if text is not None:
                    turn.texts[name] = text
        except Exception as error:
            turn.problems[self._subject] = self._problem(self._subject, error)
        self._cpu_s += time.thread_time()
        turn.ended_ns = self._clock()

    def _collect(self, now_ns: int) -> None:
        """Take over a round that is done; give up one that hangs and begin the next."""
        turn = self._turn
        if turn is None:
            return
        if not turn.ended_ns:
            if now_ns - turn.since_ns >= HUNG_NS:
                log.warning("%s: %s does not answer; going on without it", self._name, turn.name)
                self.errors += 1
                self._hanging[turn.name] = turn
                self._turn = None
                self._start(now_ns)
            return
        self._turn, self._latest = None, turn
        self._nothing = not turn.asked
        if self._nothing and not turn.problems:
            turn.problems[self._subject] = Problem(
                self._name, self._subject, "missing", "no such device on this machine"
            )
        self.errors += len(turn.problems) * (not self._nothing)
        for name, problem in turn.problems.items():
            if self._problems.get(name) != problem:
                level = logging.INFO if problem.kind == "missing" else logging.WARNING
                log.log(level, "%s: %s is %s: %s", self._name, name, problem.kind, problem.reason)
        self._problems = turn.problems

    def _problem(self, name: str, error: Exception) -> Problem:
        if not isinstance(error, OSError):
            return Problem(self._name, name, "failing", f"{type(error).__name__}: {error}")
        kind = "missing" if error.errno in PERMANENT else "failing"
        return Problem(self._name, name, kind, error.strerror or str(error))
