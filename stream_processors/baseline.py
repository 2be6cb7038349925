"""What is normal for a host: robust location and scale of every feature, the features that detectors look at, and the
fitted detectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.records import DetectorScore, StateRecord
from schemas.settings import PipelineSettings
from stream_processors.calibration import Calibration
from stream_processors.detectors import CLIP, DETECTORS, Detector
from stream_processors.features import FEATURES, FeatureTable, feature_table
from stream_processors.rows import Names, Place, Row, feature_matrix
from stream_processors.seconds import Singles

PRESENT: Final = 0.8
"""A feature takes part when it is there in this share of the rows."""


@dataclass(frozen=True, slots=True)
class Levels:
    """What is normal for each instance: `center` and `scale`, float32 (metrics of the dimension, instances)."""

    names: Names
    center: Singles
    scale: Singles


@dataclass(frozen=True, slots=True)
class Baseline:
    """The learnt model of one host.

    version       counts the fits of the host from 1
    center, scale float32 (len(feature_table()),): median and robust scale, NaN where the host lacks the feature
    kept          positions of the features that detectors see, after pruning
    candidates    how many there were before pruning
    percentile    of a detector's scores on the baseline, above which it votes
    detectors     by name, fitted
    calibrations  by name
    levels        by (subsystem, dimension)
    """

    version: int
    center: Singles
    scale: Singles
    kept: NDArray[np.int16]
    candidates: int
    percentile: float
    detectors: Mapping[str, Detector]
    calibrations: Mapping[str, Calibration]
    levels: Mapping[Place, Levels]

    @classmethod
    def fit(cls, rows: list[Row], version: int, settings: PipelineSettings) -> Baseline:
        """Learn from `rows`, at least 30, in order of time."""
        table = feature_table()
        matrix = feature_matrix(rows)
        center, scale = _location_and_scale(matrix, table.floors)
        present = (~np.isnan(matrix)).mean(axis=0) >= PRESENT
        center[~present] = np.nan
        scale[~present] = np.nan
        candidates = np.flatnonzero(present)
        standard = _standardise(matrix[:, candidates], center[candidates], scale[candidates])
        chosen = _prune(standard, candidates, table, settings.correlation)
        standard = standard[:, chosen]
        # Scores of rows that a detector has learnt from are too good, so each half is scored by what the other half
        # taught.
        half = len(rows) // 2
        detectors: dict[str, Detector] = {}
        calibrations: dict[str, Calibration] = {}
        for name, kind in DETECTORS.items():
            first, second = kind.fit(standard[:half], settings.seed), kind.fit(standard[half:], settings.seed)
            scores = [second.score(row) for row in standard[:half]] + [first.score(row) for row in standard[half:]]
            detectors[name] = kind.fit(standard, settings.seed)
            calibrations[name] = Calibration.fit(np.array(scores), settings.threshold_percentile)
        return cls(
            version=version,
            center=center,
            scale=scale,
            kept=candidates[chosen].astype(np.int16),
            candidates=len(candidates),
            percentile=settings.threshold_percentile,
            detectors=detectors,
            calibrations=calibrations,
            levels=_levels(rows),
        )

    def deviations(self, features: Singles) -> Singles:
        """(observed - expected) / scale of all features, NaN where either side lacks it."""
        return np.asarray((features - self.center) / self.scale, dtype=np.float32)

    def score(self, deviations: Singles) -> tuple[DetectorScore, ...]:
        """What each detector says of a window with these deviations. A feature that is absent counts as expected."""
        row = np.clip(np.nan_to_num(deviations[self.kept], nan=0.0), -CLIP, CLIP)
        scores: list[DetectorScore] = []
        for name, detector in self.detectors.items():
            calibration = self.calibrations[name]
            score = detector.score(row)
            tail = calibration.tail_probability(score)
            scores.append(DetectorScore(name, score, calibration.threshold, tail, score > calibration.threshold))
        return tuple(scores)

    def record(self, host: str, slot: str) -> StateRecord:
        """The model as a record of the models topic: plain arrays and a manifest."""
        arrays: dict[str, NDArray[Any]] = {"center": self.center, "scale": self.scale, "kept": self.kept}
        for name, detector in self.detectors.items():
            arrays |= {f"detector {name} {key}": array for key, array in detector.arrays().items()}
            arrays[f"calibration {name}"] = self.calibrations[name].scores
        for (subsystem, dimension), levels in self.levels.items():
            arrays[f"level-center {subsystem} {dimension}"] = levels.center
            arrays[f"level-scale {subsystem} {dimension}"] = levels.scale
        manifest = {
            "version": self.version,
            "candidates": self.candidates,
            "percentile": self.percentile,
            "instances": {f"{place[0]} {place[1]}": levels.names for place, levels in self.levels.items()},
        }
        return StateRecord(host, slot, json.dumps(manifest), arrays)

    @classmethod
    def restore(cls, record: StateRecord) -> Baseline:
        """The model that `record` came from. Raises KeyError or ValueError for any other record."""
        manifest, arrays = json.loads(record.manifest), record.arrays
        if arrays["center"].shape != (len(feature_table()),):
            raise ValueError("the model was made for another catalogue")
        detectors: dict[str, Detector] = {}
        calibrations: dict[str, Calibration] = {}
        for name, kind in DETECTORS.items():
            prefix = f"detector {name} "
            detectors[name] = kind.restore(
                {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            )
            scores = np.asarray(arrays[f"calibration {name}"], dtype=np.float64)
            calibrations[name] = Calibration.fit(scores, manifest["percentile"])
        levels: dict[Place, Levels] = {}
        for key, names in manifest["instances"].items():
            subsystem, _, dimension = key.partition(" ")
            levels[subsystem, dimension] = Levels(
                tuple(names),
                np.asarray(arrays[f"level-center {key}"], dtype=np.float32),
                np.asarray(arrays[f"level-scale {key}"], dtype=np.float32),
            )
        return cls(
            version=manifest["version"],
            center=np.asarray(arrays["center"], dtype=np.float32),
            scale=np.asarray(arrays["scale"], dtype=np.float32),
            kept=np.asarray(arrays["kept"], dtype=np.int16),
            candidates=manifest["candidates"],
            percentile=manifest["percentile"],
            detectors=detectors,
            calibrations=calibrations,
            levels=levels,
        )


def _location_and_scale(matrix: NDArray[Any], floors: NDArray[Any]) -> tuple[Singles, Singles]:
    """Median, and the largest of: normal-consistent median absolute deviation, 5-95 % range of a normal, the floor,
    0.1 % of the median.
    """
    some = ~np.isnan(matrix).all(axis=0)
    center = np.full(matrix.shape[1:], np.nan)
    scale = np.full(matrix.shape[1:], np.nan)
    values = matrix[:, some].astype(np.float64)
    middle = np.nanmedian(values, axis=0)
    low, high = np.nanquantile(values, (0.05, 0.95), axis=0)
    spread = 1.4826 * np.nanmedian(np.abs(values - middle), axis=0)
    center[some] = middle
    scale[some] = np.maximum.reduce([spread, (high - low) / 3.29, floors[some], 1e-3 * np.abs(middle)])
    return center.astype(np.float32), scale.astype(np.float32)


def _standardise(matrix: Singles, center: Singles, scale: Singles) -> Singles:
    standard = np.nan_to_num((matrix - center) / scale, nan=0.0)
    return np.asarray(np.clip(standard, -CLIP, CLIP), dtype=np.float32)


def _prune(standard: Singles, candidates: NDArray[np.intp], table: FeatureTable, limit: float) -> NDArray[np.intp]:
    """Columns to keep: of the features of one metric that correlate with |r| >= `limit` only the most preferred; of a
    metric that never moves only level and maximum.

    Metrics are not pruned against each other: a fault often shows as one metric that leaves the company it kept, and
    the one that was dropped may be the one. What metrics have in common is left to the principal components.
    """
    preference = table.preference[candidates]
    spread = standard.std(axis=0)
    constant = spread < 1e-6
    unit = (standard - standard.mean(axis=0)) / np.where(constant, 1.0, spread)
    kept = constant & (preference <= FEATURES.index("maximum"))
    order = np.lexsort((preference, table.metric_of[candidates]))
    groups = np.split(order, np.flatnonzero(np.diff(table.metric_of[candidates][order])) + 1)
    for group in groups:
        moving = group[~constant[group]]
        related = np.abs(unit[:, moving].T @ unit[:, moving]) >= limit * len(standard)
        alive = np.ones(len(moving), dtype=bool)
        for i in range(len(moving)):
            if alive[i]:
                kept[moving[i]] = True
                alive &= ~related[i]
    return np.flatnonzero(kept)


def _levels(rows: list[Row]) -> dict[Place, Levels]:
    """Median and robust scale of each instance, from the rows that have the instances of the newest."""
    levels: dict[Place, Levels] = {}
    for place, names in rows[-1].instances.items():
        values = np.stack([row.levels[place] for row in rows if row.instances.get(place) == names]).astype(np.float64)
        center = np.full(values.shape[1:], np.nan)
        scale = np.full(values.shape[1:], np.nan)
        some = ~np.isnan(values).all(axis=0)
        present = values[:, some]
        center[some] = np.nanmedian(present, axis=0)
        scale[some] = 1.4826 * np.nanmedian(np.abs(present - center[some]), axis=0)
        levels[place] = Levels(names, center.astype(np.float32), scale.astype(np.float32))
    return levels
