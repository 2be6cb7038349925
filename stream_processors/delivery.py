"""In which order results are stored, so that a worker that dies in between leaves nothing that contradicts itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from schemas.records import DeadLetter, StateRecord
from stream_processors.host import Result


@dataclass(slots=True)
class Round:
    """What may be stored at once: `first` all of it, in any order, and when it is stored `progress`, by host."""

    first: list[Result | DeadLetter] = field(default_factory=list)
    progress: dict[str, StateRecord] = field(default_factory=dict)


def rounds(results: Iterable[Result | DeadLetter]) -> Iterator[Round]:
    """Rounds to be stored one after the other.

    A host's progress agrees with the rows and models told before it. Later ones may take the slots of those, so a
    host whose progress is due ends the round before another of its rows or models is stored. Of several progresses of
    a host in a round the last one counts.
    """
    current = Round()
    for result in results:
        if isinstance(result, StateRecord):
            if result.slot == "progress":
                current.progress[result.host] = result
                continue
            if result.host in current.progress:
                yield current
                current = Round()
        current.first.append(result)
    if current.first or current.progress:
        yield current
