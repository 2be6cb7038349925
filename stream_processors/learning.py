"""What one host learns from, and its baselines in the course of time: the first fit, refits, pinned versions."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.records import StateRecord
from schemas.settings import PipelineSettings
from stream_processors.amounts import amount_levels, amount_places
from stream_processors.baseline import Baseline
from stream_processors.compiled import compiled
from stream_processors.features import feature_table
from stream_processors.fitting import Fit, Fitter
from stream_processors.looks import speaking
from stream_processors.rows import Row, feature_matrix
from stream_processors.seconds import Singles
from stream_processors.shapes import packed, unpacked

MODEL_SLOTS: Final = 2
"""The model in use and the one before it stay in the topic."""
LEVELS_EVERY: Final = 8
"""One row in so many has the levels of instances: on a large host they are most of it, and need not be known as well.
"""
DRIFT_ROWS: Final = 12
DRIFT_S: Final = 60
"""The newest rows, so many and of so long a time at least, whose median says where the host is now."""
DRIFT_EVERY: Final = 4
"""They are asked when so many more have come."""
DRIFT: Final = 0.8
"""A feature that lies so many scales from where the model has it has drifted."""
DRIFTED: Final = 0.1
"""The host has drifted as a whole when so large a share of its features has."""
NO_SIGN: Final = 2 * DRIFT
"""On a host that has, what speaks of a fault is followed so far: it takes part in what all do, and not in more."""
SETTLE_S: Final = 20
"""Levels of amounts are followed with this time constant: what was allocated or freed a minute ago is how it is."""
SETTLED: Final = 0.05
"""What is followed by fewer scales is not followed."""
SOONER: Final = 5
"""A host that drifts is fitted again after such a part of the time that others wait."""


def model_slot(version: int) -> str:
    """Slot of the models topic that holds a version of a host's baseline."""
    return f"model/{version % MODEL_SLOTS}"


@dataclass(frozen=True, slots=True)
class Due:
    """A fit that was asked for; the first window that starts at second `adopt` or later has its model."""

    fit: Fit
    version: int
    adopt: int
    rows: tuple[Row, ...]


