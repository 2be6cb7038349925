"""The frame around the collectors: reads them on time, survives their failures, makes telemetry of what they say.

Texts are only read and kept at first, each with the monotonic time of its reading, and parsed ten at a time: in one go
the processor's caches are warm, which halves what parsing costs at a sample every 100 ms.
"""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from producers.collector import Collector, Layout
from producers.feed import NORMAL, SHED, Feed
from producers.matrices import Piece, Segment, Sheets, plan, spread
from producers.rates import Floats, Rates, round_mantissa
from producers.reading import Host, Problem, Source, Texts
from producers.source import HUNG_NS, RESCAN_NS, InlineSource, ThreadSource
from schemas.catalogue import SUBSYSTEMS, catalogue
from schemas.records import Telemetry

log = logging.getLogger(__name__)

NS: Final = 1e-9
TOGETHER: Final = 10
SLOW_NS: Final = 200_000_000
"""A reading that blocks the loop for so long is the last one that does."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends: host name, session (new at each start), version of the agent."""

    host: str
    session: str
    agent: str = ""


class Superseded(Exception):
    """Raised in a thread whose reading took so long that the frame went on without it: it is to call `serve`."""

    def __init__(self, source: ThreadSource, reading: tuple[int, Texts] | None) -> None:
        super().__init__("a reading took too long")
        self._source = source
        self._reading = reading

    def serve(self) -> None:
        """Be the thread of the source that was too slow; returns when that is closed."""
        self._source.serve(self._reading)


