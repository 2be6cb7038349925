"""One host: its windows, what it learns from, its baseline and its open episode."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from schemas.records import Episode, Event, StateRecord, Telemetry, Verdict
from schemas.settings import PipelineSettings
from stream_processors.amounts import settled
from stream_processors.attribution import Finding, attribute, examine, only_of, stands_out
from stream_processors.baseline import Baseline, severity
from stream_processors.causes import happened
from stream_processors.episodes import ORDINARY
from stream_processors.features import trends, window_features
from stream_processors.fitting import Fit, Fitter, Inline
from stream_processors.following import Following, Sight
from stream_processors.happenings import BEFORE_NS, KEPT_NS, SLOT, Happenings
from stream_processors.learning import Learner
from stream_processors.looks import Look, look, one_matters, only_words
from stream_processors.regime import Regimes
from stream_processors.rows import Row
from stream_processors.seconds import SECOND_NS, Second, Singles, reduce_batch
from stream_processors.signs import Happened
from stream_processors.windows import Window, Windows

ANOMALOUS_VOTES: Final = 2
BACKWARDS_LIMIT: Final = 10
"""So many messages of a subsystem in a row from before the newest one mean that the clock was set back, and are
followed.
"""
FORMER_SESSIONS: Final = 4
PROGRESS_EVERY: Final = 5
"""Windows, at most, that are worked out again after a crash."""
LASTS: Final = "Closed because it lasts: it is learnt as the new normal"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A host that was silent for so long that its state is dropped; `slots` are those it had."""

    host: str
    slots: tuple[str, ...]


Result = Verdict | Episode | StateRecord | Forgotten


