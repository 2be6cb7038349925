"""The few of many instances that are worth a channel of their own, chosen so that the choice rarely changes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import Final

LEAD: Final = 2.0


class Busiest:
    """Keeps the `count` instances of the highest score.

    One that is kept stays until another of at least `worth` has LEAD times its score, or it is gone, so that a channel
    does not come and go.
    """

    def __init__(self, count: int, worth: float) -> None:
        self._count = count
        self._worth = worth
        self._kept: list[str] = []

    def __call__(self, scores: Mapping[str, float]) -> list[str]:
        """Names that are kept, by their score now; those without a number count as nothing."""
        kept = [name for name in self._kept if name in scores]
        known = {name: 0.0 if math.isnan(scores[name]) else scores[name] for name in kept}
        others = [(score, name) for name, score in scores.items() if score >= self._worth and name not in known]
        for score, name in heapq.nlargest(self._count, others):
            if len(kept) < self._count:
                kept.append(name)
            else:
                weakest = min(kept, key=known.__getitem__)
                if score < LEAD * known[weakest]:
                    break
                kept[kept.index(weakest)] = name
            known[name] = score
        self._kept = kept
        return list(kept)
