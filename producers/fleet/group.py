"""Hosts of one profile that are simulated together: what stays of them from batch to batch."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.fleet.jobs import LEVELS, Demand, Timeline
from producers.fleet.profiles import Profile

Floats = NDArray[np.floating[Any]]
LOG_WEIGHT: Final = 0.15


@dataclass(frozen=True, slots=True)
class Wanted:
    """Demand of all hosts of a group, each (hosts, samples, 1)."""

    compute: Floats
    communicate: Floats
    input: Floats
    read: Floats
    write: Floats
    intensity: Floats
    input_need: Floats
    memory: Floats
    communicate_share: Floats
    working: Floats


class Group:
    """State of hosts, to each a number that seeds what is its own: what is theirs by build, and what changes slowly."""

    def __init__(
        self, profile: Profile, numbers: Sequence[int], timelines: Sequence[Timeline], seed: int, period_s: float
    ) -> None:
        self.profile = profile
        self.numbers = tuple(numbers)
        self.period_s = period_s
        self._timelines = tuple(timelines)
        self._seed = seed
        self._weights: dict[str, Floats] = {}
        self._slow: dict[str, Floats] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def weights(self, name: str, count: int, spread: float = LOG_WEIGHT) -> Floats:
        """What differs from instance to instance and host to host by build, about 1, (hosts, 1, count)."""
        if name not in self._weights:
            key = zlib.crc32(name.encode())
            rows = [
                np.random.default_rng([self._seed, number, key]).lognormal(0.0, spread, count)
                for number in self.numbers
            ]
            self._weights[name] = np.array(rows, np.float32)[:, None, :]
        return self._weights[name]

    def slow(self, name: str, target: Floats, tau_s: float) -> Floats:
        """`target` (hosts, samples, instances) as a body with time constant `tau_s` follows it; at the beginning it is
        there.
        """
        last = self._slow.get(name)
        if last is None:
            last = target[:, 0].copy()
        share = np.float32(1.0 - np.exp(-self.period_s / tau_s))
        result = np.empty_like(target)
        for row in range(target.shape[1]):
            last = last + share * (target[:, row] - last)
            result[:, row] = last
        self._slow[name] = last
        return result

    def last(self, name: str) -> Floats | None:
        """Where `slow` left it at the end of the last batch, (hosts, 1, instances)."""
        found = self._slow.get(name)
        return None if found is None else found[:, None, :]

    def wanted(self, begin_s: float, samples: int) -> Wanted:
        """What the jobs ask for over a batch."""
        made: dict[int, Demand] = {}
        for timeline in self._timelines:
            if id(timeline) not in made:
                made[id(timeline)] = timeline.demand(begin_s, samples, self.period_s)
        demands = [made[id(timeline)] for timeline in self._timelines]

        def stacked(rows: list[NDArray[np.float64]]) -> Floats:
            return np.array(rows, np.float32)[:, :, None]

        levels = {name: stacked([demand.levels[name] for demand in demands]) for name in LEVELS}
        return Wanted(
            **levels,
            intensity=stacked([demand.intensity for demand in demands]),
            input_need=stacked([demand.input for demand in demands]),
            memory=stacked([demand.memory for demand in demands]),
            communicate_share=stacked([demand.communicate for demand in demands]),
            working=stacked([demand.working for demand in demands]),
        )
