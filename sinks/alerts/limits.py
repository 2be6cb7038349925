"""How many messages a receiver gets: a token bucket. Pure; time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sinks.alerts.duration import SECOND_NS


@dataclass(frozen=True, slots=True)
class Limit:
    """A burst, then so many an hour. Both 0: no limit."""

    burst: int = 10
    per_hour: float = 30.0

    @property
    def unlimited(self) -> bool:
        return self.burst == 0


NO_LIMIT: Final = Limit(0, 0.0)


@dataclass(slots=True)
class Bucket:
    """Tokens left at `at_ns`."""

    limit: Limit
    left: float = -1.0
    at_ns: int = 0

    def available(self, now_ns: int) -> int:
        """Messages that may go now."""
        if self.limit.unlimited:
            return 1 << 30
        if self.left < 0:
            self.left = float(self.limit.burst)
        elif now_ns > self.at_ns:
            more = (now_ns - self.at_ns) / SECOND_NS * self.limit.per_hour / 3600
            self.left = min(float(self.limit.burst), self.left + more)
        self.at_ns = max(self.at_ns, now_ns)
        # A token that is there but for rounding is there.
        return int(self.left + 1e-6)

    def take(self, now_ns: int, number: int = 1) -> None:
        """Messages went."""
        self.available(now_ns)
        if not self.limit.unlimited:
            self.left = max(0.0, self.left - number)
