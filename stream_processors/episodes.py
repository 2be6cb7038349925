"""Episodes: runs of anomalous windows of one host, with hysteresis, from opening to closing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from schemas.records import Episode, Evidence, Verdict
from schemas.settings import PipelineSettings
from stream_processors.seconds import SECOND_NS

SAME_SHARE = 0.2
"""A window goes on with an episode when the episode's subsystem has at least this share in it."""
UPDATE_EVERY = 5
"""An open episode is told again after this many anomalous windows, or when its peak or subsystem changes."""


@dataclass(slots=True)
class Tracker:
    """Follows the verdicts of one host and tells its episodes.

    open     the episode, as last told or changed
    closed   the one before it, which more of the same soon after opens again
    streak   anomalous windows in a row that are severe enough to open one, and where they start, ns
    calm     windows in a row that are not strange enough to keep it open, while an episode is open
    untold   windows since the episode was last told
    weights  severity-weighted shares of the subsystems over the episode
    last_ns  end of the last window, ns
    """

    settings: PipelineSettings
    open: Episode | None = None
    closed: Episode | None = None
    streak: int = 0
    streak_start_ns: int = 0
    calm: int = 0
    untold: int = 0
    weights: dict[str, float] = field(default_factory=dict)
    last_ns: int = 0

    def follow(self, verdict: Verdict, told: tuple[Evidence, ...], explanation: str) -> list[Episode]:
        """New states of the host's episode after a verdict; `told` and `explanation` are of its window."""
        episodes = self._after_gap(verdict)
        if self.open is not None:
            episodes += self._continue(verdict, told, explanation)
        elif verdict.anomalous and verdict.severity >= self.settings.open_severity:
            episodes += self._count(verdict, told, explanation)
        else:
            self.streak = 0
        return episodes

    def end(self, why: str) -> list[Episode]:
        """Close what is open, and say why."""
        self.streak = 0
        if self.open is None:
            return []
        self.open = replace(self.open, explanation=f"{self.open.explanation}. {why}")
        return [self._close()]

    def state(self) -> dict[str, Any]:
        """Everything needed to go on, as JSON values."""
        return {
            "open": asdict(self.open) if self.open else None,
            "closed": asdict(self.closed) if self.closed else None,
            "streak": self.streak,
            "streak_start_ns": self.streak_start_ns,
            "calm": self.calm,
            "untold": self.untold,
            "weights": self.weights,
            "last_ns": self.last_ns,
        }

    @classmethod
    def restore(cls, settings: PipelineSettings, state: Mapping[str, Any]) -> Tracker:
        """The tracker that `state` came from."""
        episodes = {name: _episode(state[name]) for name in ("open", "closed")}
        return cls(settings, **{**state, **episodes})

    def _after_gap(self, verdict: Verdict) -> list[Episode]:
        gap_s = (verdict.window_start_ns - self.last_ns) / SECOND_NS if self.last_ns else 0.0
        self.last_ns = verdict.window_end_ns
        if gap_s > 0:
            self.streak = 0
        return self.end(f"Closed because nothing came for {gap_s:.0f} s") if gap_s > self.settings.silence_s else []

    def _count(self, verdict: Verdict, told: tuple[Evidence, ...], explanation: str) -> list[Episode]:
        if self.streak == 0:
            # The window before was not anomalous, so what is strange began in the seconds that this one added.
            self.streak_start_ns = verdict.window_end_ns - self.settings.step_s * SECOND_NS
        self.streak += 1
        if self.streak < self.settings.open_windows:
            return []
        before = self.closed
        if before is not None and before.closed_ns is not None and before.subsystem == verdict.subsystem:
            pause_s = (self.streak_start_ns - before.closed_ns) / SECOND_NS
            if pause_s <= self.settings.reopen_s:
                self.open = replace(before, closed_ns=None)
                return self._continue(verdict, told, explanation)
        self.weights = {}
        self._weigh(verdict)
        identity = f"{verdict.host}\0{self.streak_start_ns}".encode()
        self.open = Episode(
            id=hashlib.blake2b(identity, digest_size=8).hexdigest(),
            revision=0,
            host=verdict.host,
            state="opened",
            start_ns=self.streak_start_ns,
            opened_ns=verdict.window_end_ns,
            updated_ns=verdict.window_end_ns,
            closed_ns=None,
            subsystem=verdict.subsystem or "",
            shares=dict(verdict.shares),
            windows=self.streak,
            votes={score.detector: int(score.vote) * self.streak for score in verdict.scores},
            severity=verdict.severity,
            peak_severity=verdict.severity,
            peak_ns=verdict.window_end_ns,
            model_version=verdict.model_version,
            explanation=explanation,
            evidence=told,
        )
        self.calm = self.streak = self.untold = 0
        return [self.open]

    def _continue(self, verdict: Verdict, told: tuple[Evidence, ...], explanation: str) -> list[Episode]:
        before = self.open
        assert before is not None
        # What is strange elsewhere does not prolong it: that is an episode of its own, once this one is closed.
        same = verdict.shares.get(before.subsystem, 0.0) >= SAME_SHARE
        if not same or verdict.severity < self.settings.close_severity:
            self.calm += 1
            if self.calm < self.settings.close_windows:
                return []
            return self.end("Closed because too little data comes") if verdict.state == "withheld" else [self._close()]
        self.calm = self.streak = 0
        self._weigh(verdict)
        total = sum(self.weights.values())
        shares = {name: weight / total for name, weight in self.weights.items()}
        episode = replace(
            before,
            state="updated",
            updated_ns=verdict.window_end_ns,
            windows=before.windows + 1,
            severity=verdict.severity,
            shares=shares,
            subsystem=max(shares, key=lambda name: shares[name]),
            votes={s.detector: before.votes.get(s.detector, 0) + int(s.vote) for s in verdict.scores},
        )
        higher = verdict.severity > before.peak_severity
        if higher:
            episode = replace(
                episode,
                peak_severity=verdict.severity,
                peak_ns=verdict.window_end_ns,
                explanation=explanation,
                evidence=told,
            )
        self.untold += 1
        self.open = episode
        reopened = before.state == "closed"
        if not (higher or reopened or episode.subsystem != before.subsystem or self.untold >= UPDATE_EVERY):
            return []
        self.untold = 0
        self.open = replace(episode, revision=episode.revision + 1)
        return [self.open]

    def _close(self) -> Episode:
        assert self.open is not None
        closed = replace(self.open, state="closed", revision=self.open.revision + 1, closed_ns=self.open.updated_ns)
        self.open, self.closed = None, closed
        self.calm = self.streak = self.untold = 0
        return closed

    def _weigh(self, verdict: Verdict) -> None:
        for name, share in verdict.shares.items():
            self.weights[name] = self.weights.get(name, 0.0) + share * verdict.severity


def _episode(values: Mapping[str, Any] | None) -> Episode | None:
    if values is None:
        return None
    return Episode(**{**values, "evidence": tuple(Evidence(**row) for row in values["evidence"])})
