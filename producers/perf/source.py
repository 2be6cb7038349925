"""The source of the counters: opens groups for each CPU that is online, reads them, notices when CPUs come and go."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from producers.collector import Collector
from producers.files import KeptFile
from producers.perf.counts import OF_CORES, Counts, Opened
from producers.perf.events import Group, groups
from producers.perf.kernel import ABSENT, EXHAUSTED, Event, Kernel, Linux, explain
from producers.perf.pmu import cpu_list
from producers.reading import Host, Problem, Source, Texts
from producers.source import LONGEST_BACKOFF_NS, RESCAN_NS, InlineSource, ThreadSource

log = logging.getLogger(__name__)

CHANNELS: Final = "channels"
COUNTS: Final = "counts"
NOTES: Final = "notes"
# How much of the process's descriptors may be taken: the rest is for files and connections.
SHARE: Final = 0.5
NO_PMU: Final = "the processor's own counters cannot be used, as is usual in a virtual machine"
STARVING: Final = (
    "others hold the counters all the time (the kernel's watchdog holds one unless kernel.nmi_watchdog is 0)"
)


@dataclass(slots=True)
class Attempt:
    """What came of a group: the parts that count, and errors by metric."""

    parts: list[Opened] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)


class PerfSource(InlineSource):
    """Counters of this machine.

    Its texts are `channels` (lines of metric, space, instance), `counts` (a double a channel: sums since the counter
    was opened, or gauges) and `notes` (lines for people). A channel whose counter was opened anew is missing in one
    reading at least, so that no rate spans the gap.
    """

    def __init__(self, collector: Collector, host: Host, kernel: Kernel) -> None:
        super().__init__(collector, host)
        self._kernel = kernel
        self._online = KeptFile(f"{self._roots['sys']}/devices/system/cpu/online")
        self._online_text = b""
        self._cpus: tuple[int, ...] = ()
        self._attempts: dict[Group, Attempt] = {}
        self._counts = Counts(())
        self._channels = self._notes = b""
        self._flaws: list[str] = []
        self._reason = ""
        self._settle_ns = 0
        self._taken = 0
        self._crowded = False

    def read(self, now_ns: int) -> tuple[int, Texts] | None:
        """As in Source."""
        if self._text.retry_ns > now_ns:
            return None
        self._look_who_is_online(now_ns)
        due = now_ns >= self._settle_ns
        if due and not self._counts.opened:
            self._settle(now_ns)
            due = False
        reading = self._sample(now_ns)
        if due or now_ns >= self._settle_ns:
            # After the reading, so that what is opened anew was missing from one.
            self._settle(now_ns)
        return reading

    def idle(self) -> bool:
        """As in Source."""
        return not self._counts.opened

    def problems(self, now_ns: int, hung_ns: int = 0) -> list[Problem]:
        """As in Source: that nothing can be counted, and why."""
        found = [entry for entry in (self._text,) if entry.kind]
        problems = [Problem(self.collector.name, entry.key, entry.kind, entry.reason) for entry in found]
        if self._reason:
            problems.append(Problem(self.collector.name, self.collector.files[0], "missing", self._reason))
        return problems

    def close(self) -> None:
        """As in Source."""
        self._online.close()
        for group in list(self._attempts):
            self._drop(group)
        self._counts = Counts(())

    def _look_who_is_online(self, now_ns: int) -> None:
        """Let go of CPUs that went, and see to it that those that came are opened."""
        try:
            text = self._online.read()
            cpus = cpu_list(text) if text != self._online_text else self._cpus
        except (OSError, ValueError) as error:
            if not self._counts.opened:
                self._reason = f"which CPUs are online cannot be read: {error}"
            return
        if text == self._online_text:
            return
        self._online_text, self._cpus = text, cpus
        for group in list(self._attempts):
            if group.cpu not in cpus:
                self._drop(group)
        self._arrange()
        self._settle_ns = now_ns

    def _sample(self, now_ns: int) -> tuple[int, Texts] | None:
        """Read all groups; what cannot be read, or stands still, is given up until the next settling."""
        words: dict[Opened, bytes] = {}
        failed: list[Opened] = []
        for part in self._counts.opened:
            try:
                text = self._kernel.read(part.descriptors[0], part.size)
                if len(text) != part.size:
                    raise OSError(errno.EIO, f"{len(text)} bytes instead of {part.size}")
            except OSError as error:
                log.info("%s of %s cannot be read: %s", part.events[0].metric, part.instance, error)
                failed.append(part)
                continue
            words[part] = text
        time_ns = self._clock()
        if failed:
            self._give_up(failed, now_ns)
        if not self._counts.opened:
            return None
        values, dead = self._counts(b"".join(words[part] for part in self._counts.opened))
        texts = {CHANNELS: self._channels, COUNTS: values.tobytes(), NOTES: self._notes}
        if dead:
            self._give_up(dead, now_ns)
        return time_ns, texts

    def _give_up(self, parts: Iterable[Opened], now_ns: int) -> None:
        """Close what does not count any more; a CPU that went and came back between two looks leaves such groups."""
        parts = frozenset(parts)
        self.errors += len(parts)
        lost = {group for group, attempt in self._attempts.items() if parts.intersection(attempt.parts)}
        for group in lost:
            self._drop(group)
        self._arrange()
        self._settle_ns = min(self._settle_ns, now_ns + RESCAN_NS)

    def _settle(self, now_ns: int) -> None:
        """Open what is wanted and not open; tried again after a minute, for permissions and modules may come."""
        self._settle_ns = now_ns + LONGEST_BACKOFF_NS
        if not self._cpus:
            return
        wanted, self._flaws = groups(self._roots, self._cpus)
        for group in self._attempts.keys() - set(wanted):
            self._drop(group)
        self._crowded = False
        for group in wanted:
            if group in self._attempts and self._attempts[group].parts:
                continue
            self._attempts[group] = self._open(group)
        self._arrange()
        self._explain()

    def _open(self, group: Group) -> Attempt:
        """Open the events of `group` one by one: one that fails takes no other with it."""
        attempt = Attempt()
        part: list[tuple[Event, int]] = []
        for event in group.events:
            try:
                try:
                    descriptor = self._open_one(event, group.cpu, part[0][1] if part else -1)
                except OSError as error:
                    if not part or error.errno != errno.EINVAL:
                        raise
                    # Perhaps it is only too much for one group on this processor.
                    descriptor = self._open_one(event, group.cpu, -1)
                    attempt.parts.append(_opened(group, part))
                    part = []
            except OSError as error:
                attempt.refused[event.metric] = error.errno or errno.EIO
                continue
            part.append((event, descriptor))
        if part:
            attempt.parts.append(_opened(group, part))
        return attempt

    def _open_one(self, event: Event, cpu: int, leader: int) -> int:
        """A descriptor, unless the process would come short of them. Raises OSError."""
        if self._crowded or self._taken >= SHARE * self._kernel.limit():
            self._crowded = True
            raise OSError(errno.EMFILE, "too few file descriptors")
        try:
            descriptor = self._kernel.open(event, cpu, leader)
        except OSError as error:
            self._crowded = error.errno in EXHAUSTED
            raise
        self._taken += 1
        return descriptor

    def _drop(self, group: Group) -> None:
        for part in self._attempts.pop(group).parts:
            # The leader goes last: it reads for the others.
            for descriptor in reversed(part.descriptors):
                self._kernel.close(descriptor)
            self._taken -= len(part.descriptors)

    def _arrange(self) -> None:
        """Make the sums fit the groups that are open."""
        opened = [part for attempt in self._attempts.values() for part in attempt.parts]
        self._counts = Counts(opened, self._counts)
        self._channels = "\n".join(f"{metric} {instance}" for metric, instance in self._counts.channels).encode()

    def _explain(self) -> None:
        """Say what is missing: a problem if that is all there is, else notes."""
        opened = self._counts.opened
        counted = {event.metric for part in opened for event in part.events}
        missing: dict[str, dict[str, None]] = {}
        paranoid = self._paranoid()
        for attempt in self._attempts.values():
            for metric, number in attempt.refused.items():
                no_pmu = number in ABSENT and metric.startswith(OF_CORES) and not any(part.core for part in opened)
                reason = NO_PMU if no_pmu else explain(number, paranoid)
                where = "on some CPUs " if metric in counted else ""
                missing.setdefault(f"{where}{reason}", {})[metric] = None
        if starving := {event.metric: None for part in self._counts.starving() for event in part.events}:
            missing[STARVING] = starving
        lines = [f"{reason}: no {', '.join(metrics)}" for reason, metrics in missing.items()] + self._flaws
        self._reason = "" if opened else "; ".join(lines) or "this machine counts nothing"
        self._notes = "\n".join(lines).encode()

    def _paranoid(self) -> str:
        try:
            return Path(self._roots["proc"], "sys/kernel/perf_event_paranoid").read_text().strip()
        except OSError:
            return ""


def perf_source(collector: Collector, host: Host) -> Source:
    """The counters of the machine that this process runs on.

    Read in a thread: to read another CPU's counters is to wait for that CPU's answer.
    """
    return ThreadSource(collector, host, PerfSource(collector, host, Linux()))


def _opened(group: Group, part: list[tuple[Event, int]]) -> Opened:
    events, descriptors = zip(*part, strict=True)
    return Opened(group.instance, events, descriptors, group.core)
