"""The agent itself: what it takes of the machine, what it lost, what it cannot read."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from producers.collector import Collector, Layout, ParseError, Reading, number, only, plain
from producers.reading import Host, Problem, Texts
from producers.usage import Usage
from producers.vitals import Vitals

VITALS: Final = tuple(field.name for field in fields(Vitals))
METRICS: Final = ("agent.cpu", "agent.memory", *(f"agent.{name}" for name in VITALS))
KEY: Final = "agent"
# A child's time is told in ticks while it lives, and exactly after that.
FALLS_S: Final = 0.05


class Itself:
    """A source that asks the kernel for the agent's own usage, and the agent for its vitals."""

    later = False

    def __init__(self, collector: Collector, host: Host) -> None:
        self.errors = 0
        self._clock = host.clock
        self._vitals = host.vitals
        self._usage = Usage(host.roots["proc"])

    def read(self, now_ns: int) -> tuple[int, Texts] | None:
        """As in Source: names and numbers, one a line."""
        numbers = (*self._usage(), *(getattr(self._vitals, name) for name in VITALS))
        lines = [f"{name} {value}" for name, value in zip(METRICS, numbers, strict=True)]
        return self._clock(), {KEY: "\n".join(lines).encode()}

    def request(self, now_ns: int) -> None:
        """As in Source; `read` is the reading itself."""

    def idle(self) -> bool:
        """As in Source."""
        return False

    def problems(self, now_ns: int, hung_ns: int) -> list[Problem]:
        """As in Source."""
        return []

    def failed(self, reason: str, now_ns: int) -> None:
        """As in Source."""
        self.errors += 1

    def understood(self) -> None:
        """As in Source."""

    def close(self) -> None:
        """As in Source."""


class Agent:
    """Parser of what Itself reads."""

    def __init__(self) -> None:
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Seconds, kB, and the vitals in their units."""
        rows = [
            row for line in only(texts).splitlines() if len(row := line.split()) == 2 and row[0].decode() in METRICS
        ]
        if not rows:
            raise ParseError("nothing about the agent")
        channels = tuple((name.decode(), "") for name, _ in rows)
        if channels != self._layout.channels:
            self._layout = Layout(channels)
        return self._layout, [real(value) for _, value in rows]


def real(token: bytes) -> float:
    """Number in `token`, NaN for any other text."""
    try:
        return float(token)
    except ValueError:
        return number(token)


AGENT: Final = Collector(
    "agent",
    ("proc/self/statm",),
    plain(Agent),
    METRICS,
    every_ms=5000,
    source=Itself,
    falls={"agent.cpu": FALLS_S},
)
