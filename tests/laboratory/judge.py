"""What of the episodes belongs to which fault, and how good that is. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.laboratory.table import Fault

MARGIN_S = 1.0
"""An episode may be dated so much before a fault: it starts with a whole second."""
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode in its latest state. Times in s since 1970-01-01 UTC; metrics of its evidence, the strongest first."""

    id: str
    start: float
    opened: float
    closed: float | None
    subsystem: str
    cause: str | None
    metrics: tuple[str, ...] = ()
    peak_severity: float = 0.0
    candidates: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A fault that was acted out from `onset` to `ended`, s since 1970-01-01 UTC; or was not, and why."""

    fault: Fault
    cause: str | None
    onset: float | None = None
    ended: float | None = None
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A trial, and the episode that belongs to it, if any. `open_before` is one that was open when it began: a host has
    one open episode at a time.
    """

    trial: Trial
    episode: Episode | None
    open_before: Episode | None = None

    @property
    def delay(self) -> float | None:
        """Seconds from onset to opening."""
        if self.episode is None or self.trial.onset is None:
            return None
        return self.episode.opened - self.trial.onset

    @property
    def right_subsystem(self) -> bool:
        """Whether it was put down to the subsystem that is expected."""
        return self.episode is not None and self.episode.subsystem == self.trial.fault.subsystem

    @property
    def right_cause(self) -> bool:
        """Whether it was given the name that is expected, or none where none is."""
        return self.episode is not None and self.episode.cause == self.trial.cause

    @property
    def evidence_rank(self) -> int | None:
        """Place, from 1, of the first evidence that the fault explains."""
        metrics = self.episode.metrics if self.episode is not None else ()
        return next((rank for rank, name in enumerate(metrics, 1) if self.trial.fault.moves_metric(name)), None)

    def row(self) -> dict[str, Any]:
        """As JSON values."""
        trial, episode = self.trial, self.episode
        delay = self.delay
        row = {
            "fault": trial.fault.name,
            "expected_subsystem": trial.fault.subsystem,
            "expected_cause": trial.cause,
            "onset": iso(trial.onset),
            "opened": iso(episode.opened) if episode is not None else None,
            "delay": round(delay, 3) if delay is not None else None,
            "subsystem": episode.subsystem if episode is not None else None,
            "cause": episode.cause if episode is not None else None,
            "evidence_rank": self.evidence_rank,
        }
        return row | ({"skipped": trial.skipped} if trial.skipped else {})


@dataclass(frozen=True, slots=True)
class Quiet:
    """Time without a fault, and how many episodes began in it."""

    hours: float
    false_episodes: int

    def row(self) -> dict[str, Any]:
        """As JSON values."""
        return {"hours": round(self.hours, 4), "false_episodes": self.false_episodes}


@dataclass(frozen=True, slots=True)
class Summary:
    """Over the faults that were acted out: how many, how many of them opened an episode, the median delay of these, s,
    and the shares of all with the right subsystem and the right cause. None where there is nothing to tell.
    """

    acted: int
    opened: int
    median_delay: float | None
    subsystems: float | None
    causes: float | None


def judged(trials: Iterable[Trial], episodes: Sequence[Episode]) -> list[Outcome]:
    """Each trial with the episode that opened first of those that started while the fault ran."""
    return [Outcome(trial, _of(trial, episodes), _before(trial, episodes)) for trial in trials]


def _of(trial: Trial, episodes: Sequence[Episode]) -> Episode | None:
    return min((each for each in episodes if _belongs(each, trial)), key=lambda each: each.opened, default=None)


def _belongs(episode: Episode, trial: Trial) -> bool:
    """Whether it started while the fault ran."""
    if trial.onset is None or trial.ended is None:
        return False
    return trial.onset - MARGIN_S <= episode.start <= trial.ended and episode.opened >= trial.onset


def _before(trial: Trial, episodes: Sequence[Episode]) -> Episode | None:
    if (onset := trial.onset) is None:
        return None
    return next((e for e in episodes if e.opened < onset and (e.closed is None or e.closed >= onset)), None)


def quiet(spans: Sequence[tuple[float, float]], episodes: Sequence[Episode], trials: Sequence[Trial] = ()) -> Quiet:
    """Of the `spans` without a fault, (begin, end), s since 1970-01-01 UTC; what belongs to one of the `trials`, which
    may be dated before its onset, is not false.
    """
    others = [each for each in episodes if not any(_belongs(each, trial) for trial in trials)]
    false = sum(any(begin <= each.start < end for begin, end in spans) for each in others)
    return Quiet(sum(end - begin for begin, end in spans) / HOUR_S, false)


def summary(outcomes: Sequence[Outcome]) -> Summary:
    """Of a run."""
    acted = [each for each in outcomes if not each.trial.skipped]
    delays = [each.delay for each in acted if each.delay is not None]
    return Summary(
        acted=len(acted),
        opened=len(delays),
        median_delay=statistics.median(delays) if delays else None,
        subsystems=_share([each.right_subsystem for each in acted]),
        causes=_share([each.right_cause for each in acted]),
    )


def result(outcomes: Sequence[Outcome], calm: Quiet) -> dict[str, Any]:
    """The whole run as JSON values."""
    return {"faults": [each.row() for each in outcomes], "quiet": calm.row()}


def iso(moment: float | None) -> str | None:
    """A time as ISO 8601, UTC."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def _share(right: Sequence[bool]) -> float | None:
    return sum(right) / len(right) if right else None