class Frame:
    """All collectors of an agent.

    host         what sources may know of the machine
    every        time between readings of a collector, ms, by name, where it is not the collector's own
    lost         samples of a subsystem that were taken and then lost, such as those a full queue refused
    """

    def __init__(
        self,
        collectors: Sequence[Collector],
        host: Host,
        period_ms: int,
        identity: Identity,
        *,
        every: Mapping[str, int] = MappingProxyType({}),
        lost: Callable[[str], int] = lambda subsystem: 0,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.host = host
        self.period_ms = period_ms
        self.missed = 0
        self.identity = identity
        self._monotonic = host.clock
        self._cpu_clock = cpu_clock
        self._lost = lost
        self._metrics = catalogue()
        self._sequences: dict[str, int] = {}
        self._sheets = Sheets()
        self._hung: dict[tuple[str, str], Feed] = {}
        # What the loop reads at the moment. Whoever takes it out, the loop or `abandon`, has the say.
        self._under_way: list[Feed] = []
        self._lock = threading.Lock()
        self._feeds = [
            Feed(
                collector,
                _source(collector, host),
                collector.parser(host.wanted),
                Rates(collector, self._metrics),
                every.get(collector.name, collector.every_ms),
                cpu_clock,
            )
            for collector in collectors
        ]
        self._by_name = {feed.name: feed for feed in self._feeds}
        self._by_metric = {metric: feed for feed in reversed(self._feeds) for metric in feed.collector.metrics}
        self.pace(period_ms)

    def pace(self, period_ms: int) -> None:
        """Go over to another sampling period: ticks and rows are counted in it from now on."""
        self.period_ms = self.host.vitals.period_ms = period_ms
        for feed in self._feeds:
            feed.pace(period_ms)

    def sample(self, tick: int, row: int) -> None:
        """Read what is due at `tick` (counted in periods) into `row` of the batch.

        Raises Superseded when `abandon` was called meanwhile.
        """
        began_ns = before_ns = self._monotonic()
        switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        time_ms = tick * self.period_ms
        under_way = self._under_way
        for feed in self._feeds:
            source = feed.source
            slot = time_ms // feed.every_ms
            due = slot != feed.slot
            if not (due or source.later) or feed.level == SHED or feed.asleep_ns > before_ns:
                continue
            reading = None
            under_way.append(feed)
            try:
                if due:
                    feed.slot = slot
                    reading = self._ask(feed, before_ns)
                else:
                    reading = source.read(before_ns)
            except Exception as error:
                # No source may stop the others, whatever it comes up with.
                source.failed(f"{type(error).__name__}: {error}", before_ns)
            try:
                under_way.pop()
            except IndexError:
                raise self._superseded(feed, reading) from None
            if reading is None:
                if source.idle() and not self._troubled(source, before_ns):
                    # Nothing of its kind on this machine: it is looked for again when other files are.
                    feed.asleep_ns = before_ns + RESCAN_NS
            else:
                feed.readings.append((row, *reading))
                if len(feed.readings) >= TOGETHER:
                    feed.digest()
            if not source.later:
                # What reads files itself has just looked at the clock.
                now_ns = reading[0] if reading is not None and type(source) is InlineSource else self._monotonic()
                if now_ns - before_ns > SLOW_NS:
                    self._slow(feed, now_ns - before_ns, switches)
                before_ns = now_ns
        self.host.vitals.sample_ms = (self._monotonic() - began_ns) * 1e-6

    @staticmethod
    def _troubled(source: Source, now_ns: int) -> bool:
        """Whether anything is wrong with a source but that it is not there."""
        return any(problem.kind != "missing" for problem in source.problems(now_ns, HUNG_NS))

    def _ask(self, feed: Feed, now_ns: int) -> tuple[int, Texts] | None:
        """Request a reading, and take what there is; one in so many is measured, and stands for the others."""
        feed.turn -= 1
        if feed.turn >= 0:
            feed.source.request(now_ns)
            return feed.source.read(now_ns)
        feed.turn = feed.stride - 1
        started = self._cpu_clock()
        feed.source.request(now_ns)
        reading = feed.source.read(now_ns)
        feed.cost_ns += (self._cpu_clock() - started) * feed.stride
        return reading

    def abandon(self, since_ns: int) -> str:
        """Leave what the loop has been reading since `since_ns` to the loop's thread, which is stuck in it, so that
        another thread can go on; the name of the collector, or nothing if the loop is not stuck in a reading.

        To be called by another thread. The stuck one finds Superseded raised when it comes back.
        """
        with self._lock:
            try:
                feed = self._under_way.pop()
            except IndexError:
                return ""
            self._under_way = []
            if not isinstance(feed.source, ThreadSource):
                feed.replace(ThreadSource(feed.collector, self.host, feed.source, since_ns))
            return feed.name

    def _superseded(self, feed: Feed, reading: tuple[int, Texts] | None) -> Superseded:
        with self._lock:
            assert isinstance(feed.source, ThreadSource)
            return Superseded(feed.source, reading)

    def _slow(self, feed: Feed, took_ns: int, switches: int) -> None:
        """Give a source that blocked the loop a thread of its own."""
        if resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw == switches:
            # It never waited: the processor was taken away, or it had that much to do.
            return
        log.warning("%s: a reading took %.0f ms: from now on it has a thread of its own", feed.name, took_ns * 1e-6)
        feed.replace(ThreadSource(feed.collector, self.host, feed.source))

    def cut(self, start_ns: int, count: int) -> list[Telemetry]:
        """End the batch of `count` rows that began at `start_ns`: one record for each subsystem with any metric."""
        pieces, defined = self._gather(count)
        return self._records(pieces, defined, start_ns, count)

    def prime(self, count: int) -> None:
        """End the batch, and only remember what rates are made from."""
        self._gather(count)

    def _gather(self, count: int) -> tuple[list[Piece], dict[str, tuple[str, ...]]]:
        """Values of the batch, and the instances of dimensions that a collector defines."""
        pieces: list[Piece] = []
        defined: dict[str, tuple[str, ...]] = {}
        for feed in self._feeds:
            if not (feed.readings or feed.runs or feed.refused):
                pieces += feed.told_again(self._monotonic(), count)
                continue
            try:
                feed.digest()
                started = self._cpu_clock()
                found = self._pieces(feed, count)
                if feed.every_ms > count * self.period_ms:
                    feed.hold(found, count)
                feed.cost_ns += self._cpu_clock() - started
            except Exception as error:
                log.exception("%s: cannot be used", feed.name)
                feed.source.failed(f"{type(error).__name__}: {error}", self._monotonic())
                continue
            finally:
                feed.runs, feed.refused = [], ""
            pieces += found
            if dimension := feed.collector.defines:
                names = tuple(piece.instances for piece in found if piece.metric.dimension == dimension)
                defined[dimension] = self._sheets.union(tuple(dict.fromkeys(names)))
        self._take_stock()
        return pieces, defined

    def _take_stock(self) -> None:
        """Bring the vitals up to date, and take notice of sources that hang and that answer again."""
        vitals = self.host.vitals
        vitals.dropped = self.missed + max(self._lost(subsystem) for subsystem in SUBSYSTEMS)
        now_ns = self._monotonic()
        hung: dict[tuple[str, str], Feed] = {}
        failing = 0
        for feed in self._feeds:
            for found in () if feed.level == SHED else feed.source.problems(now_ns, HUNG_NS):
                failing += found.kind == "failing"
                if found.kind == "hung":
                    hung[found.collector, found.path] = feed
                    if (found.collector, found.path) not in self._hung:
                        self._tell("source_hung", feed, found.path, f"does not answer: {found.reason}")
        for (name, path), feed in self._hung.items():
            if (name, path) not in hung and feed.level != SHED:
                self._tell("source_back", feed, path, "answers again")
        self._hung = hung
        vitals.failing, vitals.hung = failing, len(hung)

    def _tell(self, kind: str, feed: Feed, path: str, what: str) -> None:
        text = f"{feed.name}: {path} {what}"
        log.warning(text)
        severity = "info" if kind == "source_back" else "warning"
        self.host.notices.add(kind, self.subsystem(feed.name), text, severity=severity, instance=path)

    def subsystem(self, name: str) -> str:
        """Subsystem of the metrics of a collector."""
        metrics = self._by_name[name].collector.metrics
        return self._metrics[metrics[0]].subsystem if metrics else SUBSYSTEMS[0]

    def costs(self) -> dict[str, float]:
        """Processor time of each collector so far, s: reading, parsing, making rates. Measured now and then, so an
        estimate.
        """
        return {feed.name: feed.cpu_s() for feed in self._feeds}

    def widths(self) -> dict[str, int]:
        """How many values each collector gives at present."""
        return {feed.name: len(feed.values[0].channels) if feed.values else 0 for feed in self._feeds}

    def levels(self) -> dict[str, int]:
        """Level of each collector: NORMAL, SLOWED or SHED."""
        return {feed.name: feed.level for feed in self._feeds}

    def every(self) -> dict[str, int]:
        """Time between readings of each collector at present, ms."""
        return {feed.name: feed.every_ms for feed in self._feeds}

    def throttle(self, name: str, level: int) -> None:
        """Bring a collector to a level; what is shed gives up its files, threads and processes."""
        feed = self._by_name[name]
        if level == SHED != feed.level:
            feed.source.close()
        elif feed.level == SHED != level:
            feed.replace(_source(feed.collector, self.host))
        feed.level = level
        feed.pace(self.period_ms)
        self.host.vitals.shed = sum(feed.level == SHED for feed in self._feeds)

    def latest(self, metric: str) -> tuple[int, Layout, list[float]] | None:
        """Monotonic time, layout and raw values of the newest reading of the collector that fills `metric`."""
        feed = self._by_metric.get(metric)
        if feed is None or feed.level != NORMAL:
            return None
        if feed.readings:
            feed.digest()
        return None if feed.values is None else (feed.time_ns, *feed.values)

    def waits(self) -> bool:
        """Whether some source on this machine answers later than it is asked."""
        return any(feed.source.later and not feed.source.idle() for feed in self._feeds)

    def problems(self, hung_ns: int = HUNG_NS) -> list[Problem]:
        """What is wrong with any source at the moment; one that does not answer for `hung_ns` is hung."""
        now_ns = self._monotonic()
        working = [feed for feed in self._feeds if feed.level != SHED]
        return [problem for feed in working for problem in feed.source.problems(now_ns, hung_ns)]

    def errors(self) -> dict[str, int]:
        """Failures of each source so far: reads that failed, texts that could not be used, whole or in part, and
        values beyond belief."""
        return {feed.name: total for feed in self._feeds if (total := feed.errors)}

    def notes(self) -> list[str]:
        """What a person should know of the sources."""
        return [f"{feed.name}: {note}" for feed in self._feeds for note in feed.notes]

    def close(self) -> None:
        """Give up all descriptors and threads."""
        for feed in self._feeds:
            feed.source.close()

    def _pieces(self, feed: Feed, count: int) -> list[Piece]:
        runs, refused = feed.runs, feed.refused
        if refused and not runs:
            feed.source.failed(refused, self._monotonic())
        else:
            feed.source.understood()
        pieces: list[Piece] = []
        for layout, rows, times, cells in runs:
            feed.notes = (*layout.notes, *layout.flaws)
            if layout.channels:
                times_s = np.array(times, float) * NS
                pieces += self._run(feed, layout, rows, feed.rates(layout, times_s, np.array(cells, float)), count)
        return pieces

    def _run(self, feed: Feed, layout: Layout, rows: list[int], values: Floats, count: int) -> list[Piece]:
        """Pieces of the values of consecutive readings of one layout."""
        order = feed.plans.get(layout)
        if order is None:
            # Layouts change rarely: the last one is worth keeping, no more.
            feed.plans = {layout: plan(layout, self._metrics)}
            order = feed.plans[layout]
        values = values[:, order.order]
        narrow = values.astype(np.float32)
        narrow[:, order.counters] = round_mantissa(narrow[:, order.counters])
        pieces = [
            Piece(segment.metric, segment.instances, matrix)
            for segment, matrix in spread(order.segments, rows, narrow, count)
        ]
        if feed.collector.derive is not None:
            by_name = {segment.metric.name: segment for segment in order.segments}
            derived = feed.collector.derive({name: values[:, part.columns] for name, part in by_name.items()})
            for name, matrix in derived.items():
                metric = self._metrics[name]
                like = next(part for part in order.segments if part.metric.dimension == metric.dimension)
                part = Segment(metric, like.instances, slice(None))
                for _, full in spread((part,), rows, matrix.astype(np.float32), count):
                    pieces.append(Piece(metric, like.instances, full))
        return pieces

    def _records(
        self, pieces: list[Piece], defined: Mapping[str, tuple[str, ...]], start_ns: int, count: int
    ) -> list[Telemetry]:
        records = []
        for subsystem, sheet in self._sheets(pieces, defined).items():
            sequence = self._sequences.get(subsystem, 0)
            self._sequences[subsystem] = sequence + 1
            records.append(
                Telemetry(
                    subsystem=subsystem,
                    host=self.identity.host,
                    session=self.identity.session,
                    sequence=sequence,
                    start_ns=start_ns,
                    period_ms=self.period_ms,
                    count=count,
                    instances=sheet.instances,
                    metrics=sheet.metrics,
                    dropped=self.missed + self._lost(subsystem),
                    agent=self.identity.agent,
                )
            )
        return records


def _source(collector: Collector, host: Host) -> Source:
    if collector.source is not None:
        return collector.source(collector, host)
    if collector.may_block or not host.served.isdisjoint(collector.files):
        return ThreadSource(collector, host)
    return InlineSource(collector, host)
