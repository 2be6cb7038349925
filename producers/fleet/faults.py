"""Kinds of faults, from `faults.toml`: which knobs they turn, and how that shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from producers.fleet.knobs import KNOBS, Floats
from producers.fleet.profiles import Profile, read_toml
from schemas.catalogue import catalogue


@dataclass(frozen=True, slots=True)
class Effect:
    """A knob on its way from neutral to `to`: `delay_s` after the onset, over `ramp_s`; back in the same way after the
    end. `on` is all instances, one, or every fourth.
    """

    knob: str
    to: float
    on: str = "all"
    delay_s: float = 0.0
    ramp_s: float = 0.0

    def change(self, since_onset_s: Floats, since_end_s: Floats) -> NDArray[np.float32]:
        """What it adds to the knob at full intensity, (samples,)."""
        rise = _ramp(since_onset_s - self.delay_s, self.ramp_s)
        fall = _ramp(since_end_s - self.delay_s, self.ramp_s)
        return ((rise - fall) * (self.to - KNOBS[self.knob].neutral)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An event that the host's agent would send, `delay_s` after the onset (or the end). `message` may name {code} and
    {instance}.
    """

    kind: str
    severity: str
    message: str
    delay_s: float = 0.0
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault. `shows` has a + or - before each metric that rises or falls; `subsystem` is where an operator
    would look first, `without_gpu` the same on a host without one.
    """

    name: str
    words: str
    cause: str
    subsystem: str
    effects: tuple[Effect, ...]
    shows: tuple[str, ...]
    needs: frozenset[str] = frozenset()
    events: tuple[Occurrence, ...] = ()
    ends: tuple[Occurrence, ...] = ()
    without_gpu: str = ""
    silent: bool = False

    @property
    def settles_s(self) -> float:
        """How long after its onset, or its end, the last knob still moves."""
        return max((effect.delay_s + effect.ramp_s for effect in self.effects), default=0.0)

    @property
    def dimension(self) -> str:
        """Whose instance it strikes; host when it strikes no single one."""
        return next((KNOBS[effect.knob].dimension for effect in self.effects if effect.on == "one"), "host")

    def expected(self, profile: Profile) -> str:
        """Subsystem to which it is to be attributed."""
        return self.subsystem if profile.gpu or not self.without_gpu else self.without_gpu

    def touched(self, profile: Profile) -> tuple[str, ...]:
        """`shows`, as far as hosts of `profile` have the metric."""
        have = {
            metric.name
            for name in {catalogue()[s[1:]].subsystem for s in self.shows}
            for metric in profile.metrics(name)
        }
        return tuple(sign for sign in self.shows if sign[1:] in have)


@cache
def faults() -> Mapping[str, Fault]:
    """All kinds by name."""
    return {name: _fault(name, values) for name, values in read_toml("faults").items()}


def _fault(name: str, values: dict[str, Any]) -> Fault:
    made: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    made["effects"] = tuple(Effect(**effect) for effect in values["effects"])
    made["needs"] = frozenset(values.get("needs", ()))
    for key in ("events", "ends"):
        made[key] = tuple(Occurrence(**event) for event in values.get(key, ()))
    fault = Fault(name=name, **made)
    if strange := [effect.knob for effect in fault.effects if effect.knob not in KNOBS]:
        raise ValueError(f"fault {name} turns {', '.join(strange)}, which is no knob")
    return fault


def _ramp(since_s: Floats, ramp_s: float) -> Floats:
    """0 before, 1 from `ramp_s` after."""
    if ramp_s == 0:
        return (since_s >= 0).astype(np.float64)
    result: Floats = np.clip(since_s / ramp_s, 0.0, 1.0)
    return result
