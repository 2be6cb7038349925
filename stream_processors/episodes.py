"""Episodes: runs of anomalous windows of one host, with hysteresis, from opening to closing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from schemas.records import Episode, Evidence, Verdict
from schemas.settings import PipelineSettings
from stream_processors.seconds import SECOND_NS

UPDATE_EVERY = 5
"""An open episode is told again after this many anomalous windows, or when its peak or subsystem changes."""


@dataclass(slots=True)
class Tracker:
    """Follows the verdicts of one host and tells its episodes.

    streak   anomalous windows in a row that are severe enough to open one, with their first start, ns
    calm     windows in a row that are not strange enough to keep it open, while an episode is open
    open     the episode, as last told or changed
    """

    settings: PipelineSettings
    streak: int = 0
    streak_start_ns: int = 0
    calm: int = 0
    open: Episode | None = None
    untold: int = 0
    weights: dict[str, float] = field(default_factory=dict)

    def follow(self, verdict: Verdict, told: tuple[Evidence, ...], explanation: str) -> list[Episode]:
        """New states of the host's episode after a scored verdict; `told` and `explanation` are of this window."""
        if self.open is None:
            return self._maybe_open(verdict, told, explanation)
        if verdict.votes == 0 or verdict.severity < self.settings.close_severity:
            self.calm += 1
            if self.calm >= self.settings.close_windows:
                return [self._close()]
            return []
        self.calm = 0
        return self._continue(verdict, told, explanation)

    def silence(self) -> list[Episode]:
        """The host is silent: what is open is closed, and says so."""
        self.streak = 0
        if self.open is None:
            return []
        self.open = replace(self.open, explanation=f"{self.open.explanation}. Closed because the host fell silent")
        return [self._close()]

    def state(self) -> dict[str, Any]:
        """Everything needed to go on, as JSON values."""
        return {
            "streak": self.streak,
            "streak_start_ns": self.streak_start_ns,
            "calm": self.calm,
            "untold": self.untold,
            "weights": self.weights,
            "open": asdict(self.open) if self.open else None,
        }

    @classmethod
    def restore(cls, settings: PipelineSettings, state: Mapping[str, Any]) -> Tracker:
        """The tracker that `state` came from."""
        values = dict(state)
        if values["open"] is not None:
            values["open"] = Episode(
                **{**values["open"], "evidence": tuple(Evidence(**row) for row in values["open"]["evidence"])}
            )
        return cls(settings, **values)

    def _maybe_open(self, verdict: Verdict, told: tuple[Evidence, ...], explanation: str) -> list[Episode]:
        if not verdict.anomalous or verdict.severity < self.settings.open_severity:
            self.streak = 0
            return []
        if self.streak == 0:
            # The window before was not anomalous, so what is strange began in the seconds that this one added.
            self.streak_start_ns = verdict.window_end_ns - self.settings.step_s * SECOND_NS
        self.streak += 1
        if self.streak < self.settings.open_windows:
            return []
        self.calm = self.untold = 0
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
        self.streak = 0
        return [self.open]

    def _continue(self, verdict: Verdict, told: tuple[Evidence, ...], explanation: str) -> list[Episode]:
        before = self.open
        assert before is not None
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
        if not higher and episode.subsystem == before.subsystem and self.untold < UPDATE_EVERY:
            return []
        self.untold = 0
        self.open = replace(episode, revision=episode.revision + 1)
        return [self.open]

    def _close(self) -> Episode:
        assert self.open is not None
        closed = replace(self.open, state="closed", revision=self.open.revision + 1, closed_ns=self.open.updated_ns)
        self.open = None
        self.calm = self.streak = self.untold = 0
        self.weights = {}
        return closed

    def _weigh(self, verdict: Verdict) -> None:
        for name, share in verdict.shares.items():
            self.weights[name] = self.weights.get(name, 0.0) + share * verdict.severity
