"""What is normal for a host: robust location and scale of every feature, the features that detectors look at, and the
fitted detectors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import log10
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.records import DetectorScore, StateRecord
from schemas.settings import PipelineSettings
from stream_processors.calibration import Calibration
from stream_processors.detectors import CLIP, DETECTORS, Detector
from stream_processors.features import FEATURES, FeatureTable, feature_table, smallest_scales
from stream_processors.rows import Names, Place, Row, feature_matrix
from stream_processors.seconds import Floats, Singles

EXTREME: Final = 4.0
"""A row this many times stranger than three quarters of the others is a matter of its own."""
SMALLEST_QUARTILE: Final = 0.02
SAME_RUN: Final = 4
"""Strange rows at most so far apart are one run."""
ONCE_OR_TWICE: Final = 2
MOST_UNUSUAL: Final = 0.2
PRESENT: Final = 0.8
"""A feature takes part when it is there in this share of the rows."""


@dataclass(frozen=True, slots=True)
class Levels:
    """What is normal for each instance: `center` and `scale`, float32 (metrics of the dimension, instances)."""

    names: Names
    center: Singles
    scale: Singles


@dataclass(frozen=True, slots=True)
class Block:
    """The ensemble of one subsystem.

    kept          positions of the features that its detectors see, after pruning
    detectors     by name, fitted
    calibrations  by name
    """

    kept: NDArray[np.int16]
    detectors: Mapping[str, Detector]
    calibrations: Mapping[str, Calibration]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The learnt model of one host.

    Each subsystem has an ensemble of its own, calibrated on its own past: what bursts now and then, such as a disk,
    must not hide what never does, such as a run queue. A detector speaks for the host by its strangest subsystem.

    version        counts the fits of the host from 1
    center, scale  float32 (len(feature_table()),): median and robust scale, NaN where the host lacks the feature
    candidates     number of features before pruning
    chance         share of ordinary windows that a detector votes against
    blocks         by subsystem
    levels         by (subsystem, dimension)
    """

    version: int
    center: Singles
    scale: Singles
    candidates: int
    chance: float
    blocks: Mapping[str, Block]
    levels: Mapping[Place, Levels]

    @classmethod
    def fit(cls, rows: list[Row], version: int, settings: PipelineSettings) -> Baseline:
        """Learn from `rows`, at least 30, in order of time."""
        table = feature_table()
        matrix = feature_matrix(rows)
        center = np.full(len(table), np.nan, dtype=np.float32)
        scale = np.full(len(table), np.nan, dtype=np.float32)
        present = (~np.isnan(matrix)).mean(axis=0) >= PRESENT
        mine = {name: np.flatnonzero(present[place]) + place.start for name, place in table.slices.items()}
        mine = {name: candidates for name, candidates in mine.items() if len(candidates)}
        if not mine:
            raise ValueError(f"no metric is there in {PRESENT:.0%} of the windows")
        chance = 1 - settings.threshold_percentile / 100
        blocks: dict[str, Block] = {}
        for name, candidates in mine.items():
            values, floors = matrix[:, candidates], smallest_scales(matrix)[candidates]
            # Without the tails, which are what is looked for: they would hide themselves.
            usual = values[_usual_rows(_standardise(values, *_location_and_scale(values, floors, tails=False)))]
            center[candidates], scale[candidates] = _location_and_scale(usual, floors)
            standard = _standardise(usual, center[candidates], scale[candidates])
            chosen = _prune(standard, candidates, table, settings.correlation)
            blocks[name] = _block(candidates[chosen], standard[:, chosen], chance / len(mine), settings.seed)
        return cls(
            version=version,
            center=center,
            scale=scale,
            candidates=sum(len(candidates) for candidates in mine.values()),
            chance=chance,
            blocks=blocks,
            levels=_levels(rows),
        )

    @property
    def kept(self) -> int:
        """Number of features after pruning."""
        return sum(len(block.kept) for block in self.blocks.values())

    def deviations(self, features: Singles) -> Singles:
        """(observed - expected) / scale of all features, NaN where either side lacks it."""
        return np.asarray((features - self.center) / self.scale, dtype=np.float32)

    def score(self, deviations: Singles) -> tuple[tuple[DetectorScore, ...], Mapping[str, float]]:
        """What each detector says of a window with these deviations, and how strange each subsystem is: the mean over
        detectors of -log10 of the tail probability. A feature that is absent counts as expected.

        Score and threshold are those of the strangest subsystem; the tail probability is that of its score, times the
        number of subsystems that had the chance to be the strangest (Bonferroni).
        """
        rows = {
            name: np.clip(np.nan_to_num(deviations[block.kept], nan=0.0), -CLIP, CLIP)
            for name, block in self.blocks.items()
        }
        scores: list[DetectorScore] = []
        strangeness = dict.fromkeys(self.blocks, 0.0)
        for detector in DETECTORS:
            told = []
            for name, block in self.blocks.items():
                score, calibration = block.detectors[detector].score(rows[name]), block.calibrations[detector]
                told.append((calibration.tail_probability(score), score, calibration.threshold))
                strangeness[name] -= log10(told[-1][0]) / len(DETECTORS)
            tail, score, threshold = min(told, key=lambda each: (each[0], each[2] - each[1]))
            scores.append(DetectorScore(detector, score, threshold, min(1.0, tail * len(told)), score > threshold))
        return tuple(scores), strangeness

    def record(self, host: str, slot: str) -> StateRecord:
        """The model as a record of the models topic: plain arrays and a manifest."""
        arrays: dict[str, NDArray[Any]] = {"center": self.center, "scale": self.scale}
        for name, block in self.blocks.items():
            arrays[f"kept {name}"] = block.kept
            for detector, fitted in block.detectors.items():
                arrays |= {f"detector {name} {detector} {key}": array for key, array in fitted.arrays().items()}
                arrays[f"calibration {name} {detector}"] = block.calibrations[detector].scores
        for (subsystem, dimension), levels in self.levels.items():
            arrays[f"level-center {subsystem} {dimension}"] = levels.center
            arrays[f"level-scale {subsystem} {dimension}"] = levels.scale
        manifest = {
            "catalogue": feature_table().mark,
            "version": self.version,
            "candidates": self.candidates,
            "chance": self.chance,
            "blocks": list(self.blocks),
            "instances": {f"{place[0]} {place[1]}": levels.names for place, levels in self.levels.items()},
        }
        return StateRecord(host, slot, json.dumps(manifest), arrays)

    @classmethod
    def restore(cls, record: StateRecord) -> Baseline:
        """The model that `record` came from. Raises KeyError or ValueError for any other record."""
        manifest, arrays = json.loads(record.manifest), record.arrays
        if manifest["catalogue"] != feature_table().mark or arrays["center"].shape != (len(feature_table()),):
            raise ValueError("the model was made for another catalogue")
        blocks: dict[str, Block] = {}
        for name in manifest["blocks"]:
            detectors: dict[str, Detector] = {}
            calibrations: dict[str, Calibration] = {}
            for detector, kind in DETECTORS.items():
                prefix = f"detector {name} {detector} "
                mine = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
                detectors[detector] = kind.restore(mine)
                scores = np.asarray(arrays[f"calibration {name} {detector}"], dtype=np.float64)
                chance = manifest["chance"] / len(manifest["blocks"])
                calibrations[detector] = Calibration.fit(scores, chance, kind.RESOLUTION)
            blocks[name] = Block(np.asarray(arrays[f"kept {name}"], dtype=np.int16), detectors, calibrations)
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
            candidates=manifest["candidates"],
            chance=manifest["chance"],
            blocks=blocks,
            levels=levels,
        )


