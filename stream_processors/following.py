"""Several episodes of one host at a time: what begins elsewhere while an episode goes on is one of its own.

A fault spreads: packets are lost, then interrupts pile up, then GPUs wait. So what becomes strange within SPREAD_S of
the beginning of an episode belongs to it, whatever the subsystem. From then on the episode keeps to the subsystems that
it holds, and the others are looked at as if there were no episode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from schemas.catalogue import SUBSYSTEMS
from schemas.records import Episode, Verdict
from schemas.settings import PipelineSettings
from stream_processors.attribution import Finding
from stream_processors.episodes import Tracker
from stream_processors.seconds import SECOND_NS

SPREAD_S: Final = 20
HELD: Final = 0.1
OFTEN: Final = 4
"""An episode holds a subsystem that has such a share of one of its windows, or any share of so many: a small share is
what the fault does elsewhere if it stays, and a blip if it does not. Three windows have a sample in common.
"""

Subsystems = frozenset[str]
EVERYTHING: Final[Subsystems] = frozenset(SUBSYSTEMS)


class Sight(NamedTuple):
    """What some subsystems show of a window."""

    severity: float
    shares: Mapping[str, float]
    finding: Finding


Show = Callable[[Subsystems], Sight]
"""Shows a strange window as if there were only these subsystems."""


@dataclass(slots=True)
class Strand:
    """One episode after the other.

    holds  the subsystems of the one that is open
    seen   of others, in how many of its windows they had a share
    """

    tracker: Tracker
    holds: Subsystems = frozenset()
    seen: Mapping[str, int] = field(default_factory=dict)

    def note(self, shares: Mapping[str, float]) -> None:
        """Hold what has a share of a window."""
        seen = {name: self.seen.get(name, 0) + int(share > 0) for name, share in shares.items()}
        self.holds |= {name for name, share in shares.items() if share >= HELD or seen[name] >= OFTEN}
        self.seen = {**self.seen, **seen}

    def forget(self) -> None:
        """Its episode is closed."""
        self.holds, self.seen = frozenset(), {}

    def spreads(self, verdict: Verdict) -> bool:
        """Whether its episode may still become one of other subsystems."""
        episode = self.tracker.open
        return episode is None or verdict.window_end_ns - episode.start_ns <= SPREAD_S * SECOND_NS


@dataclass(slots=True)
class Following:
    """Follows the verdicts of one host. The last of `strands` has no open episode; all others have."""

    settings: PipelineSettings
    strands: list[Strand] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.strands:
            self.strands.append(Strand(Tracker(self.settings)))

    @property
    def open(self) -> tuple[Episode, ...]:
        """Open episodes, the oldest first."""
        return tuple(strand.tracker.open for strand in self.strands if strand.tracker.open is not None)

    @property
    def known(self) -> tuple[Episode, ...]:
        """Episodes that are open or may go on."""
        closed = (strand.tracker.closed for strand in self.strands)
        return *self.open, *(episode for episode in closed if episode is not None)

    def follow(self, verdict: Verdict, show: Show | None = None) -> tuple[Verdict, list[Episode]]:
        """The verdict with the id of the episode that it is of, and new states of the host's episodes. `show` is given
        of windows in which something stands out.
        """
        told: list[Episode] = []
        left, most, mine = EVERYTHING, 0.0, None
        for strand in self.strands:
            spreads, was_open = strand.spreads(verdict), strand.tracker.open is not None
            seen = left if spreads else left & strand.holds
            part, finding = _through(verdict, show, seen)
            told += strand.tracker.follow(part, finding)
            episode = strand.tracker.open
            if episode is None:
                strand.forget()
                # What it was closed by is no beginning elsewhere.
                left = frozenset() if was_open else left
                continue
            if spreads:
                strand.note(part.shares)
                left = frozenset()
            else:
                left -= strand.holds
            if part.subsystem is not None and part.severity > most:
                most, mine = part.severity, episode.id
        self._tidy()
        return (verdict if mine is None else replace(verdict, episode=mine)), told

    def end(self, why: str, only: Callable[[Episode], bool] = lambda _: True) -> list[Episode]:
        """Close what is open, if `only` agrees, and say why."""
        told: list[Episode] = []
        for strand in self.strands:
            if strand.tracker.open is None or only(strand.tracker.open):
                told += strand.tracker.end(why)
        self._tidy()
        return told

    def copy(self) -> Following:
        """One that goes its own way."""
        return Following(self.settings, [replace(each, tracker=replace(each.tracker)) for each in self.strands])

    def state(self) -> list[dict[str, Any]]:
        """Everything needed to go on, as JSON values."""
        return [
            {**strand.tracker.state(), "holds": sorted(strand.holds), "seen": strand.seen} for strand in self.strands
        ]

    @classmethod
    def restore(cls, settings: PipelineSettings, state: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Following:
        """What `state` came from. Raises KeyError, TypeError or ValueError for any other."""
        # State of a version before had one episode at a time.
        rows = [state] if isinstance(state, Mapping) else list(state)
        strands: list[Strand] = []
        for row in rows:
            values = dict(row)
            holds, seen = values.pop("holds", ()), values.pop("seen", {})
            strand = Strand(Tracker.restore(settings, values), frozenset(holds), seen)
            if not holds and strand.tracker.open is not None:
                strand.holds = frozenset(name for name, share in strand.tracker.open.shares.items() if share >= HELD)
            strands.append(strand)
        following = cls(settings, strands)
        following._tidy()
        return following

    def _tidy(self) -> None:
        """One strand without an open episode, the last; of several the one that is counting or closed last."""
        idle = [strand for strand in self.strands if strand.tracker.open is None]
        best = max(idle, key=_use, default=None) or Strand(Tracker(self.settings))
        self.strands = [*(strand for strand in self.strands if strand.tracker.open is not None), best]


def _use(strand: Strand) -> tuple[float, int]:
    closed = strand.tracker.closed
    return strand.tracker.sum, closed.updated_ns if closed is not None else 0


def _through(verdict: Verdict, show: Show | None, seen: Subsystems) -> tuple[Verdict, Finding]:
    """The verdict as if there were only the subsystems `seen`, and what they show."""
    if not seen:
        return replace(verdict, severity=0.0, anomalous=False), Finding()
    if show is None:
        return verdict, Finding()
    sight = show(seen)
    part = replace(
        verdict,
        severity=sight.severity,
        shares=sight.shares,
        subsystem=max(sight.shares, key=lambda name: sight.shares[name], default=None),
        anomalous=verdict.anomalous and bool(sight.shares),
    )
    return part, sight.finding
