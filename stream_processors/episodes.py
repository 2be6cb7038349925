"""Episodes: runs of anomalous windows of one host, with hysteresis, from opening to closing, and their probable cause.

What windows say of causes is summed up over an episode, the severe ones counting most and old ones slowly less, so
that neither an odd window nor what a fault does when it ends renames it. A cause that is named also names the
subsystem; the shares stay as they were measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from schemas.records import Episode, Evidence, Verdict
from schemas.settings import PipelineSettings
from stream_processors.attribution import Finding, merged
from stream_processors.causes import NAMED, causes, ranked
from stream_processors.explanation import explained
from stream_processors.seconds import SECOND_NS

ORDINARY = 2.0
"""One ordinary window in a hundred is as severe; what is beyond counts towards an episode."""
SAME_SHARE = 0.35
"""A window goes on with an episode when their shares of subsystems overlap at least so far."""
UPDATE_EVERY = 5
"""An open episode is told again after this many anomalous windows, or when its peak, subsystem or cause changes."""
FADING = 0.97
"""What a window says of causes counts this much less with each that follows."""
SETTLED = 10
"""After so many windows, or once it was closed, an episode keeps the cause that was named, since faults have
after-effects, until another one has held for more of it. A symptom does not take the place of a cause.
"""
CANDIDATE = 0.2
"""A cause that fits so well is told as a candidate."""
MOST_CANDIDATES = 5
REST = 20
"""An episode ends when so many windows in a row are only what is left of it."""
CALM_NS = 10 * SECOND_NS
"""A metric that was calm for so long is dated anew when it becomes strange again."""


@dataclass(slots=True)
class Tracker:
    """Follows verdicts and tells of one episode after the other; nothing that it holds is changed in place.

    An episode opens by the cumulative sum (Page, Continuous inspection schemes, 1954) of what anomalous windows are
    beyond ORDINARY: `open_windows` of `open_severity` open one, and weaker ones do if they last. It takes a window more
    where no cause is likely, and only windows count of which the newest second is still strange by itself: something
    that takes a moment is in as many windows as share its samples.

    open     the episode, as last told or changed
    closed   the one before it, which more of the same soon after opens again
    sum      cumulative sum, while no episode is open
    streak   anomalous windows in it, and where the first one starts, ns
    calm     windows in a row that are not strange enough to keep it open, or to count
    rest     windows in a row that are only what is left of it
    untold   windows since the episode was last told
    weights  severity-weighted shares of the subsystems over the episode
    fits     by cause, sum of how well it fits the windows, weighted by severity and fading
    heard    sum of those weights
    held     the same sum as in fits over all of the episode, without fading
    since    by metric, the first second in which it was strange, ns, and the last
    last_ns  end of the last window, ns
    """

    settings: PipelineSettings
    open: Episode | None = None
    closed: Episode | None = None
    sum: float = 0.0
    streak: int = 0
    streak_start_ns: int = 0
    calm: int = 0
    rest: int = 0
    untold: int = 0
    weights: dict[str, float] = field(default_factory=dict)
    fits: dict[str, float] = field(default_factory=dict)
    heard: float = 0.0
    held: dict[str, float] = field(default_factory=dict)
    since: dict[str, tuple[int, int]] = field(default_factory=dict)
    last_ns: int = 0

    def follow(self, verdict: Verdict, finding: Finding) -> list[Episode]:
        """New states of the host's episode after a verdict; `finding` is of its window."""
        episodes = self._after_gap(verdict)
        if self.open is not None:
            return episodes + self._continue(verdict, finding)
        gain = verdict.severity - ORDINARY
        counts = verdict.anomalous and not finding.over
        self.sum += gain if counts else min(gain, 0.0)
        self.calm = 0 if verdict.anomalous else self.calm + 1
        # Windows that are so far apart have no sample in common.
        apart = self.calm * self.settings.step_s >= self.settings.window_s
        if self.sum <= 0 or apart or verdict.state != "scored":
            self.sum, self.streak = 0.0, 0
        elif counts:
            episodes += self._count(verdict, finding)
        return episodes

    def end(self, why: str) -> list[Episode]:
        """Close what is open, and say why."""
        self.sum, self.streak = 0.0, 0
        if self.open is None:
            return []
        closed = self._close()
        self.closed = replace(closed, explanation=f"{closed.explanation}. {why}")
        return [self.closed]

    def state(self) -> dict[str, Any]:
        """Everything needed to go on, as JSON values."""
        return {
            "open": asdict(self.open) if self.open else None,
            "closed": asdict(self.closed) if self.closed else None,
            "sum": self.sum,
            "streak": self.streak,
            "streak_start_ns": self.streak_start_ns,
            "calm": self.calm,
            "rest": self.rest,
            "untold": self.untold,
            "weights": self.weights,
            "fits": self.fits,
            "heard": self.heard,
            "held": self.held,
            "since": self.since,
            "last_ns": self.last_ns,
        }

    @classmethod
    def restore(cls, settings: PipelineSettings, state: Mapping[str, Any]) -> Tracker:
        """The tracker that `state` came from."""
        changed: dict[str, Any] = {name: _episode(state[name]) for name in ("open", "closed")}
        # State of a version before had no causes.
        changed["since"] = {name: (first, last) for name, (first, last) in state.get("since", {}).items()}
        return cls(settings, **{**state, **changed})

    def _after_gap(self, verdict: Verdict) -> list[Episode]:
        gap_s = (verdict.window_start_ns - self.last_ns) / SECOND_NS if self.last_ns else 0.0
        self.last_ns = verdict.window_end_ns
        if gap_s > 0:
            self.sum, self.streak = 0.0, 0
        return self.end(f"Closed because nothing came for {gap_s:.0f} s") if gap_s > self.settings.silence_s else []

    def _count(self, verdict: Verdict, finding: Finding) -> list[Episode]:
        begin_ns = verdict.window_end_ns - self.settings.step_s * SECOND_NS
        if self.streak == 0:
            # The window before was not anomalous, so what is strange began in the seconds that this one added.
            self.streak_start_ns = begin_ns
            self.weights, self.fits, self.heard, self.held, self.since = {}, {}, 0.0, {}, {}
        self.streak += 1
        self._note(verdict, finding)
        settings = self.settings
        enough = settings.open_windows * (settings.open_severity - ORDINARY)
        likely = max(self.fits.values(), default=0.0) >= CANDIDATE * self.heard
        needed = settings.open_windows if likely else settings.open_windows + 1
        if finding.unclear or self.streak < needed or self.sum < enough:
            return []
        before = self.closed
        if before is not None and before.closed_ns is not None:
            pause_s = (self.streak_start_ns - before.closed_ns) / SECOND_NS
            if pause_s <= self.settings.reopen_s and _overlap(before.shares, verdict.shares) >= SAME_SHARE:
                self._take_up(before)
                return self._continue(verdict, finding)
        self.open = self._judged(
            Episode(
                id=hashlib.blake2b(f"{verdict.host}\0{self.streak_start_ns}".encode(), digest_size=8).hexdigest(),
                revision=0,
                host=verdict.host,
                state="opened",
                start_ns=self.streak_start_ns,
                opened_ns=verdict.window_end_ns,
                updated_ns=verdict.window_end_ns,
                closed_ns=None,
                subsystem=verdict.subsystem or "",
                shares={},
                windows=self.streak,
                votes={score.detector: int(score.vote) * self.streak for score in verdict.scores},
                severity=verdict.severity,
                peak_severity=verdict.severity,
                peak_ns=verdict.window_end_ns,
                model_version=verdict.model_version,
            ),
            finding,
        )
        self.open = explained(self.open)
        self.sum = 0.0
        self.calm = self.streak = self.rest = self.untold = 0
        return [self.open]

    def _continue(self, verdict: Verdict, finding: Finding) -> list[Episode]:
        before = self.open
        assert before is not None
        if verdict.state == "withheld":
            # A fault that starves the agent is not over because little is heard of the host.
            unheard_s = (verdict.window_end_ns - before.updated_ns) / SECOND_NS
            return self.end("Closed because too little data comes") if unheard_s > self.settings.silence_s else []
        # What is strange elsewhere does not prolong it: that is an episode of its own, once this one is closed.
        same = _overlap(before.shares, verdict.shares) >= SAME_SHARE
        severe = verdict.severity >= min(self.settings.close_severity, before.peak_severity / 2)
        if not same or not (severe or verdict.anomalous):
            self.calm += 1
            return [] if self.calm < self.settings.close_windows else [self._close()]
        self.rest = self.rest + 1 if finding.settled else 0
        if self.rest >= REST:
            return self.end("Closed because what is left is another level")
        reopened = before.state == "closed"
        if not reopened:
            self._note(verdict, finding)
        self.sum, self.calm, self.streak = 0.0, 0, 0
        higher = verdict.severity > before.peak_severity
        episode = self._judged(
            replace(
                before,
                state="updated",
                updated_ns=verdict.window_end_ns,
                windows=before.windows + 1,
                severity=verdict.severity,
                peak_severity=max(verdict.severity, before.peak_severity),
                peak_ns=verdict.window_end_ns if higher else before.peak_ns,
                votes={s.detector: before.votes.get(s.detector, 0) + int(s.vote) for s in verdict.scores},
            ),
            finding,
        )
        self.untold += 1
        self.open = episode
        changed = (episode.subsystem, episode.cause) != (before.subsystem, before.cause)
        if not (higher or reopened or changed or self.untold >= UPDATE_EVERY):
            return []
        self.untold = 0
        self.open = explained(replace(episode, revision=episode.revision + 1))
        return [self.open]

    def _close(self) -> Episode:
        assert self.open is not None
        last = self.open
        closed = replace(last, state="closed", revision=last.revision + 1, closed_ns=last.updated_ns)
        self.open, self.closed = None, explained(closed)
        self.calm = self.streak = self.rest = self.untold = 0
        return self.closed

    def _note(self, verdict: Verdict, finding: Finding) -> None:
        """Add what a window says of subsystems and causes, and which metrics were strange in it."""
        weight = verdict.severity
        self.weights = _sum(self.weights, verdict.shares, weight)
        self.heard = FADING * self.heard + weight
        self.fits = {
            name: total
            for name in causes()
            if (total := FADING * self.fits.get(name, 0.0) + weight * finding.fits.get(name, 0.0)) > 0
        }
        self.held = _sum(self.held, finding.fits, weight)
        begin_ns = verdict.window_end_ns - self.settings.step_s * SECOND_NS
        kept = {name: (first, last) for name, (first, last) in self.since.items() if begin_ns - last <= CALM_NS}
        self.since = kept | {name: (kept[name][0] if name in kept else begin_ns, begin_ns) for name in finding.strange}

    def _take_up(self, before: Episode) -> None:
        """Go on with `before`, which was closed a moment ago, and with what was known of it."""
        self.open = replace(before, closed_ns=None)
        weight = before.peak_severity * before.windows
        self.weights = _sum(self.weights, before.shares, weight)
        heard = before.peak_severity * (1 - FADING**before.windows) / (1 - FADING)
        self.heard += heard
        self.fits = _sum(self.fits, before.candidates, heard)
        self.held = _sum(self.held, before.candidates, weight)

    def _judged(self, episode: Episode, finding: Finding) -> Episode:
        """`episode` with subsystem, cause and evidence as they stand."""
        total = sum(self.weights.values()) or 1.0
        shares = {name: weight / total for name, weight in self.weights.items()}
        told = {name: round(fit / self.heard, 3) for name, fit in self.fits.items()} if self.heard else {}
        order = ranked(told)
        cause = next(iter(name for name in order if told[name] >= NAMED), None)
        confidence = told[cause] if cause else 0.0
        taken_up = self.closed is not None and self.closed.id == episode.id
        if episode.cause is not None and (episode.windows > SETTLED or taken_up) and not self._renames(episode, cause):
            cause, confidence = episode.cause, told.get(episode.cause, 0.0)
            confidence = confidence if confidence >= NAMED else episode.confidence  # it fades out
        measured = max(shares, key=lambda name: shares[name]) if shares else episode.subsystem
        rows = [replace(row, since_ns=self.since[row.metric][0]) for row in finding.rows if row.metric in self.since]
        return replace(
            episode,
            subsystem=(causes()[cause].subsystem(shares) if cause else None) or measured,
            shares=shares,
            cause=cause,
            confidence=confidence,
            candidates={name: told[name] for name in order[:MOST_CANDIDATES] if told[name] >= CANDIDATE},
            evidence=merged(episode.evidence, rows, cause),
        )

    def _renames(self, episode: Episode, cause: str | None) -> bool:
        """Whether `cause` takes the place of the one that the episode has had for some time."""
        if cause is None or episode.cause is None:
            return False
        symptom, was_symptom = causes()[cause].fallback, causes()[episode.cause].fallback
        if symptom != was_symptom:
            return was_symptom
        return self.held.get(cause, 0.0) >= self.held.get(episode.cause, 0.0)


def _sum(one: Mapping[str, float], other: Mapping[str, float], times: float) -> dict[str, float]:
    return {name: one.get(name, 0.0) + times * other.get(name, 0.0) for name in {**one, **other}}


def _overlap(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """What two distributions over subsystems have in common, 0 to 1."""
    return sum(min(share, other.get(name, 0.0)) for name, share in one.items())


def _episode(values: Mapping[str, Any] | None) -> Episode | None:
    if values is None:
        return None
    evidence = tuple(Evidence(**row) for row in values["evidence"])
    return Episode(**{**values, "evidence": evidence, "checks": tuple(values.get("checks", ()))})