class Learner:
    """Rows, fits and versions of one host.

    While a fit is under way no row is taken, so that what it learns from stays in the topic until it is done: a
    worker that takes over makes the same model of the same rows.

    baseline   the model in use, None until warm
    rows       by slot
    version    fits so far, which is the version of the newest model
    learnt     rows taken for the present regime
    kept       versions that the topic holds
    pinned     the version that is to be kept, and nothing else; None if the host learns on
    due        the fit under way
    drift      how far features (len(feature_table()),) have drifted from the model, in its scales; None if none has.
               While a change of work is learnt, and after one that went again until there are rows enough to tell, it
               is what it was before
    shift      by how much levels of amounts lie elsewhere beyond that, float32 (len(feature_table()),)
    anew       whether the work has changed, so that the next model is to be of what came since; until then the model in
               use stays
    """

    def __init__(self, name: str, settings: PipelineSettings, fitter: Fitter) -> None:
        self.name = name
        self.settings = settings
        self.baseline: Baseline | None = None
        self.rows: dict[int, Row] = {}
        self.version = 0
        self.learnt = 0
        self.calm_windows = 0  # windows since the last row
        self.since_fit = 0
        self.kept: tuple[int, ...] = ()
        self.pinned: int | None = None
        self.due: Due | None = None
        self.anew = False
        self.drift: Singles | None = None
        self.shift: Singles | None = None
        self._drifted = self._held = False
        self._fitter = fitter
        # Hosts that came at the same time must not all be fitted at the same time.
        spread = zlib.crc32(name.encode())
        self._first_after = settings.warmup_windows + spread % (1 + settings.warmup_windows // 8)
        self._refit_after = settings.refit_windows + spread % (1 + settings.refit_windows // 4)

    def why_silent(self) -> str:
        """Why there is no baseline yet, in words."""
        if self.due is not None:
            return "learning what is normal: the model is being fitted"
        return f"learning what is normal: window {self.learnt + 1} of {self._first_after}"

    def how_anew(self) -> str:
        """How far a change of work is learnt, in words."""
        if self.pinned is not None:
            return f"version {self.pinned} of the model is kept, so it is not learnt"
        if self.due is not None:
            return "the model of it is being fitted"
        return f"learning it: window {self.learnt + 1} of {self._first_after}"

    def takes_row(self) -> bool:
        """Whether a calm window that is over now is to be learnt from."""
        if self.due is not None:
            return False
        self.calm_windows += 1
        every = 1 if self.baseline is None or self.anew else self.settings.row_every
        return self.calm_windows >= every

    def takes_levels(self) -> bool:
        """Whether the next row is to have the levels of instances."""
        return self.learnt % self.settings.rows % LEVELS_EVERY == 0

    def take(self, row: Row) -> list[StateRecord]:
        """Learn from `row`; asks for a fit when one is due."""
        slot = self.learnt % self.settings.rows
        record = row.record(self.name, f"row/{slot}")
        self.rows[slot] = row
        self.learnt += 1
        self.calm_windows = 0
        adopt = row.start + self.settings.adopt_windows * self.settings.step_s
        if self.learnt % DRIFT_EVERY == 0:
            self._follow(row.start)
        if self._is_due() or self._drifts():
            self._ask(adopt)
        return [record]

    def begin_anew(self) -> None:
        """The work has changed: learn from what comes, and use the present model until there is another."""
        if self.pinned is None:
            self.rows, self.learnt, self.due, self.anew = {}, 0, None, True
            self._held, self._drifted = self.drift is not None, False

    def go_back(self) -> None:
        """The work is what it was. Rows of the time between are not of it."""
        if self.anew:
            self.rows, self.learnt, self.due, self.anew = {}, 0, None, False

    def deviations(self, features: Singles) -> Singles:
        """What is off about a window with these features, in scales of the model in use: what drifts slowly is
        followed, so that a model that is some minutes old still says what is new. Raises ValueError without a model.
        """
        if self.baseline is None:
            raise ValueError("there is no model yet")
        deviations = self.baseline.deviations(features)
        return deviations if self.drift is None else deviations - self.drift

    def settle(self, deviations: Singles) -> Singles:
        """What is strange about a window with these `deviations`, now that it is over: without what lies elsewhere for
        some time and speaks of nothing, such as memory that was allocated. That is followed from window to window. On
        its way back to where it used to be it is no stranger.
        """
        places, shift = amount_places(), self.shift
        now = deviations.take(places)
        before = shift.take(places) if shift is not None else np.zeros(len(places), np.float32)
        there = np.where(np.isnan(now), before, now)
        after = before + np.float32(self.settings.step_s / SETTLE_S) * (there - before)
        after[np.abs(after) <= SETTLED] = 0
        self.shift = None
        if np.count_nonzero(after):
            self.shift = np.zeros(len(deviations), np.float32)
            self.shift[places] = after
        return deviations if shift is None else _beyond(deviations, shift)

    def settled(self, deviations: Singles) -> Singles:
        """`deviations` of a part of the last window without what lies elsewhere; nothing is followed."""
        return deviations if self.shift is None else _beyond(deviations, self.shift)

    def waits_for(self, second: int) -> Fit | None:
        """The fit without which a window that starts at `second` cannot be judged."""
        return self.due.fit if self.due is not None and second >= self.due.adopt else None

    def adopt(self, second: int) -> list[StateRecord]:
        """Take up the model that is due for a window that starts at `second`, waiting for it if need be.

        Raises what the fit raised; the model in use stays, and a fit is asked for again later.
        """
        if self.waits_for(second) is None:
            return []
        due, self.due, self.since_fit = self.due, None, 0
        # No row in this window: it could take the place of one that the fit learnt from before the model is stored.
        self.calm_windows = -1
        assert due is not None
        baseline = due.fit.result()
        # A version skips a number rather than take the slot of the one in use.
        self.kept = (*([self.baseline.version] if self.baseline is not None else []), baseline.version)
        self.baseline, self.version, self.anew, self.shift = baseline, due.version, False, None
        self._stay()
        self._follow(second)
        return [_described(baseline, self.name, due.rows)]

    def obey(self, pinned: int | None, model: StateRecord | None) -> None:
        """Keep the version `pinned`, which `model` holds, or with None learn on. Raises ValueError, KeyError or
        TypeError if that is not the model asked for; then nothing changes.
        """
        if pinned is not None:
            if model is None or pinned not in self.kept:
                raise ValueError(f"version {pinned} is not among those that are kept: {self.kept}")
            baseline = Baseline.restore(model)
            if baseline.version != pinned:
                raise ValueError(f"version {pinned} is asked for, and version {baseline.version} sent along")
            self.baseline, self.due, self.anew, self.shift = baseline, None, False, None
        self.pinned = pinned
        self._stay()

    def restart(self, second: int) -> None:
        """Time goes on from `second`: a fit that is due after it is taken up at once."""
        if self.due is not None:
            self.due = replace(self.due, adopt=min(self.due.adopt, second))

    def relearn(self) -> None:
        """Forget what was normal. A pinned version is forgotten with it: what cannot be used is not kept."""
        self.rows = {}
        self.kept = ()
        self.anew = False
        self.baseline = self.due = self.pinned = self.shift = None
        self._stay()
        self.learnt = self.calm_windows = self.since_fit = 0

    def state(self) -> dict[str, Any]:
        """What, with rows and models, is needed to go on, as JSON values."""
        return {
            "rows": self.settings.rows,
            "learnt": self.learnt,
            "calm_windows": self.calm_windows,
            "since_fit": self.since_fit,
            "version": self.version,
            "warm": self.baseline is not None,
            "using": self.baseline.version if self.baseline is not None else 0,
            "kept": self.kept,
            "pinned": self.pinned,
            "anew": self.anew,
            "due": self.due.adopt if self.due is not None else None,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What of it is arrays; drift where the rows do not tell it."""
        told: dict[str, NDArray[Any]] = {}
        if self.shift is not None:
            told |= packed(self.shift, "shift", "shifted")
        if self._held and self.drift is not None:
            told |= packed(self.drift, "drift", "drifted")
        return told

    def restore(self, by_slot: Mapping[str, StateRecord], state: Mapping[str, Any]) -> None:
        """Take up what `state` says, with the rows and the model among `by_slot`. Raises IndexError, KeyError,
        TypeError or ValueError if they are not there, or none.
        """
        self.version, self.since_fit = int(state["version"]), int(state["since_fit"])
        self.calm_windows = int(state["calm_windows"])
        slots = range(min(state["learnt"], state["rows"]))
        if state["rows"] != self.settings.rows:  # the setting was changed: keep what fits
            slots = range(min(len(slots), self.settings.rows))
        self.rows = {slot: Row.restore(by_slot[f"row/{slot}"]) for slot in slots}
        self.learnt = state["learnt"] if state["rows"] == self.settings.rows else len(self.rows)
        if state["warm"]:
            using = int(state.get("using", self.version))
            self.baseline = Baseline.restore(by_slot[model_slot(using)])
            if self.baseline.version != using:
                raise ValueError(f"version {using} is in use, and version {self.baseline.version} in its place")
            self.kept = tuple(state.get("kept", (using,)))
            self.pinned, self.anew = state.get("pinned"), bool(state.get("anew", False))
            arrays, count = by_slot["progress"].arrays, len(feature_table())
            self.shift = unpacked(count, arrays, "shift", "shifted") if "shift" in arrays else None
            self.drift = unpacked(count, arrays, "drift", "drifted") if "drift" in arrays else None
            self._held = self.drift is not None
            if state["next_start"] is not None:
                self._follow(int(state["next_start"]) - 1)
        if state.get("due") is not None:
            self._ask(int(state["due"]))

    def _is_due(self) -> bool:
        if self.baseline is None or self.anew:
            return self.learnt >= self._first_after
        # After a change that went again there may be too few rows.
        enough = self.learnt >= self.settings.warmup_windows
        return enough and self.pinned is None and self.since_fit >= self._refit_after

    def _drifts(self) -> bool:
        """Whether the host has moved from where the model has it, without a window that was strange."""
        enough = self.learnt >= self.settings.warmup_windows
        return self._drifted and enough and self.since_fit >= self._refit_after // SOONER

    def _follow(self, second: int) -> None:
        """Find out how far the host has drifted, from rows alone, so that a worker that takes over finds the same.

        second  of the window; rows that start after it are of windows that are judged again
        """
        self._drifted = False
        if self.baseline is None or self.anew or self.pinned is not None:
            return
        rows = sorted((row for row in self.rows.values() if row.start <= second), key=lambda each: each.start)
        apart = self.settings.row_every * self.settings.step_s
        count = max(DRIFT_ROWS, -(-DRIFT_S // apart))
        # Those of a warm-up lie so close together that they say where the host was for a moment.
        newest = _spread(rows[: len(rows) - self.learnt % DRIFT_EVERY], apart)[-count:]
        if len(newest) < count:
            return
        moved = self.baseline.median_deviations(feature_matrix(newest))
        drift, self._drifted = drifted(moved)
        # What speaks of a fault does not become normal because it grows slowly; amounts are followed closer.
        most = np.where(speaking(), np.float32(NO_SIGN if self._drifted else 0), np.float32(np.inf))
        self.drift = np.where(amount_levels(), np.float32(0), drift.clip(-most, most))
        self._held = False

    def _stay(self) -> None:
        """The host is where the model in use has it, as far as is known."""
        self.drift, self._drifted, self._held = None, False, False

    def _ask(self, adopt: int) -> None:
        rows = tuple(sorted(self.rows.values(), key=lambda each: each.start))
        version = self.version + 1
        if self.baseline is not None and model_slot(version) == model_slot(self.baseline.version):
            version += 1
        self.due = Due(self._fitter(rows, version, self.settings), version, adopt, rows)


def drifted(moved: Singles) -> tuple[Singles, bool]:
    """How far features have drifted whose medians lie at `moved`, in scales, NaN where absent; both (n,). And whether
    that is the host as a whole: then what lies less far off has drifted too, since metrics that have left each other's
    company by less than DRIFT each are strange together.
    """
    far = np.abs(moved) > DRIFT
    there = ~np.isnan(moved)
    whole = bool(far[there].mean() > DRIFTED)
    return np.where(there if whole else far, moved, np.float32(0)).astype(np.float32), whole


def _spread(rows: Sequence[Row], apart: int) -> list[Row]:
    """The newest of `rows`, which are in order of time, and of those before it the ones that are at least `apart` s
    away from the next, in order of time.
    """
    chosen: list[Row] = []
    for row in reversed(rows):
        if not chosen or chosen[-1].start - row.start >= apart:
            chosen.append(row)
    return chosen[::-1]


def _described(baseline: Baseline, host: str, rows: Sequence[Row]) -> StateRecord:
    """The record of a model, with what a person wants to know of it in its manifest."""
    record = baseline.record(host, model_slot(baseline.version))
    told = {
        "learnt_from": rows[0].start,
        "learnt_to": rows[-1].start,
        "learnt_rows": len(rows),
        "kept": baseline.kept,
    }
    return replace(record, manifest=json.dumps({**json.loads(record.manifest), **told}))


@compiled("float32[::1](float32[::1], float32[::1])")
def _beyond(deviations: Singles, shift: Singles) -> Singles:
    """How far `deviations` are from all that lies between what is usual and `shift`; all (len(feature_table()),)."""
    beyond = np.empty_like(deviations)
    for place in range(len(deviations)):
        low, high = min(shift[place], np.float32(0)), max(shift[place], np.float32(0))
        beyond[place] = deviations[place] - min(max(deviations[place], low), high)
    return beyond
