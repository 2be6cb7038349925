"""How long the agent waits for the process that reads GPUs, and how it slows down when waiting is of no use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from producers.gpu.fields import SECOND_NS


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for what, ns.

    late     without an answer for so long, each sample says for how long
    hung     so long without an answer is a hang
    starting the same for the first answer, before which the driver may have to wake up every GPU
    kill     so long is worth one SIGKILL, which a call inside the driver outlives
    leave    so long after it, the process is left where it is and another one started: one such at a time
    restart, longest_restart
             between a crash and the next start, doubled at each crash
    again, longest_again
             until a library that did not start, or a GPU that is lost, is tried again, doubled each time
    steady   after so long without a crash, the next one counts as the first
    look     between two looks at the PCI bus
    """

    late: int = SECOND_NS
    hung: int = 5 * SECOND_NS
    starting: int = 30 * SECOND_NS
    kill: int = 60 * SECOND_NS
    leave: int = 600 * SECOND_NS
    restart: int = SECOND_NS
    longest_restart: int = 60 * SECOND_NS
    again: int = 60 * SECOND_NS
    longest_again: int = 600 * SECOND_NS
    steady: int = 60 * SECOND_NS
    look: int = 10 * SECOND_NS


PATIENCE: Final = Patience()


class Backoff:
    """A pause that doubles."""

    def __init__(self, first: int, longest: int) -> None:
        self._first, self._longest = first, longest
        self._next = first

    def pause(self) -> int:
        """The next pause, ns."""
        now, self._next = self._next, min(2 * self._next, self._longest)
        return now

    def reset(self) -> None:
        """All is well."""
        self._next = self._first
