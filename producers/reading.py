"""What the frame reads from: sources, what they are given, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from producers.gpu.names import GpuNames
from producers.notices import Notices
from producers.vitals import Vitals
from schemas.settings import AgentSettings

STARTING: Final = "still starting"
"""How the reason of a Problem begins when there is nothing wrong yet."""

Texts: TypeAlias = Mapping[str, bytes]
Wanted: TypeAlias = Callable[[str, str], bool]
"""Whether an instance of a dimension, such as ("interface", "eth0"), is to be read."""


def everything(dimension: str, instance: str) -> bool:
    """A `Wanted` that wants all."""
    return True


@dataclass(frozen=True, slots=True)
class Problem:
    """A file, pattern or device that gives nothing: kind is missing, failing or hung, reason is in words."""

    collector: str
    path: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class Host:
    """What a source may know of the machine and of the agent.

    roots     directory of each root that collectors name, such as {"proc": "/proc", "sys": "/sys"}; proc/net may have
              one of its own
    clock     monotonic, ns
    wanted    which instances are to be read
    settings  the agent's
    notices   where to say what happened
    vitals    what the agent says of itself
    gpus      which GPU is at a PCI address, also of those that are lost
    served    files, as collectors name them, that a program such as lxcfs serves: they may never answer
    """

    roots: Mapping[str, str]
    clock: Callable[[], int]
    wanted: Wanted = everything
    settings: AgentSettings = field(default_factory=AgentSettings)
    notices: Notices = field(default_factory=Notices)
    vitals: Vitals = field(default_factory=Vitals)
    gpus: GpuNames = field(default_factory=GpuNames)
    served: frozenset[str] = frozenset()


class Source(Protocol):
    """What the frame reads from."""

    @property
    def errors(self) -> int:
        """Failures so far."""

    @property
    def later(self) -> bool:
        """Whether a reading comes some time after its request, so that the frame looks for it at every sample."""

    def read(self, now_ns: int) -> tuple[int, Texts] | None:
        """Monotonic time and bytes by file or part of what can be read now; None when there is nothing new."""

    def request(self, now_ns: int) -> None:
        """A reading is due."""

    def idle(self) -> bool:
        """Whether there is nothing on this machine to be read."""

    def problems(self, now_ns: int, hung_ns: int) -> list[Problem]:
        """What is wrong at the moment; an answer that takes longer than `hung_ns` is."""

    def failed(self, reason: str, now_ns: int) -> None:
        """What was read could not be used: leave the source alone for a while."""

    def understood(self) -> None:
        """What was read could be used."""

    def close(self) -> None:
        """Give up all descriptors, threads and processes."""
