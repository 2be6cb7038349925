"""A change of work told apart from a fault, by hardware signals alone.

Work that changes moves much at once and allocates other amounts of memory: a job that starts or ends, another model. A
phase of the work, such as a checkpoint or an evaluation, moves much at once for a while, comes back in the same shape,
and goes. A fault that slows the work down moves much as well, but what it does to memory is nothing, and it seldom
goes without a word: most faults have metrics of their own that say so (errors, throttling, pressure, retransmissions).
A window in which one of those rises is never put down to the work.

While a change is learnt, what it moved in its first seconds is set aside, and the rest is judged as ever: a fault that
strikes meanwhile is still one.

So a window that the ensemble finds anomalous is a change when no metric in it speaks of a fault and
- allocations moved, and metrics of at least SUBSYSTEMS subsystems with them, or
- it trades work of one kind for work of another, as a phase does: a checkpoint writes instead of computing, an
  evaluation reads instead of sending; a fault that slows a host down makes it do more of nothing. Or
- it has the shape of a phase that came and went at least `phase_times` times, or
- what came lasts so long that it is learnt as the new normal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stream_processors.bursts import Bursts
from stream_processors.features import by_metric, feature_table
from stream_processors.looks import LOAD_WORDS, MOVED, SUBSYSTEMS, TRAFFIC_WORDS, Look
from stream_processors.scaling import USUAL
from stream_processors.seconds import Singles
from stream_processors.shapes import likest, packed, unpacked

ALIKE: Final = 0.75
"""Cosine of two shapes from which on they are one phase."""
PHASES: Final = 8
"""Of more, the one that was not seen for longest is forgotten."""
LONGEST_PHASE: Final = 120
"""Windows, or seconds; what goes on for longer is no phase."""
GOING_ON_S: Final = 3
"""A phase that was seen so long ago goes on with what looks like it."""
TAIL_S: Final = 30
"""For so long after a phase what it moved may still settle, such as dirty pages."""
REVIVED: Final = 1.25
"""What settles gets less: what moves so many times as much as it did before is something else."""
BACK: Final = 30
"""So many windows in a row that are normal to the old model mean that a change is gone again."""
AS_BEFORE: Final = 10
"""After so many what is strange is no change that goes on, unless memory says so."""

ADJUST_S: Final = 20
"""What a change of work moves within so many seconds is what it moves."""
LEARNS_S: Final = 120
SETTLES_S: Final = 60
"""For so long that is remembered, as new work takes some time to show all that it does; where it is still not learnt,
what it moves no longer is then forgotten by half in so many seconds.
"""
FRESH: Final = 2.0
"""What deviates so many times as much as is remembered is something else."""


@dataclass(slots=True, eq=False)
class Phase:
    """Something that comes and goes.

    shape  float32 (metrics,): mean of an episode, and the strongest since it is known
    times  how often it came
    last   second in which it was seen last
    begun  second in which it came last, 0 if that was taken for an anomaly
    left   least that still moved since it was seen last, as a sum over a shape
    """

    shape: Singles
    times: int
    last: int
    begun: int = 0
    left: float = np.inf

    def settles(self, shape: Singles, second: int) -> bool:
        """Whether a window that looks like `shape` is what is left of it."""
        moves = float(np.abs(shape).sum())
        if not self.begun or second - self.last > TAIL_S or moves > REVIVED * self.left:
            return False
        if moves > 0 and _contained(shape, self.shape) < ALIKE:
            return False
        self.left = min(self.left, moves)
        return True


@dataclass(slots=True)
class Regimes:
    """What is known of the work of one host.

    phases  that came and went
    why     why the host learns anew, in words; empty while it does not
    since   second from which on
    begun   second in which what is learnt anew began: later than `since` when memory was allocated in steps
    anchor  allocations then; None if it is not for them
    back    windows in a row that were as before
    moves   float32 (metrics,): by how much the change moves metrics, in scales
    moved   second of which that is
    edge    windows in a row that may be the beginning of a phase
    part    metrics that speak of faults and whose rise is a part of the change
    bursts  that come now and then
    """

    phase_times: int
    phases: list[Phase] = field(default_factory=list)
    why: str = ""
    since: int = 0
    begun: int = 0
    anchor: Singles | None = None
    back: int = 0
    moves: Singles | None = None
    moved: int = 0
    edge: int = 0
    part: frozenset[str] = frozenset()
    bursts: Bursts = field(default_factory=Bursts)
    _sizes: Singles | None = None
    _most: float = 0.0
    _strange: Singles | None = None  # sum of the shapes of the anomalous windows of what goes on
    _windows: int = 0
    _spoken: frozenset[str] = frozenset()  # words of them

    def hear(self, seen: Look, second: int) -> Look:
        """What an anomalous window from `second` on looks like without the words that are a part of the change."""
        if not seen.words:
            return seen
        begins = not self.why or second - self.begun <= ADJUST_S
        traffic = {word for word in seen.words if word.startswith(TRAFFIC_WORDS)}
        if begins and seen.allocated and len(seen.moved) >= SUBSYSTEMS and traffic | self.part >= set(seen.words):
            self.part |= traffic
        return replace(seen, words=tuple(word for word in seen.words if word not in self.part))

    def burst(self, seen: Look, second: int) -> str:
        """Why an anomalous window from `second` on is one of the host's bursts, in words; empty if it is none."""
        if not all(word.startswith(LOAD_WORDS) for word in seen.words):
            return ""
        return self.bursts.known(seen.sizes, second)

    def change(self, seen: Look, second: int) -> str:
        """Why an anomalous window from `second` on is no anomaly, in words; empty if it is one."""
        if seen.words:
            return ""
        # Once the work has changed, what it moves beside its memory comes and goes, and another job may have as much of
        # it as the one before. What looked as before for a while is judged as ever.
        goes_on = self.anchor is not None and (seen.allocated or self.back < AS_BEFORE)
        if goes_on or (seen.allocated and len(seen.moved) >= SUBSYSTEMS):
            if self.anchor is None or (np.abs(seen.allocations - self.anchor) > MOVED).any():
                moved = f", and {_listed(seen.moved)} moved" if seen.moved else ""
                self.begin(f"the work has changed: memory is allocated otherwise{moved}", second)
                self.anchor = seen.allocations
            self.back = 0
            return self._told()
        if self.why and self.anchor is None:
            self.back = 0
            return self._told()
        return self.phase(seen, second)

    def phase(self, seen: Look, second: int) -> str:
        """Why an anomalous window from `second` on is a phase of the work or what one has left behind, in words; empty
        if it is neither.
        """
        if seen.words:
            return ""
        known = self._like(seen.shape)
        going_on = known is not None and known.begun > 0 and second - known.last <= GOING_ON_S
        if known is not None and not going_on and seen.lacks_work_of(known.shape):
            known = None  # all of a host may stand still, and look like the part of a phase in which work is given up
        if known is None and seen.trades:
            known = self._add(Phase(seen.shape, 0, second - TAIL_S - 1))
        if known is not None and (seen.trades or going_on or known.times >= self.phase_times):
            return self._goes_on(known, seen.shape, second)
        if any(phase.settles(seen.shape, second) for phase in self.phases):
            return "what a phase of the work has left behind settles"
        return ""

    def _goes_on(self, phase: Phase, shape: Singles, second: int) -> str:
        if second - phase.last > TAIL_S:
            phase.times, phase.begun = phase.times + 1, second
        phase.last, phase.left = second, np.inf
        phase.shape = np.where(np.abs(shape) > np.abs(phase.shape), shape, phase.shape)
        if second - phase.begun >= LONGEST_PHASE:
            return ""
        if phase.times == 1:
            return "a phase of the work: it does more of one kind and less of another"
        return f"a phase of the work that came {phase.times - 1} times before"

    def rest(self, deviations: Singles, second: int) -> Singles | None:
        """Of the deviations (len(feature_table()),) of a window that is changed from `second` on, those that the change
        does not account for, the others as 0; None while it is not known what it moves.
        """
        sizes, before = by_metric(deviations), self.moves
        faded = np.zeros_like(sizes)
        if before is not None:
            stale = max(second - max(self.moved, self.begun + LEARNS_S), 0)
            faded = before * np.float32(0.5 ** (stale / SETTLES_S))
        self.moved = second
        if before is None or second - self.begun <= ADJUST_S:
            self.moves = np.maximum(faded, sizes)
            return None
        # What it moves on and on stays, and what grows is no part of it.
        self.moves = np.maximum(faded, np.minimum(before, sizes))
        fresh = sizes > FRESH * np.maximum(faded, USUAL / FRESH)
        return np.where(fresh[feature_table().metric_of], deviations, np.float32(0)).astype(np.float32)

    @property
    def changing(self) -> bool:
        """Whether the work has changed, and the model in use is not of it."""
        return bool(self.why)

    def accept(self, second: int, seconds: int) -> bool:
        """Begin to learn what is anomalous and has lasted for long in `second`; whether it may be learnt. What speaks
        of a fault may not, but after a change of work that was `seconds` ago what more work makes rise is a part of it.
        """
        why = "what is new lasts, and no metric speaks of a fault"
        if self._spoken:
            if not (
                self.why and second - self.since >= seconds and all(w.startswith(LOAD_WORDS) for w in self._spoken)
            ):
                return False
            why = "what came with a change of the work lasts, and speaks of no fault but of more to do"
            self.part |= self._spoken
        self._forget()
        self.why = ""
        self.begin(why, second)
        return True

    def begin(self, why: str, second: int) -> None:
        """From `second` on the host learns anew."""
        self.since = self.since if self.why else second
        self.why, self.begun, self.anchor, self.back = why, second, None, 0

    def end(self) -> None:
        """What is new is learnt, or gone."""
        self.why, self.since, self.begun, self.anchor, self.back, self.moves = "", 0, 0, None, 0, None
        self.moved, self.part = 0, frozenset()

    def as_before(self) -> bool:
        """A window was normal to the old model; whether BACK in a row were."""
        self.back += 1
        return self.back >= BACK

    def may_begin(self, seen: Look, windows: int) -> bool:
        """Whether an anomalous window that is no change may turn out to be the beginning of one, or of a phase that is
        known, since it is one of the first that share samples with what was before; a whole window is so many `windows`
        long. Where work is given up and what takes its place has begun to rise, that may take as long again to be seen.
        """
        self.edge = self.edge + 1 if seen.may_trade or self._may_come_back(seen) else 0
        return 0 < self.edge < (2 * windows if seen.half_trades else windows)

    def _may_come_back(self, seen: Look) -> bool:
        """Whether what moves so far moves the same way in a phase that comes and goes."""
        if seen.words or not seen.shape.any():
            return False
        known = (phase for phase in self.phases if phase.times >= self.phase_times)
        return any(_contained(seen.shape, phase.shape) >= ALIKE for phase in known)

    def strange(self, seen: Look) -> None:
        """An anomalous window that is no change."""
        self._strange = seen.shape.copy() if self._strange is None else self._strange + seen.shape
        self._sizes = seen.sizes.copy() if self._sizes is None else self._sizes + seen.sizes
        self._most = max(self._most, float(seen.sizes.sum()))
        self._windows += 1
        self._spoken |= set(seen.words)

    def calm(self, second: int) -> None:
        """What was strange is over, and may have been a burst, be it told or too short to be."""
        if self._sizes is not None and all(word.startswith(LOAD_WORDS) for word in self._spoken):
            self.bursts.seen(self._sizes / np.float32(self._windows), self._most, self._windows, second)
        self._forget()

    def closed(self, second: int) -> None:
        """The episode is over: it may have been a phase."""
        if self._strange is not None and self._windows <= LONGEST_PHASE and not self._spoken:
            shape = self._strange / np.float32(self._windows)
            if len(Look(shape, (), shape[:0], shape[:0], shape).moved) >= SUBSYSTEMS:
                self._remember(shape, second)
        self.calm(second)

    def _forget(self) -> None:
        self._strange, self._windows, self._spoken, self.edge = None, 0, frozenset(), 0
        self._sizes, self._most = None, 0.0

    def _remember(self, shape: Singles, second: int) -> None:
        known = self._like(shape)
        if known is not None:
            known.shape = (known.shape * known.times + shape) / np.float32(known.times + 1)
            known.times, known.last = known.times + 1, second
            return
        self._add(Phase(shape, 1, second))

    def _add(self, phase: Phase) -> Phase:
        self.phases.append(phase)
        if len(self.phases) > PHASES:
            self.phases.remove(min(self.phases, key=lambda each: each.last))
        return phase

    def _like(self, shape: Singles) -> Phase | None:
        """The phase that has this shape."""
        place = likest(shape, [each.shape for each in self.phases], ALIKE)
        return None if place is None else self.phases[place]

    def _told(self) -> str:
        since = str(np.datetime64(self.since, "s")).replace("T", " ")
        return f"{self.why}, since {since} UTC"

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Everything needed to go on, as JSON values and arrays."""
        shapes = [phase.shape for phase in self.phases]
        if self._strange is not None:
            shapes.append(self._strange)
        values = {
            "mark": feature_table().mark,
            "phases": [
                [each.times, each.last, each.begun, each.left if np.isfinite(each.left) else None]
                for each in self.phases
            ],
            "why": self.why,
            "since": self.since,
            "begun": self.begun,
            "moved": self.moved,
            "back": self.back,
            "edge": self.edge,
            "windows": self._windows,
            "part": sorted(self.part),
            "spoken": sorted(self._spoken),
            "most": self._most,
        }
        arrays: dict[str, NDArray[Any]] = {}
        for number, shape in enumerate(shapes):
            arrays |= packed(shape, f"shape {number}", f"metrics {number}")
        values["bursts"], kinds = self.bursts.state()
        arrays |= kinds
        if self._sizes is not None:
            arrays["sizes"] = self._sizes
        if self.anchor is not None:
            arrays["anchor"] = self.anchor
        if self.moves is not None:
            arrays["moves"] = self.moves
        return values, arrays

    @classmethod
    def restore(cls, phase_times: int, values: Mapping[str, Any] | None, arrays: Mapping[str, NDArray[Any]]) -> Regimes:
        """The regimes that `state` told; none of another catalogue. Raises KeyError, TypeError or ValueError."""
        regimes = cls(phase_times)
        if values is None or values["mark"] != feature_table().mark:
            return regimes
        shapes = [_shape(arrays, number) for number in range(len(values["phases"]) + (values["windows"] > 0))]
        regimes.phases = [Phase(shape, *_phase(row)) for shape, row in zip(shapes, values["phases"], strict=False)]
        regimes.why, regimes.back = str(values["why"]), int(values["back"])
        regimes.since, regimes.begun = int(values["since"]), int(values["begun"])
        # State of a version before did not fade.
        regimes.moved = int(values.get("moved", regimes.begun))
        regimes.edge = int(values.get("edge", 0))
        regimes.part, regimes._windows = frozenset(values.get("part", ())), int(values["windows"])
        # State of a version before told only whether there were any.
        regimes._spoken = frozenset(values["spoken"] if "spoken" in values else ["?"] * bool(values["spoke"]))
        regimes._strange = shapes[-1] if regimes._windows else None
        regimes._sizes, regimes._most = arrays.get("sizes"), float(values.get("most", 0.0))
        regimes.bursts = Bursts.restore(len(feature_table().metrics), values.get("bursts", ()), arrays)
        regimes.anchor = np.asarray(arrays["anchor"], np.float32) if "anchor" in arrays else None
        regimes.moves = np.asarray(arrays["moves"], np.float32) if "moves" in arrays else None
        if regimes.moves is not None and regimes.moves.shape != (len(feature_table().metrics),):
            raise ValueError("the moves of a change are those of other metrics")
        return regimes


def _phase(row: Sequence[Any]) -> tuple[int, int, int, float]:
    """Of a phase: times, last, begun, left. State of a version before had the first two."""
    times, last, begun, left = (*row, 0, None)[:4]
    return int(times), int(last), int(begun), np.inf if left is None else float(left)


def _shape(arrays: Mapping[str, NDArray[Any]], number: int) -> Singles:
    return unpacked(len(feature_table().metrics), arrays, f"shape {number}", f"metrics {number}")


def _contained(part: Singles, whole: Singles) -> float:
    """Share of what moves in `part` that moves the same way in `whole`."""
    total = float(np.abs(part).sum())
    return float(np.abs(part[part * whole > 0]).sum()) / total if total > 0 else 0.0


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
