"""The parent's side of the process that reads GPUs: a source that never waits for it."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Mapping
from typing import Final

from producers.collector import Collector
from producers.gpu.bus import Bus, library
from producers.gpu.patience import PATIENCE, Backoff, Patience
from producers.gpu.roster import Roster
from producers.gpu.spawn import Held, Process, Spawn
from producers.gpu.wire import TIME, VALUES, Down, Frames, Hello, Lost, Orders, Xid, heard
from producers.reading import STARTING, Host, Problem, Texts

log = logging.getLogger(__name__)

HELLO_KEY: Final = "gpu/hello"
VALUES_KEY: Final = "gpu/values"
STATE_KEY: Final = "gpu/state"
STALE_KEY: Final = "gpu/stale"

SECOND_NS: Final = 1_000_000_000
# No machine has more; names are made of these numbers.
MOST_GPUS: Final = 256
# A GPU whose reading has ended the process so often in a row is left out for a while. One hang that had to be ended by
# force is enough, too.
TRIALS: Final = 3
_FRESH: Final = struct.pack("d", 0.0)


class GpuSource:
    """Reads GPUs through a process of its own.

    A reading is asked for and picked up at a later sample. What GPUs are called goes into `host.gpus`.
    """

    later = True

    def __init__(
        self, collector: Collector, host: Host, *, spawn: Spawn = Process, patience: Patience = PATIENCE
    ) -> None:
        self.errors = 0
        self._name = collector.name
        self._host = host
        self._spawn = spawn
        self._patience = patience
        self._roster = Roster(host.gpus, host.notices, lambda name: host.wanted("gpu", name), host.roots["proc"])
        self._bus = Bus(host.roots)
        self._on_bus: frozenset[str] = frozenset()
        self._present = False
        self._look_ns = 0
        self._process: Held | None = None
        self._leftover: Held | None = None
        self._frames = Frames()
        self._hello = b""
        self._reading: tuple[int, bytes] | None = None
        self._ended_s = 0.0
        self._started_ns = self._start_ns = 0
        self._asked_ns = self._answered_ns = 0
        self._hung = self._ending = False
        self._killed_ns = 0
        self._down: Down | None = None
        self._crash = self._refused = self._suspect = ""
        self._crashes = Backoff(patience.restart, patience.longest_restart)
        self._attempts = Backoff(patience.again, patience.longest_again)
        self._again_ns = 0
        self._blame: dict[str, int] = {}
        self._avoided: set[str] = set()

    def request(self, now_ns: int) -> None:
        """As in Source; nothing happens while an answer is outstanding."""
        if now_ns >= self._look_ns:
            self._look(now_ns)
        if self._process is not None:
            # The answer to the last request has been waiting since, and makes room for the next.
            self._receive(self._process, now_ns)
        if self._process is None and self._present and now_ns >= self._start_ns:
            self._start(now_ns)
        process = self._process
        if process is None or self._asked_ns or self._ending:
            return
        if self._again_ns and now_ns >= self._again_ns:
            # A new process starts the library anew: no handle of a lost GPU is ever used again.
            self._again_ns = 0
            self._avoided.clear()
            self._ending = True
            self._asked_ns = now_ns
            process.finish()
            return
        process.ask()
        self._asked_ns = now_ns

    def read(self, now_ns: int) -> tuple[int, Texts] | None:
        """As in Source. Without an answer for long, only how long."""
        if self._process is not None:
            self._receive(self._process, now_ns)
            self._watch(now_ns)
        reading, self._reading = self._reading, None
        if reading is not None:
            time_ns, values = reading
            return time_ns, self._texts(values, _FRESH)
        if self._waits() and now_ns - self._answered_ns >= self._patience.late:
            return now_ns, self._texts(b"", struct.pack("d", (now_ns - self._answered_ns) / SECOND_NS))
        return None

    def idle(self) -> bool:
        """As in Source."""
        return self._look_ns > 0 and (not self._present or (self._down is not None and self._down.absent))

    def problems(self, now_ns: int, hung_ns: int) -> list[Problem]:
        """As in Source."""
        found = [Problem(self._name, gpu, "failing", reason) for gpu, reason in self._roster.reasons.items()]
        overdue = self._process is not None and self._asked_ns > 0 and now_ns - self._asked_ns >= hung_ns
        if self._hung or (overdue and self._works()):
            # Until an answer comes, even if the process that did not give it is gone.
            waited = (now_ns - self._answered_ns) / SECOND_NS
            suspect = self._suspect or (self._process.asks() if self._process is not None else "")
            whose = f" of {suspect}" if suspect else ""
            found.append(Problem(self._name, "NVIDIA driver", "hung", f"no answer{whose} for {waited:.1f} s"))
        elif overdue:
            waited = (now_ns - self._started_ns) / SECOND_NS
            found.append(Problem(self._name, "NVML", "missing", f"{STARTING} after {waited:.1f} s"))
        if self._leftover is not None:
            reason = f"process {self._leftover.pid} hangs in the driver and cannot be ended"
            found.append(Problem(self._name, f"process {self._leftover.pid}", "hung", reason))
        if self._down is not None:
            found.append(Problem(self._name, "NVML", "missing" if self._down.absent else "failing", self._down.reason))
        elif self._crash:
            found.append(Problem(self._name, "process", "failing", self._crash))
        elif self._refused:
            found.append(Problem(self._name, "process", "failing", self._refused))
        elif not self._present and self._look_ns:
            found.append(Problem(self._name, "NVML", "missing", "no NVIDIA GPU and no driver on this machine"))
        return found

    def failed(self, reason: str, now_ns: int) -> None:
        """As in Source."""
        self.errors += 1
        self._refused = reason

    def understood(self) -> None:
        """As in Source."""
        self._refused = ""

    def cpu_s(self) -> float:
        """Processor time of all processes so far, s."""
        return self._ended_s + sum(held.cpu_s() for held in (self._process, self._leftover) if held is not None)

    def close(self) -> None:
        """As in Source."""
        for process in (self._process, self._leftover):
            if process is not None:
                self._ended_s += process.cpu_s()
                process.end()
        self._process = self._leftover = None

    def _look(self, now_ns: int) -> None:
        """What is on the bus, and whether a process that was left behind is gone."""
        self._look_ns = now_ns + self._patience.look
        found = self._bus.gpus()
        if found != self._on_bus and self._process is not None:
            self._again_ns = now_ns
        self._on_bus = found
        self._present = bool(found) or library(self._host.settings.nvml)
        if self._leftover is not None and self._leftover.ended() is not None:
            self._ended_s += self._leftover.cpu_s()
            self._leftover.close()
            self._leftover = None

    def _start(self, now_ns: int) -> None:
        names = (f"gpu{index}" for index in range(MOST_GPUS))
        unwanted = [name for name in names if name in self._avoided or not self._host.wanted("gpu", name)]
        settings = self._host.settings
        orders = Orders(
            settings.nvml, self._host.gpus.by_uuid, tuple(unwanted), os.getpid(), realtime=settings.realtime
        )
        try:
            self._process = self._spawn(orders)
        except OSError as error:
            self._crashed(f"the process that reads GPUs does not start: {error.strerror or error}", now_ns)
            return
        self._frames = Frames()
        self._started_ns = now_ns
        self._answered_ns = self._answered_ns or now_ns
        self._asked_ns = self._killed_ns = 0
        self._ending = False

    def _receive(self, process: Held, now_ns: int) -> None:
        chunk = process.receive()
        if chunk is None:
            self._ended(process, now_ns)
            return
        try:
            for kind, payload in self._frames.feed(chunk):
                self._hear(kind, payload, now_ns)
        except (ValueError, struct.error) as error:
            # What follows cannot be told apart any more.
            log.warning("gpu: %s", error)
            process.kill()
            self._frames = Frames()

    def _hear(self, kind: int, payload: bytes, now_ns: int) -> None:
        if kind == VALUES:
            (time_ns,) = TIME.unpack_from(payload)
            self._reading = time_ns, payload[TIME.size :]
            self._answered(now_ns)
            return
        said = heard(kind, payload)
        match said:
            case Hello():
                self._hello = payload
                self._down = None
                self._roster.arrived(said, self._on_bus, self._avoided)
                self._plan(now_ns)
            case Lost():
                self._roster.lost(said.name, said.reason)
                self._plan(now_ns)
            case Xid():
                self._roster.xid(said)
            case Down():
                if said != self._down:
                    log.log(logging.INFO if said.absent else logging.WARNING, "gpu: %s", said.reason)
                self._down = said
                self._roster.down()
                self._host.gpus.learn_driver(self._host.roots["proc"])
                self.errors += not said.absent
                self._crash = ""
                self._settle(now_ns)

    def _plan(self, now_ns: int) -> None:
        """Try again later what is not there now."""
        if not self._roster.incomplete:
            self._attempts.reset()
            self._again_ns = 0
        elif not self._again_ns:
            self._again_ns = now_ns + self._attempts.pause()

    def _answered(self, now_ns: int) -> None:
        if self._crash:
            away = (now_ns - self._answered_ns) / SECOND_NS
            self._notice("source_back", f"GPUs can be read again, after {away:.1f} s", "info")
        self._crash = ""
        self._settle(now_ns)
        if now_ns - self._started_ns >= self._patience.steady:
            self._crashes.reset()
            self._blame.clear()

    def _settle(self, now_ns: int) -> None:
        """The process has answered, whatever it was."""
        self._hung = False
        self._suspect = ""
        self._asked_ns = 0
        self._answered_ns = now_ns

    def _waits(self) -> bool:
        """Whether an answer is overdue, rather than nothing to be read."""
        return bool(self._crash) or self._hung or (self._asked_ns > 0 and self._down is None)

    def _works(self) -> bool:
        """Whether the process has answered before."""
        return self._answered_ns > self._started_ns

    def _watch(self, now_ns: int) -> None:
        """A process that does not answer is reported, much later killed, and much later again left alone."""
        if self._process is None or not self._asked_ns:
            return
        waited = now_ns - self._asked_ns
        if waited >= (self._patience.hung if self._works() else self._patience.starting) and not self._hung:
            self._hung = True
            self._suspect = self._process.asks()
            self._host.gpus.learn_driver(self._host.roots["proc"])
            self.errors += 1
        if waited >= self._patience.kill and not self._killed_ns:
            log.warning("gpu: killing process %d, which has not answered for %.0f s", self._process.pid, waited * 1e-9)
            self._process.kill()
            self._killed_ns = now_ns
        elif self._killed_ns and now_ns - self._killed_ns >= self._patience.leave and self._leftover is None:
            log.warning("gpu: process %d hangs in the driver for good: starting another one", self._process.pid)
            self._leftover, self._process = self._process, None
            self._start_ns = now_ns

    def _ended(self, process: Held, now_ns: int) -> None:
        how = process.ended()
        if how is None:
            # Its pipe is closed, its exit is on the way.
            self._asked_ns = self._asked_ns or now_ns
            return
        suspect = process.asks()
        self._ended_s += process.cpu_s()
        process.close()
        self._process = None
        self._asked_ns = 0
        if self._killed_ns and self._avoid(suspect, "a call to it does not return", now_ns):
            self._start_ns = now_ns + self._crashes.pause()
        elif self._killed_ns or (self._down is not None and not how):
            self._start_ns = now_ns + self._attempts.pause()
        elif self._ending and not how:
            self._start_ns = now_ns
        else:
            reason = f"the process that reads GPUs {how or 'ended'}{f' while it asked {suspect}' if suspect else ''}"
            self._blame[suspect] = self._blame.get(suspect, 0) + 1
            if self._blame[suspect] >= TRIALS:
                self._avoid(suspect, reason, now_ns)
            self._crashed(reason, now_ns)

    def _avoid(self, name: str, reason: str, now_ns: int) -> bool:
        """Leave a GPU out for a while, for the sake of the others; False if it is not known which."""
        if not name:
            return False
        self._avoided.add(name)
        self._blame[name] = TRIALS
        self._roster.lost(name, reason)
        self._plan(now_ns)
        return True

    def _crashed(self, reason: str, now_ns: int) -> None:
        pause = self._crashes.pause()
        self._start_ns = now_ns + pause
        self.errors += 1
        log.warning("gpu: %s; the next start is in %.0f s", reason, pause / SECOND_NS)
        if not self._crash:
            self._notice("source_hung", reason)
        self._crash = reason

    def _notice(self, kind: str, message: str, severity: str = "warning") -> None:
        self._host.notices.add(kind, "gpu", message, severity=severity, source="nvml")

    def _texts(self, values: bytes, stale: bytes) -> Mapping[str, bytes]:
        return {HELLO_KEY: self._hello, VALUES_KEY: values, STATE_KEY: self._roster.state, STALE_KEY: stale}
