"""What the models topic holds of a host, for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.records import StateRecord
from stream_processors.baseline import Baseline
from stream_processors.features import feature_table


@dataclass(frozen=True, slots=True)
class Model:
    """One version of a host's baseline.

    learnt_from, learnt_to  first and last window it learnt from, seconds since 1970-01-01 UTC; 0 if not recorded
    learnt_rows             how many windows those were
    features, kept          features that the host has, and those that the detectors look at
    metrics, metrics_kept   the same for metrics: of one that is kept, at least one feature is
    thresholds              by subsystem and detector
    record                  where it comes from
    """

    version: int
    learnt_from: int
    learnt_to: int
    learnt_rows: int
    features: int
    kept: int
    metrics: int
    metrics_kept: int
    thresholds: dict[str, dict[str, float]]
    record: StateRecord


@dataclass(frozen=True, slots=True)
class Holding:
    """What is known of a host.

    using, pinned  version in use (0 while there is none), and the one that is to be kept
    learnt         windows that the next model has to learn from so far
    change         why the host learns anew, in words; empty if it does not
    models         newest first
    flaws          what of it could not be read
    """

    host: str
    using: int
    pinned: int | None
    learnt: int
    change: str
    models: tuple[Model, ...]
    flaws: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """In a word: warming, changing, pinned or learning."""
        if not self.using:
            return "warming"
        return "pinned" if self.pinned is not None else "changing" if self.change else "learning"

    def model(self, version: int) -> Model | None:
        """The model of that version, if it is kept."""
        return next((each for each in self.models if each.version == version), None)

    def before(self) -> Model | None:
        """The model before the one in use, if it is kept."""
        return next((each for each in self.models if each.version < self.using), None)


def wanted(key: bytes) -> bool:
    """Whether a key of the models topic is of a record that `holding` reads."""
    slot = key.rpartition(b"\0")[2]
    return slot == b"progress" or slot.startswith(b"model/")


def holding(host: str, records: Iterable[StateRecord]) -> Holding:
    """What `records`, the newest of each slot, say of `host`. What cannot be read is among the flaws."""
    progress: dict[str, Any] = {}
    models: list[Model] = []
    flaws: list[str] = []
    for record in records:
        try:
            if record.slot == "progress":
                progress = dict(json.loads(record.manifest))
            elif record.slot.startswith("model/"):
                models.append(_model(record))
        except (IndexError, KeyError, TypeError, ValueError) as error:
            flaws.append(f"{record.slot}: {type(error).__name__}: {error}")
    newest = max((each.version for each in models), default=0)
    return Holding(
        host=host,
        using=int(progress.get("using", newest if progress.get("warm") else 0)),
        pinned=progress.get("pinned"),
        learnt=int(progress.get("learnt", 0)),
        change=str((progress.get("regimes") or {}).get("why", "")),
        models=tuple(sorted(models, key=lambda each: -each.version)),
        flaws=tuple(flaws),
    )


def _model(record: StateRecord) -> Model:
    baseline, manifest = Baseline.restore(record), json.loads(record.manifest)
    metric_of = feature_table().metric_of
    kept = [block.kept for block in baseline.blocks.values()]
    return Model(
        version=baseline.version,
        learnt_from=int(manifest.get("learnt_from", 0)),
        learnt_to=int(manifest.get("learnt_to", 0)),
        learnt_rows=int(manifest.get("learnt_rows", 0)),
        features=baseline.candidates,
        kept=baseline.kept,
        metrics=len(np.unique(metric_of[~np.isnan(baseline.center)])),
        metrics_kept=len(np.unique(metric_of[np.concatenate(kept)])) if kept else 0,
        thresholds={
            name: {detector: each.threshold for detector, each in block.ensemble.calibrations.items()}
            for name, block in baseline.blocks.items()
        },
        record=record,
    )
