"""The frame around the collectors: reads them on time, survives their failures, makes telemetry of what they say.

Texts are only read and kept at first, each with the monotonic time of its reading, and parsed ten at a time: in one go
the processor's caches are warm, which halves what parsing costs at a sample every 100 ms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.collector import Collector, Layout, ParseError, Parser
from producers.rates import Floats, Rates, round_mantissa
from producers.reading import Host, Problem, Source, Texts
from producers.source import HUNG_NS, InlineSource, ThreadSource, natural
from schemas.catalogue import Metric, catalogue
from schemas.records import Telemetry

log = logging.getLogger(__name__)

Matrix = NDArray[np.float32]
NS: Final = 1e-9
TOGETHER: Final = 10


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends: host name, session (new at each start), version of the agent."""

    host: str
    session: str
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """A metric's instances in a reading, and its columns once they are ordered by metric."""

    metric: Metric
    instances: tuple[str, ...]
    columns: slice


@dataclass(frozen=True, slots=True)
class Plan:
    """How the values of a layout become matrices: their order by metric, which of them are counters, the segments."""

    order: NDArray[np.intp]
    counters: NDArray[np.bool_]
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Values of one metric in a batch: (count, instances), NaN where nothing was read."""

    metric: Metric
    instances: tuple[str, ...]
    values: Matrix


@dataclass(slots=True)
class Feed:
    """A collector at work."""

    collector: Collector
    source: Source
    parser: Parser
    rates: Rates
    every_ms: int
    slot: int = -1
    texts: Texts = field(default_factory=dict)
    values: tuple[Layout, list[float]] | None = None
    readings: list[tuple[int, int, Texts]] = field(default_factory=list)
    plans: dict[Layout, Plan] = field(default_factory=dict)
    runs: list[tuple[Layout, list[int], list[int], list[list[float]]]] = field(default_factory=list)
    refused: str = ""
    flaws: int = 0
    notes: tuple[str, ...] = ()

    def digest(self) -> None:
        """Parse the texts read so far into runs of one layout: rows, times and values."""
        for row, time_ns, texts in self.readings:
            if self.values is None or texts != self.texts:
                try:
                    self.values = self.parser(texts)
                except Exception as error:
                    # Whatever a parser makes of a text must not stop the others.
                    self.flaws += 1
                    self.values = None
                    self.refused = str(error) if isinstance(error, ParseError) else f"{type(error).__name__}: {error}"
                    continue
                self.texts = texts
            layout, values = self.values
            if layout.flaws:
                self.flaws += 1
            if not self.runs or self.runs[-1][0] is not layout:
                self.runs.append((layout, [], [], []))
            _, rows, times, cells = self.runs[-1]
            rows.append(row)
            times.append(time_ns)
            cells.append(values)
        self.readings.clear()


class Frame:
    """All collectors of an agent.

    host         what sources may know of the machine
    every        time between readings of a collector, ms, by name, where it is not the collector's own
    may_block    collectors to be treated as ones that may block, by name
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
        may_block: frozenset[str] = frozenset(),
        lost: Callable[[str], int] = lambda subsystem: 0,
    ) -> None:
        self.period_ms = period_ms
        self.missed = 0
        self._identity = identity
        self._monotonic = host.clock
        self._lost = lost
        self._metrics = catalogue()
        self._sequences: dict[str, int] = {}
        self._unions: dict[tuple[tuple[str, ...], ...], tuple[str, ...]] = {}
        self._feeds = [
            Feed(
                collector,
                _source(collector, host, may_block),
                collector.parser(host.wanted),
                Rates(collector, self._metrics),
                max(every.get(collector.name, collector.every_ms), period_ms),
            )
            for collector in collectors
        ]

    def sample(self, tick: int, row: int) -> None:
        """Read what is due at `tick` (counted in periods) into `row` of the batch."""
        now_ns = self._monotonic()
        time_ms = tick * self.period_ms
        for feed in self._feeds:
            slot = time_ms // feed.every_ms
            try:
                if slot != feed.slot:
                    feed.slot = slot
                    feed.source.request(now_ns)
                elif not feed.source.later:
                    continue
                if (reading := feed.source.read(now_ns)) is not None:
                    feed.readings.append((row, *reading))
            except Exception as error:
                # No source may stop the others, whatever it comes up with.
                feed.source.failed(f"{type(error).__name__}: {error}", now_ns)
            if len(feed.readings) >= TOGETHER:
                feed.digest()

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
                continue
            try:
                found = self._pieces(feed, count)
            except Exception as error:
                log.exception("%s: cannot be used", feed.collector.name)
                feed.source.failed(f"{type(error).__name__}: {error}", self._monotonic())
                continue
            finally:
                feed.runs, feed.refused = [], ""
            pieces += found
            if dimension := feed.collector.defines:
                names = tuple(piece.instances for piece in found if piece.metric.dimension == dimension)
                defined[dimension] = self._union(tuple(dict.fromkeys(names)))
        return pieces, defined

    def waits(self) -> bool:
        """Whether some source on this machine answers later than it is asked."""
        return any(feed.source.later and not feed.source.idle() for feed in self._feeds)

    def problems(self, hung_ns: int = HUNG_NS) -> list[Problem]:
        """What is wrong with any source at the moment; one that does not answer for `hung_ns` is hung."""
        now_ns = self._monotonic()
        return [problem for feed in self._feeds for problem in feed.source.problems(now_ns, hung_ns)]

    def errors(self) -> dict[str, int]:
        """Failures of each source so far: reads that failed and texts that could not be used, whole or in part."""
        return {feed.collector.name: total for feed in self._feeds if (total := feed.source.errors + feed.flaws)}

    def notes(self) -> list[str]:
        """What a person should know of the sources."""
        return [f"{feed.collector.name}: {note}" for feed in self._feeds for note in feed.notes]

    def close(self) -> None:
        """Give up all descriptors and threads."""
        for feed in self._feeds:
            feed.source.close()

    def _pieces(self, feed: Feed, count: int) -> list[Piece]:
        feed.digest()
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
        plan = feed.plans.get(layout)
        if plan is None:
            # Layouts change rarely: the last one is worth keeping, no more.
            feed.plans = {layout: self._plan(layout)}
            plan = feed.plans[layout]
        values = values[:, plan.order]
        narrow = values.astype(np.float32)
        narrow[:, plan.counters] = round_mantissa(narrow[:, plan.counters])
        pieces = [
            Piece(segment.metric, segment.instances, matrix)
            for segment, matrix in _spread(plan.segments, rows, narrow, count)
        ]
        if feed.collector.derive is not None:
            by_name = {segment.metric.name: segment for segment in plan.segments}
            derived = feed.collector.derive({name: values[:, part.columns] for name, part in by_name.items()})
            for name, matrix in derived.items():
                metric = self._metrics[name]
                like = next(part for part in plan.segments if part.metric.dimension == metric.dimension)
                part = Segment(metric, like.instances, slice(None))
                for _, full in _spread((part,), rows, matrix.astype(np.float32), count):
                    pieces.append(Piece(metric, like.instances, full))
        return pieces

    def _plan(self, layout: Layout) -> Plan:
        columns: dict[str, list[int]] = {}
        for index, (name, _) in enumerate(layout.channels):
            columns.setdefault(name, []).append(index)
        order: list[int] = []
        segments: list[Segment] = []
        counters: list[bool] = []
        for name, indices in columns.items():
            metric = self._metrics[name]
            instances = tuple(layout.channels[index][1] for index in indices)
            segments.append(Segment(metric, instances, slice(len(order), len(order) + len(indices))))
            order += indices
            counters += [metric.kind == "counter"] * len(indices)
        return Plan(np.array(order, np.intp), np.array(counters, bool), tuple(segments))

    def _records(
        self, pieces: list[Piece], defined: Mapping[str, tuple[str, ...]], start_ns: int, count: int
    ) -> list[Telemetry]:
        seen: dict[tuple[str, str], dict[tuple[str, ...], None]] = {}
        for piece in pieces:
            seen.setdefault((piece.metric.subsystem, piece.metric.dimension), {})[piece.instances] = None
        names = {key: defined.get(key[1]) or self._union(tuple(found)) for key, found in seen.items()}
        metrics: dict[str, dict[str, Matrix]] = {}
        for piece in pieces:
            metric = piece.metric
            wanted = names[metric.subsystem, metric.dimension]
            matrix = piece.values if piece.instances == wanted else _select(piece, wanted)
            found = metrics.setdefault(metric.subsystem, {})
            if metric.name in found:
                matrix = np.where(np.isnan(matrix), found[metric.name], matrix)
            found[metric.name] = matrix
        records = []
        for subsystem, found in metrics.items():
            sequence = self._sequences.get(subsystem, 0)
            self._sequences[subsystem] = sequence + 1
            records.append(
                Telemetry(
                    subsystem=subsystem,
                    host=self._identity.host,
                    session=self._identity.session,
                    sequence=sequence,
                    start_ns=start_ns,
                    period_ms=self.period_ms,
                    count=count,
                    instances={dimension: wanted for (owner, dimension), wanted in names.items() if owner == subsystem},
                    metrics=found,
                    dropped=self.missed + self._lost(subsystem),
                    agent=self._identity.agent,
                )
            )
        return records

    def _union(self, found: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
        """All names in `found`, numbers in them in numeric order."""
        union = self._unions.get(found)
        if union is None:
            if len(self._unions) > 100:
                self._unions.clear()
            names = {name for group in found for name in group}
            union = self._unions[found] = tuple(sorted(names, key=natural))
        return union


def _source(collector: Collector, host: Host, may_block: frozenset[str]) -> Source:
    if collector.source is not None:
        return collector.source(collector, host)
    if collector.may_block or collector.name in may_block:
        return ThreadSource(collector, host)
    return InlineSource(collector, host)


def _spread(segments: Sequence[Segment], rows: list[int], values: Matrix, count: int) -> list[tuple[Segment, Matrix]]:
    """Columns of each segment, in matrices of `count` rows."""
    if rows != list(range(count)):
        full = np.full((count, values.shape[1]), np.nan, np.float32)
        full[rows] = values
        values = full
    return [(segment, values[:, segment.columns]) for segment in segments]


def _select(piece: Piece, wanted: tuple[str, ...]) -> Matrix:
    """Values of `piece` in the columns of `wanted`; NaN for instances that it lacks."""
    columns = {name: column for column, name in enumerate(piece.instances)}
    known = [(index, columns[name]) for index, name in enumerate(wanted) if name in columns]
    matrix = np.full((len(piece.values), len(wanted)), np.nan, np.float32)
    to, source = np.array(known, np.intp).reshape(-1, 2).T
    matrix[:, to] = piece.values[:, source]
    return matrix
