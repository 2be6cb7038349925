"""What is read from a GPU at once, and what its refusals mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from producers.gpu import nvml
from producers.gpu.fields import RANGES


class Gone(Exception):
    """The GPU does not answer any more; the message says why."""


@dataclass(slots=True)
class Part:
    """What is read at once.

    channels  (metric, instance) of each value
    read      gives the values; raises nvml.Error
    start     place of the first value among all values of the child
    lows, highs
              plausible range of each value
    counters  places of values that are absent between two readings; others hold
    """

    channels: tuple[tuple[str, str], ...]
    read: Callable[[], Sequence[float]]
    every_ns: int
    start: int = 0
    due_ns: int = 0
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    counters: tuple[int, ...] = ()
    shown: bool = False
    refusals: int = 0
    dead: bool = False

    def __post_init__(self) -> None:
        self.lows = [RANGES[metric][0] for metric, _ in self.channels]
        self.highs = [RANGES[metric][1] for metric, _ in self.channels]


def refused(error: Exception) -> bool:
    """Whether asking again gives the same answer. Raises Gone if it is the GPU that is lost."""
    if isinstance(error, Gone):
        raise error
    if nvml.code(error) in nvml.GONE:
        raise Gone(str(error)) from None
    return nvml.code(error) in nvml.PERMANENT
