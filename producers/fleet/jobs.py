"""Jobs: what simulated hosts are asked to do, as an endless sequence of phases, different for each seed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.fleet.profiles import read_toml

Doubles = NDArray[np.float64]
LEVELS: Final = ("compute", "communicate", "input", "read", "write")


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained: range of its step, s; share of a step that is communication; how hard it computes, how much
    input and memory it needs, 0 to 1.
    """

    name: str
    step_seconds: tuple[float, float]
    communicate: float
    intensity: float
    input: float
    memory: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Ranges of the lengths of a job and its phases."""

    job_minutes: tuple[float, float]
    gap_seconds: tuple[float, float]
    start_seconds: tuple[float, float]
    checkpoint_every_seconds: tuple[float, float]
    checkpoint_seconds: tuple[float, float]
    evaluate_every: int
    evaluate_seconds: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Segment:
    """A phase of a job, from `start` s after the beginning of the simulation. `change` is what an observer of the job
    would call its beginning, or empty.
    """

    start: float
    phase: str
    model: Model
    step_s: float
    change: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job asks for over a batch, each (samples,): latent levels 0 to 1, averages over each sample's interval;
    `working` is whether a job is there at all.
    """

    levels: Mapping[str, Doubles]
    intensity: Doubles
    input: Doubles
    memory: Doubles
    communicate: Doubles
    working: Doubles


class Timeline:
    """The phases of one job after the other on the hosts that share `number`; the same for the same seed."""

    def __init__(self, seed: int, number: int, timing: Timing | None = None) -> None:
        self._rng = np.random.default_rng([seed, number, 0x0B])
        self._timing = timing or usual_timing()
        self._segments: list[Segment] = []
        self._starts: list[float] = []
        # The first job has been running for a while: a fleet is not switched on at one moment.
        model, step_s = self._model()
        self._train(0.0, 60.0 * self._between(self._timing.job_minutes), model, step_s)

    @property
    def segments(self) -> Sequence[Segment]:
        """All that have been made so far, in order."""
        return self._segments

    def until(self, end: float) -> None:
        """Make all segments that begin before `end`, s."""
        while self._end < end:
            before = self._segments[-1].model
            begin = self._end
            self._add(begin, "idle", before, 1.0, "job-end")
            begin += self._between(self._timing.gap_seconds)
            model, step_s = self._model()
            self._add(begin, "start", model, step_s, "job-start" if model.name == before.name else "other-model")
            begin += self._between(self._timing.start_seconds)
            self._train(begin, 60.0 * self._between(self._timing.job_minutes), model, step_s)

    def segment(self, time_s: float) -> Segment:
        """The phase at a time ≥ 0."""
        self.until(time_s + 1.0)
        return self._segments[max(0, bisect_right(self._starts, time_s) - 1)]

    def changes(self, begin: float, end: float) -> list[Segment]:
        """Segments with a `change` that begin in [begin, end), s."""
        self.until(end)
        first, last = bisect_right(self._starts, begin - 1e-9), bisect_right(self._starts, end - 1e-9)
        return [segment for segment in self._segments[first:last] if segment.change]

    def end_of(self, segment: Segment) -> float:
        """When the next segment begins, s."""
        index = bisect_right(self._starts, segment.start)
        return self._starts[index] if index < len(self._starts) else self._end

    def demand(self, begin: float, samples: int, period_s: float) -> Demand:
        """Demand over `samples` intervals from `begin` s."""
        self.until(begin + samples * period_s)
        times = begin + period_s * np.arange(samples)
        levels = {name: np.empty(samples) for name in LEVELS}
        rows = [np.empty(samples) for _ in range(5)]
        at = np.maximum(0, np.searchsorted(self._starts, times, side="right") - 1)
        for index in np.unique(at).tolist():
            chosen = at == index
            segment = self._segments[index]
            phase = _phases()[segment.phase]
            model = segment.model
            for name in LEVELS:
                levels[name][chosen] = phase[name]
            if segment.phase in {"train", "evaluate"}:
                share = model.communicate * phase["communicate"]
                turns = (times[chosen] - segment.start) / segment.step_s
                step = period_s / segment.step_s
                # The all-reduce begins while the last gradients are still computed; input comes early in a step.
                levels["compute"][chosen] *= duty(turns, step, 0.0, 1.0 - share)
                if share > 0:
                    levels["communicate"][chosen] *= duty(turns, step, max(0.0, 1.0 - share - 0.08), 1.0)
                levels["input"][chosen] *= 0.3 + 1.4 * duty(turns, step, 0.0, 0.5)
            working = 0.0 if segment.phase == "idle" else 1.0
            values = (model.intensity, model.input, model.memory * working, model.communicate, working)
            for row, value in zip(rows, values, strict=True):
                row[chosen] = value
        return Demand(levels, *rows)

    def _train(self, begin: float, seconds: float, model: Model, step_s: float) -> None:
        timing, end, count = self._timing, begin + seconds, 0
        while begin < end:
            self._add(begin, "train", model, step_s)
            begin += self._between(timing.checkpoint_every_seconds)
            count += 1
            if count % timing.evaluate_every == 0:
                self._add(begin, "evaluate", model, step_s * 0.6, "evaluation")
                begin += self._between(timing.evaluate_seconds)
            self._add(begin, "checkpoint", model, step_s, "checkpoint")
            begin += self._between(timing.checkpoint_seconds)
        self._end = begin

    def _add(self, start: float, phase: str, model: Model, step_s: float, change: str = "") -> None:
        self._segments.append(Segment(start, phase, model, step_s, change))
        self._starts.append(start)

    def _model(self) -> tuple[Model, float]:
        model = _models()[int(self._rng.integers(len(_models())))]
        return model, self._between(model.step_seconds)

    def _between(self, limits: tuple[float, float]) -> float:
        return float(self._rng.uniform(*limits))


def duty(turns: Doubles, step: float, low: float, high: float) -> Doubles:
    """Share of each interval [turns, turns + step) in which the fractional part lies in [low, high)."""

    def covered(position: Doubles) -> Doubles:
        whole = np.floor(position)
        return whole * (high - low) + np.clip(position - whole - low, 0.0, high - low)

    result: Doubles = (covered(turns + step) - covered(turns)) / step
    return result


@cache
def usual_timing() -> Timing:
    """Of jobs for which none is given."""
    table = read_toml("jobs")["timing"]
    return Timing(**_fixed(table))


@cache
def _phases() -> Mapping[str, Mapping[str, float]]:
    found: Mapping[str, Mapping[str, float]] = read_toml("jobs")["phases"]
    return found


@cache
def _models() -> tuple[Model, ...]:
    return tuple(Model(name=name, **_fixed(row)) for name, row in read_toml("jobs")["models"].items())


def _fixed(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