class Misplaced(Exception):
    """A sound message that cannot be placed in time. `reason` is time-backwards or late."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Host:
    """State of one host. All it needs to go on after a restart leaves it as StateRecords: rows, models and events when
    they come to be, and its progress with each row, model and episode state, and otherwise every few windows.

    progressed  the progress told last covers all seconds before this one
    epoch       counts how often the host's clock was set back; what is of an earlier epoch is done with
    """

    def __init__(self, name: str, settings: PipelineSettings, fitter: Fitter = Inline) -> None:
        self.name = name
        self.settings = settings
        self.windows = Windows(settings)
        self.following = Following(settings)
        self.happenings = Happenings()
        self.learner = Learner(name, settings, fitter)
        self.regimes = Regimes(settings.phase_times)
        self.newest: dict[str, tuple[str, int, int]] = {}  # subsystem -> session, sequence, start_ns
        self.former: dict[str, list[str]] = {}  # subsystem -> sessions before that
        self.backwards: dict[str, int] = {}
        self.progressed = 0
        self.epoch = 0
        self._untold = 0  # windows since the last progress
        self._owed: list[Result] = []  # to be told with the next results

    def feed(self, batch: Telemetry, sent: float, read_to: float) -> tuple[list[Result], str]:
        """Results that the batch makes possible, and how it was taken: added, duplicate, or gap (messages before it
        are missing). It was sent at `sent`, s, and everything that was sent before `read_to` is read.

        Raises Misplaced for a message that cannot be placed in time.
        """
        seconds = reduce_batch(batch)
        how = self._order(batch, seconds)
        if how == "past":
            return self._results(()), "duplicate"
        taken = [self.windows.add(batch.subsystem, second, sent, read_to) for second in seconds]
        if how != "duplicate" and all(each == "late" for each in taken):
            detail = f"{batch.subsystem} of second {seconds[0].second} came after its windows were closed"
            raise Misplaced("late", detail)
        if "added" not in taken:
            how = "duplicate"
        return self._results(self.windows.close()), how

    @property
    def baseline(self) -> Baseline | None:
        """The model in use."""
        return self.learner.baseline

    def waits_for(self, second: int) -> Fit | None:
        """The fit that a message whose last second is `second` may have to wait for."""
        return self.learner.waits_for(second - self.settings.window_s + 1)

    def obey(self, pinned: int | None, model: StateRecord | None) -> list[Result]:
        """Keep the version `pinned`, which `model` holds, or with None learn on; the progress that says so.

        Raises ValueError, KeyError or TypeError if that is not the model asked for; then nothing changes.
        """
        self.learner.obey(pinned, model)
        return [*self._results(()), self._progress()]

    def happened(self, event: Event) -> list[Result]:
        """Keep `event` for the episodes that it may explain, and tell what is kept if that changed. An episode that is
        told before its event comes has it in its next state.
        """
        return [self.happenings.record(self.name)] if self.happenings.add(event, self._kept_since()) else []

    def _kept_since(self) -> int:
        """Events from then on, ns, may still be evidence."""
        since_ns = (self.windows.next_start or 0) * SECOND_NS - KEPT_NS
        # One that was closed a moment ago may go on.
        starts = [
            each.start_ns for each in self.following.known if each.closed_ns is None or each.closed_ns >= since_ns
        ]
        return min([since_ns, *(start - BEFORE_NS for start in starts)])

    def _happened(self, window: Window) -> Happened:
        """What the host's events tell of that may explain `window`, or the episode that is open."""
        start_ns = min([window.start * SECOND_NS, *(episode.start_ns for episode in self.following.open)])
        return happened(self.happenings.events.values(), start_ns - BEFORE_NS, window.end * SECOND_NS)

    def tick(self, read_to: float) -> list[Result]:
        """Results of time going on without a message: a new host is waited for, to see which subsystems it has, even
        if its stream has ended.
        """
        self.windows.wait(read_to)
        return self._results(self.windows.close())

    def silence(self) -> list[Result]:
        """The host sends nothing any more: its windows are closed as they are, and so is its episode."""
        results = self._results(self.windows.flush())
        results += map(self.happenings.told, self.following.end("Closed because the host fell silent"))
        return [*results, self._progress()] if results else []

    def slots(self) -> tuple[str, ...]:
        """Slots of the models topic that may hold something of this host."""
        return ("progress", SLOT, "model/0", "model/1", *(f"row/{slot}" for slot in range(self.settings.rows)))

    def restore(self, records: Iterable[StateRecord]) -> str | None:
        """Take up the state that `records`, the newest of every slot, describe. Says what was lost, if anything was:
        its place in time is kept, and it learns anew.

        Raises whatever a progress that is none trips over; the host is then of no use.
        """
        by_slot = {record.slot: record for record in records}
        lost = self._restore_events(by_slot.pop(SLOT, None))
        if not by_slot:
            return lost  # nothing but events came so far
        progress = by_slot.get("progress")
        if progress is None:
            return f"there is no progress among its {len(by_slot)} records"
        state = json.loads(progress.manifest)
        start = state["next_start"]
        self.windows.next_start = None if start is None else int(start)
        self.windows.expected = {str(name): int(second) for name, second in state["expected"].items()}
        self.newest = {name: (str(place[0]), int(place[1]), int(place[2])) for name, place in state["newest"].items()}
        self.former = {str(name): list(map(str, sessions)) for name, sessions in state["former"].items()}
        self.following = Following.restore(self.settings, state["tracker"])
        self.progressed, self.epoch = self.windows.next_start or 0, int(state["epoch"])
        try:
            self.learner.restore(by_slot, state)
            self.regimes = Regimes.restore(self.settings.phase_times, state.get("regimes"), progress.arrays)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            self.learner.relearn()
            self.regimes = Regimes(self.settings.phase_times)
            self._owed += self.following.end("Closed because the model of the host was lost")
            return f"{type(error).__name__}: {error}"
        return lost

    def _restore_events(self, record: StateRecord | None) -> str | None:
        try:
            self.happenings = Happenings.restore(record) if record is not None else Happenings()
        except (AttributeError, TypeError, ValueError) as error:
            return f"its events: {type(error).__name__}: {error}"
        return None

    def _order(self, batch: Telemetry, seconds: list[Second]) -> str:
        before = self.newest.get(batch.subsystem)
        if before is not None:
            session, sequence, start_ns = before
            if batch.start_ns <= start_ns and seconds[-1].second >= self.windows.open_from():
                return "duplicate"  # open windows may lack it: read again after a restart, or from a second agent
            if batch.session == session:
                read = batch.sequence <= sequence
            else:
                read = batch.session in self.former.get(batch.subsystem, ())
            if read:
                return "past"  # read again after a restart: covered, or of an earlier epoch
            if batch.start_ns <= start_ns:
                self._backwards(batch, (start_ns - batch.start_ns) / SECOND_NS)
            if batch.session != session:
                self.former[batch.subsystem] = [*self.former.get(batch.subsystem, ()), session][-FORMER_SESSIONS:]
        self.backwards.pop(batch.subsystem, None)
        self.newest[batch.subsystem] = (batch.session, batch.sequence, batch.start_ns)
        follows = before is None or batch.session != before[0] or batch.sequence == before[1] + 1
        return "added" if follows else "gap"

    def _backwards(self, batch: Telemetry, by_s: float) -> None:
        strikes = self.backwards[batch.subsystem] = self.backwards.get(batch.subsystem, 0) + 1
        if strikes < BACKWARDS_LIMIT:
            detail = f"{batch.subsystem} begins {by_s:.1f} s before the message that went before it"
            raise Misplaced("time-backwards", detail)
        self.windows.restart(batch.start_ns // SECOND_NS)
        self.learner.restart(batch.start_ns // SECOND_NS)
        # What was read is still known, but says nothing about the time of what comes.
        self.newest = {name: (session, sequence, 0) for name, (session, sequence, _) in self.newest.items()}
        self.backwards.clear()
        self.epoch += 1
        if self.happenings.events:
            self.happenings = Happenings()
            self._owed.append(self.happenings.record(self.name))
        self._owed.append(self._progress())

    def _results(self, windows: Iterable[Window]) -> list[Result]:
        results: list[Result] = self._owed
        self._owed = []
        if results and not isinstance(results[-1], StateRecord):
            results.append(self._progress())
        for window in windows:
            try:
                fresh: list[Result] = list(self.learner.adopt(window.start))
            except Exception as error:  # the model in use stays
                fresh = self._withhold(window, f"the model could not be fitted: {type(error).__name__}: {error}")
            else:
                if fresh:
                    self.regimes.end()
                fresh += self._judge_safely(window)
            results += fresh
            self._untold += 1
            # Progress is told with everything it must agree with, and otherwise now and then: it is written most.
            if self._untold >= PROGRESS_EVERY or any(not isinstance(each, Verdict) for each in fresh):
                results.append(self._progress())
        return [self.happenings.told(each) if isinstance(each, Episode) else each for each in results]

    def _judge_safely(self, window: Window) -> list[Result]:
        before = self.following.copy()
        try:
            return self._judge(window)
        except Exception as error:  # a fault of ours must cost no window, and no other host
            self.following = before  # what it has followed is not told
            reason = f"fault in the pipeline: {type(error).__name__}: {error}"
            return self._withhold(window, reason)

    def _verdict(self, window: Window, state: str, reason: str = "", **judged: Any) -> Verdict:
        return Verdict(
            host=self.name,
            window_start_ns=window.start * SECOND_NS,
            window_end_ns=window.end * SECOND_NS,
            state=state,
            reason=reason,
            coverage=window.coverage,
            model_version=self.baseline.version if self.baseline else 0,
            **judged,
        )

    def _withhold(self, window: Window, reason: str) -> list[Result]:
        verdict = self._verdict(window, "withheld", reason)
        verdict, episodes = self.following.follow(verdict)
        return [verdict, *episodes]

    def _judge(self, window: Window) -> list[Result]:
        if window.coverage < self.settings.coverage:
            lacking = f"; nothing from {', '.join(window.missing)}" if window.missing else ""
            needed = f"{self.settings.coverage:.0%} are needed{lacking}"
            return self._withhold(window, f"{window.coverage:.0%} of the samples are there, {needed}")
        features = window_features(window.stats)
        if self.baseline is None:
            warming = self._verdict(window, "warming", self.learner.why_silent())
            return [warming, *self._learn(window, features)]
        self.learner.since_fit += 1
        deviations = self.learner.deviations(features)
        strange = self.learner.settle(deviations)
        verdict, strangeness, telling = self._score(window, strange)
        seen = self._look(deviations, window) if verdict.anomalous else None
        if seen is not None:
            if not self.following.open and (why := self.regimes.burst(seen, window.start)):
                return self._changed(window, features, verdict, why)
            change = self.regimes.change(seen, window.start)
            rest = self.regimes.rest(deviations, window.start) if self.regimes.changing else None
            if change:
                if rest is None or not stands_out(rest):
                    return self._changed(window, features, verdict, change)
                beside, strangeness, telling = self._score(window, rest)
                if not beside.anomalous:
                    return self._changed(window, features, verdict, change)
                verdict, strange, seen = beside, rest, self._look(rest, window)
                if change := self.regimes.phase(seen, window.start):
                    return self._changed(window, features, verdict, change)
            elif self.regimes.changing and seen.words:
                strange = only_words(strange, rest)
        show = None
        if verdict.anomalous or (telling and self.following.open):
            attribution = attribute(strange, strangeness)
            verdict = replace(verdict, subsystem=attribution.subsystem, shares=attribution.shares)
            unclear = seen is not None and self.regimes.may_begin(seen, self.settings.window_s // self.settings.step_s)
            newest = self._newest(window, strange) if verdict.anomalous else None
            show = partial(self._sight, window, features, strange, strangeness, newest=newest, unclear=unclear)
        verdict, episodes = self.following.follow(verdict, show)
        self._remember(seen, episodes, window)
        results: list[Result] = [verdict, *episodes]
        if self.following.open:
            # A fault does not become normal because it lasts.
            results += self._new_normal(window)
        elif not verdict.anomalous:
            # What was flagged is never learnt.
            if not self.regimes.changing:
                results += self._learn(window, features)
            elif self.regimes.as_before():
                self.regimes.end()
                self.learner.go_back()
        return results

    def _score(self, window: Window, deviations: Singles) -> tuple[Verdict, Mapping[str, float], bool]:
        """Verdict of a window with these deviations, how strange each subsystem is, and whether anything is to be told
        of it.
        """
        assert self.baseline is not None
        scores, strangeness = self.baseline.score(deviations)
        votes = sum(score.vote for score in scores)
        severe = severity(strangeness, len(strangeness))
        telling = (votes > 0 or severe >= self.settings.close_severity) and stands_out(deviations)
        # What is left of something that is over is another level, to be learnt: nothing begins with it.
        begins = telling and (bool(self.following.open) or not settled(deviations))
        verdict = self._verdict(
            window,
            "scored",
            scores=scores,
            votes=votes,
            severity=severe,
            anomalous=begins and (votes >= ANOMALOUS_VOTES or severe >= self.settings.open_severity),
        )
        return verdict, strangeness, telling

    def _newest(self, window: Window, strange: Singles) -> Mapping[str, float] | None:
        """How strange the newest second of a window is by itself, by subsystem; None where that says nothing, since a
        single event of what is strange matters.
        """
        assert self.baseline is not None
        if window.newest is None or one_matters(strange):
            return None
        features = window_features(window.newest)
        # A slope over ten samples is steeper by chance than one over thirty.
        features[trends()] = np.nan
        deviations = self.learner.settled(self.learner.deviations(features))
        return self.baseline.score(deviations)[1]

    def _look(self, deviations: Singles, window: Window) -> Look:
        assert self.baseline is not None
        return self.regimes.hear(look(deviations, self.baseline.shares(deviations)), window.start)

    def _new_normal(self, window: Window) -> list[Episode]:
        """Ends episodes that lasted so long that what they are of is learnt."""
        longest, step_s = self.settings.regime_windows, self.settings.step_s
        since_change_s = window.start - self.regimes.since if self.regimes.changing else 0
        # A job that changed everything has phases, each of which may have been an episode of its own.
        changed = since_change_s >= longest * step_s
        if not changed and all(episode.windows < longest for episode in self.following.open):
            return []
        if not self.regimes.accept(window.start, longest * step_s):
            return []
        self.learner.begin_anew()
        return self.following.end(LASTS, lambda episode: changed or episode.windows >= longest)

    def _sight(
        self,
        window: Window,
        features: Singles,
        deviations: Singles,
        strangeness: Mapping[str, float],
        seen: frozenset[str],
        *,
        newest: Mapping[str, float] | None,
        unclear: bool,
    ) -> Sight:
        """What the subsystems `seen` show of a window."""
        shown = {name: strange for name, strange in strangeness.items() if name in seen}
        if not shown or self.baseline is None:
            return Sight(0.0, {}, Finding())
        part = deviations if len(shown) == len(strangeness) else only_of(deviations, seen)
        severe = severity(shown, len(strangeness))
        if not stands_out(part):
            return Sight(severe, {}, Finding())
        finding = examine(features, part, self.baseline, window, strangeness=shown, happened=self._happened(window))
        over = False
        if newest is not None:
            over = severity({name: newest[name] for name in shown}, len(newest)) < max(ORDINARY, severe / 2)
        return Sight(severe, attribute(part, shown).shares, replace(finding, unclear=unclear, over=over))

    def _changed(self, window: Window, features: Singles, verdict: Verdict, why: str) -> list[Result]:
        """The window is unusual, but no anomaly."""
        if self.regimes.changing:
            if self.regimes.begun == window.start or not self.learner.anew:
                self.learner.begin_anew()
            why = f"{why}; {self.learner.how_anew()}"
        verdict = replace(verdict, state="changed", reason=why, anomalous=False)
        verdict, episodes = self.following.follow(verdict)
        self._remember(None, episodes, window)
        learnt = self._learn(window, features) if self.regimes.changing and self.learner.anew else []
        return [verdict, *episodes, *learnt]

    def _remember(self, seen: Look | None, episodes: Iterable[Episode], window: Window) -> None:
        """What an anomalous window looks like, and what of it became of an episode."""
        if seen is not None:
            self.regimes.strange(seen)
        if any(episode.state == "closed" for episode in episodes):
            self.regimes.closed(window.start)
        elif seen is None and not self.following.open:
            self.regimes.calm(window.start)

    def _learn(self, window: Window, features: Singles) -> list[StateRecord]:
        if not self.learner.takes_row():
            return []
        return self.learner.take(Row.of(window, features, levels=self.learner.takes_levels()))

    def _progress(self) -> StateRecord:
        state = {
            "next_start": self.windows.next_start,
            "expected": self.windows.expected,
            "newest": self.newest,
            "former": self.former,
            "tracker": self.following.state(),
            "epoch": self.epoch,
            **self.learner.state(),
        }
        state["regimes"], arrays = self.regimes.state()
        arrays |= self.learner.arrays()
        self.progressed, self._untold = self.windows.next_start or 0, 0
        return StateRecord(self.name, "progress", json.dumps(state), arrays)