def _block(kept: NDArray[np.intp], rows: Singles, chance: float, seed: int) -> Block:
    """Ensemble on standardised `rows` of the features `kept`; each detector votes against `chance` of ordinary
    windows.
    """
    learnt = {name: kind.learn(rows, seed) for name, kind in DETECTORS.items()}
    return Block(
        kept=kept.astype(np.int16),
        detectors={name: detector for name, (detector, _) in learnt.items()},
        calibrations={
            name: Calibration.fit(scores, chance, DETECTORS[name].RESOLUTION) for name, (_, scores) in learnt.items()
        },
    )


def _location_and_scale(matrix: NDArray[Any], floors: NDArray[Any], *, tails: bool = True) -> tuple[Singles, Singles]:
    """Median, and the largest of: normal-consistent median absolute deviation, with `tails` 5-95 % range of a normal,
    the floor, 0.1 % of the median.
    """
    values = matrix.astype(np.float64)
    center, low, high = _quantiles(values, (0.5, 0.05, 0.95) if tails else (0.5, 0.5, 0.5))
    spread = 1.4826 * _quantiles(np.abs(values - center), (0.5,))[0]
    scale = np.maximum.reduce([spread, (high - low) / 3.29, floors, 1e-3 * np.abs(center)])
    return center.astype(np.float32), scale.astype(np.float32)


def _quantiles(values: Floats, at: tuple[float, ...]) -> Floats:
    """Quantiles of each column over what is there, (len(at), columns). Columns with gaps are few and take long."""
    found = np.asarray(np.quantile(values, at, axis=0), dtype=np.float64)
    gaps = np.isnan(values).any(axis=0)
    if gaps.any():
        found[:, gaps] = np.nanquantile(values[:, gaps], at, axis=0)
    return found


def _standardise(matrix: Singles, center: Singles, scale: Singles) -> Singles:
    standard = np.nan_to_num((matrix - center) / scale, nan=0.0)
    return np.asarray(np.clip(standard, -CLIP, CLIP), dtype=np.float32)


def _usual_rows(standard: Singles) -> NDArray[np.bool_]:
    """Rows without what happened only once or twice while learning, such as services starting up: it would stretch
    the idea of what is normal until nothing is strange. What keeps happening is normal, however strange its rows are.
    """
    strangeness = np.abs(standard).mean(axis=1)
    strange = np.flatnonzero(strangeness > EXTREME * max(float(np.quantile(strangeness, 0.75)), SMALLEST_QUARTILE))
    runs = 1 + int((np.diff(strange) > SAME_RUN).sum()) if len(strange) else 0
    usual = np.ones(len(standard), dtype=bool)
    if runs <= ONCE_OR_TWICE and len(strange) <= MOST_UNUSUAL * len(standard):
        usual[strange] = False
    return usual


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
