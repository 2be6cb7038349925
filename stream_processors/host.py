"""One host: its windows, what it learns from, its baseline and its open episode."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from math import log10
from statistics import fmean
from typing import Any

from schemas.records import Episode, StateRecord, Telemetry, Verdict
from schemas.settings import PipelineSettings
from stream_processors.attribution import attribute, evidence, explain
from stream_processors.baseline import Baseline
from stream_processors.episodes import Tracker
from stream_processors.features import window_features
from stream_processors.rows import Row
from stream_processors.seconds import SECOND_NS, reduce_batch
from stream_processors.windows import Window, Windows

Result = Verdict | Episode | StateRecord

ANOMALOUS_VOTES = 2
BACKWARDS_LIMIT = 10
"""So many messages in a row from before the newest one mean that the clock was set back, and are followed."""

PROGRESS_EVERY = 5
"""Windows, at most, that are worked out again after a crash."""


class Misplaced(Exception):
    """A sound message that cannot be placed in time. `reason` is time-backwards or late."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Host:
    """State of one host. Everything it needs to go on after a restart leaves it as StateRecords: rows and models when
    they come to be, and its
    progress after every window."""

    def __init__(self, name: str, settings: PipelineSettings) -> None:
        self.name = name
        self.settings = settings
        self.windows = Windows(settings)
        self.tracker = Tracker(settings)
        self.baseline: Baseline | None = None
        self.rows: dict[int, Row] = {}
        self.learnt = 0  # rows ever taken
        self.calm_windows = 0  # windows since the last row
        self.since_fit = 0
        self.newest: dict[str, tuple[str, int, int]] = {}  # subsystem -> session, sequence, start_ns
        self.backwards = 0
        self.progressed: int | None = None  # the progress last told covers all windows that start before it
        self.untold = 0  # windows since

    def feed(self, batch: Telemetry, arrived: float) -> tuple[list[Result], str]:
        """Results that the batch makes possible, and how it was taken: added, duplicate, or gap (messages before it
        are missing).

        Raises Misplaced for a message that cannot be placed in time.
        """
        how = self._order(batch)
        seconds = reduce_batch(batch)
        taken = [self.windows.add(batch.subsystem, second, arrived) for second in seconds]
        if how != "duplicate" and all(each == "late" for each in taken):
            raise Misplaced(
                "late", f"{batch.subsystem} of second {seconds[0].second} came after its windows were closed"
            )
        if "added" not in taken:
            how = "duplicate"
        return self._results(self.windows.close()), how

    def pause_before(self, batch: Telemetry) -> float:
        """Time from the newest sample of any subsystem to the first of `batch`, s; 0 when nothing was heard yet."""
        newest = max((start_ns for _, _, start_ns in self.newest.values()), default=batch.start_ns)
        return (batch.start_ns - newest) / SECOND_NS

    def tick(self, now: float) -> list[Result]:
        """Results of time going on without a message: a new host is waited for, to see which subsystems it has, even
        if its stream has ended.
        """
        if self.windows.expected:
            return []
        self.windows.wait(now)
        return self._results(self.windows.close())

    def silence(self) -> list[Result]:
        """The host sends nothing any more: its windows are closed as they are, and so is its episode."""
        results = self._judge_all(self.windows.flush()) + self.tracker.silence()
        return [*results, self._progress()] if results else []

    def restore(self, records: Iterable[StateRecord]) -> None:
        """Take up the state that `records`, the newest of every slot, describe. Records made for another catalogue
        are passed over: the host then
        learns anew. Raises ValueError, KeyError or TypeError for what is no state."""
        by_slot = {record.slot: record for record in records}
        progress = by_slot.get("progress")
        if progress is None:
            return
        state = json.loads(progress.manifest)
        self.windows.next_start = self.progressed = state["next_start"]
        self.windows.expected = dict(state["expected"])
        self.newest = {name: (place[0], place[1], place[2]) for name, place in state["newest"].items()}
        self.tracker = Tracker.restore(self.settings, state["tracker"])
        self.learnt, self.calm_windows, self.since_fit = state["learnt"], state["calm_windows"], state["since_fit"]
        for slot in range(min(self.learnt, self.settings.rows)):
            self.rows[slot] = Row.restore(by_slot[f"row/{slot}"])
        if state["version"]:
            self.baseline = Baseline.restore(by_slot[f"model/{state['version'] % 2}"])

    def _order(self, batch: Telemetry) -> str:
        place = (batch.session, batch.sequence, batch.start_ns)
        before = self.newest.get(batch.subsystem)
        if before is None:
            self.newest[batch.subsystem] = place
            return "added"
        session, sequence, start_ns = before
        if batch.session == session and batch.sequence <= sequence:
            return "duplicate"
        if batch.start_ns <= start_ns:
            self.backwards += 1
            if self.backwards < BACKWARDS_LIMIT:
                seconds = (start_ns - batch.start_ns) / SECOND_NS
                raise Misplaced(
                    "time-backwards", f"{batch.subsystem} begins {seconds:.1f} s before the message that went before it"
                )
            self.windows.restart(batch.start_ns // SECOND_NS)
            self.newest.clear()
        self.backwards = 0
        self.newest[batch.subsystem] = place
        return "gap" if batch.session == session and batch.sequence > sequence + 1 else "added"

    def _results(self, windows: Iterable[Window]) -> list[Result]:
        results = self._judge_all(windows)
        # Progress is told with everything it must agree with, and otherwise now and then: it is what is written most.
        if self.untold >= PROGRESS_EVERY or any(not isinstance(each, Verdict) for each in results):
            results.append(self._progress())
        return results

    def _judge_all(self, windows: Iterable[Window]) -> list[Result]:
        results: list[Result] = []
        for window in windows:
            self.untold += 1
            results += self._judge(window)
        return results

    def _judge(self, window: Window) -> list[Result]:
        results: list[Result] = []
        common: dict[str, Any] = {
            "host": self.name,
            "window_start_ns": window.start * SECOND_NS,
            "window_end_ns": window.end * SECOND_NS,
            "coverage": window.coverage,
            "model_version": self.baseline.version if self.baseline else 0,
        }
        if window.coverage < self.settings.coverage:
            lacking = f"; nothing from {', '.join(window.missing)}" if window.missing else ""
            reason = f"{window.coverage:.0%} of the samples are there, {self.settings.coverage:.0%} are needed{lacking}"
            return [Verdict(**common, state="withheld", reason=reason)]
        features = window_features(window.stats)
        if self.baseline is None:
            results.append(
                Verdict(
                    **common,
                    state="warming",
                    reason=f"learning what is normal: window {self.learnt + 1} of {self.settings.warmup_windows}",
                )
            )
            results += self._learn(Row.of(window, features))
            return results
        deviations = self.baseline.deviations(features)
        scores = self.baseline.score(deviations)
        votes = sum(score.vote for score in scores)
        anomalous = votes >= ANOMALOUS_VOTES
        verdict = Verdict(
            **common,
            state="scored",
            scores=scores,
            votes=votes,
            severity=fmean(-log10(score.tail_probability) for score in scores),
            anomalous=anomalous,
        )
        rows: tuple[Any, ...] = ()
        explanation = ""
        if anomalous or (votes and self.tracker.open is not None):
            attribution = attribute(deviations)
            rows = evidence(features, deviations, self.baseline, window)
            explanation = explain(self.name, attribution, rows)
            verdict = replace(verdict, subsystem=attribution.subsystem, shares=attribution.shares)
        episodes = self.tracker.follow(verdict, rows, explanation)
        if self.tracker.open is not None and verdict.subsystem is not None:
            verdict = replace(verdict, episode=self.tracker.open.id)
        results.append(verdict)
        results += episodes
        self.since_fit += 1
        if not anomalous and self.tracker.open is None:
            self.calm_windows += 1
            if self.calm_windows >= self.settings.row_every:
                results += self._learn(Row.of(window, features))
        return results

    def _learn(self, row: Row) -> list[Result]:
        slot = self.learnt % self.settings.rows
        self.rows[slot] = row
        self.learnt += 1
        self.calm_windows = 0
        results: list[Result] = [row.record(self.name, f"row/{slot}")]
        due = self.learnt >= self.settings.warmup_windows and self.baseline is None
        if due or (self.baseline is not None and self.since_fit >= self.settings.refit_windows):
            version = self.baseline.version + 1 if self.baseline else 1
            rows = sorted(self.rows.values(), key=lambda each: each.start)
            self.baseline = Baseline.fit(rows, version, self.settings)
            self.since_fit = 0
            results.append(self.baseline.record(self.name, f"model/{version % 2}"))
        return results

    def _progress(self) -> StateRecord:
        state = {
            "next_start": self.windows.next_start,
            "expected": self.windows.expected,
            "newest": self.newest,
            "tracker": self.tracker.state(),
            "learnt": self.learnt,
            "calm_windows": self.calm_windows,
            "since_fit": self.since_fit,
            "version": self.baseline.version if self.baseline else 0,
        }
        self.progressed, self.untold = self.windows.next_start, 0
        return StateRecord(self.name, "progress", json.dumps(state), {})
