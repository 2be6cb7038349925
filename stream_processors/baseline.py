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

from schemas.matrices import shared
from schemas.records import DetectorScore, StateRecord
from schemas.settings import PipelineSettings
from stream_processors.compiled import compiled
from stream_processors.contamination import usual
from stream_processors.detectors import DETECTORS, VOTERS
from stream_processors.ensemble import Ensemble
from stream_processors.features import feature_table, smallest_scales
from stream_processors.packing import Packed
from stream_processors.pruning import prune
from stream_processors.rows import Names, Place, Row, feature_matrix, packed, unpacked
from stream_processors.scaling import location_and_scale, quantiles, standardise
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
class Block:
    """The ensemble of one subsystem, and the positions of the features that it sees, after pruning."""

    kept: NDArray[np.int16]
    ensemble: Ensemble


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
        floors = smallest_scales(matrix)
        # Without the tails, which are what is looked for: they would hide themselves.
        core = {
            name: standardise(matrix[:, chosen], *location_and_scale(matrix[:, chosen], floors[chosen], tails=False))
            for name, chosen in mine.items()
        }
        examples = usual(core, np.array([row.start for row in rows]))
        blocks: dict[str, Block] = {}
        for name, candidates in mine.items():
            values = matrix[examples[name]][:, candidates]
            center[candidates], scale[candidates] = location_and_scale(values, floors[candidates])
            standard = standardise(values, center[candidates], scale[candidates])
            chosen = prune(standard, table.metric_of[candidates], table.preference[candidates], settings.correlation)
            ensemble = Ensemble.learn(standard[:, chosen], chance / len(mine), settings.seed)
            blocks[name] = Block(candidates[chosen].astype(np.int16), ensemble)
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

    def median_deviations(self, matrix: Singles) -> Singles:
        """Medians of the deviations of rows (n, len(feature_table())), NaN where a row or the model lacks one."""
        known = np.flatnonzero(~np.isnan(self.center))
        deviations = (matrix.take(known, axis=1) - self.center.take(known)) / self.scale.take(known)
        absent = np.isnan(deviations).any(axis=0)
        _sort_columns(deviations)
        medians = np.full(len(self.center), np.nan, np.float32)
        middle = (deviations[(len(matrix) - 1) // 2] + deviations[len(matrix) // 2]) / np.float32(2)
        medians[known] = np.where(absent, np.float32(np.nan), middle)
        return medians

    def shares(self, deviations: Singles) -> Singles:
        """Observed over expected of all features of a window with these deviations; NaN or infinite where nothing is
        expected.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(1 + deviations * self.scale / self.center, dtype=np.float32)

    def score(self, deviations: Singles) -> tuple[tuple[DetectorScore, ...], Mapping[str, float]]:
        """What each detector says of a window with these deviations, and how strange each subsystem is: -log10 of the
        tail probability of all its detectors together. A feature that is absent counts as expected.

        Score and threshold are those of the strangest subsystem; the tail probability is that of its score, times the
        number of subsystems that had the chance to be the strangest (Bonferroni). Only VOTERS vote.
        """
        told: list[list[tuple[float, float, float, float]]] = []
        strangeness: dict[str, float] = {}
        for name, block in self.blocks.items():
            scores, tails = block.ensemble.judge_window(deviations, block.kept)
            strangeness[name] = -log10(tails.pop())
            thresholds = block.ensemble.thresholds
            told.append(
                [
                    (tail, threshold - score, score, threshold)
                    for tail, score, threshold in zip(tails, scores, thresholds, strict=True)
                ]
            )
        verdicts: list[DetectorScore] = []
        for detector, each in zip(DETECTORS, zip(*told, strict=True), strict=True):
            tail, _, score, threshold = min(each)
            vote = detector in VOTERS and score > threshold
            verdicts.append(DetectorScore(detector, score, threshold, min(1.0, tail * len(each)), vote))
        return tuple(verdicts), strangeness

    def record(self, host: str, slot: str) -> StateRecord:
        """The model as a record of the models topic: plain arrays and a manifest."""
        arrays: dict[str, NDArray[Any]] = {"center": self.center, "scale": self.scale}
        for name, block in self.blocks.items():
            arrays[f"kept {name}"] = block.kept
            arrays |= {f"ensemble {name} {key}": array for key, array in block.ensemble.arrays().items()}
        for (subsystem, dimension), levels in self.levels.items():
            place = (subsystem, dimension)
            arrays |= packed(levels.center, place).arrays(f"level-center {subsystem} {dimension}")
            arrays |= packed(levels.scale, place).arrays(f"level-scale {subsystem} {dimension}")
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
        """The model that `record` came from. Raises KeyError, TypeError or ValueError for any other record."""
        manifest, arrays = json.loads(record.manifest), record.arrays
        size = (len(feature_table()),)
        if manifest["catalogue"] != feature_table().mark or not arrays["center"].shape == arrays["scale"].shape == size:
            raise ValueError("the model was made for another catalogue")
        blocks: dict[str, Block] = {}
        for name in manifest["blocks"]:
            prefix = f"ensemble {name} "
            mine = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            ensemble = Ensemble.restore(mine, manifest["chance"] / len(manifest["blocks"]))
            kept = arrays[f"kept {name}"].astype(np.int16)
            if kept.shape != (ensemble.width,) or not ((kept >= 0) & (kept < len(feature_table()))).all():
                raise ValueError(f"the ensemble of {name} looks at other features than it has learnt")
            blocks[name] = Block(kept, ensemble)
        levels: dict[Place, Levels] = {}
        for key, names in manifest["instances"].items():
            subsystem, _, dimension = key.partition(" ")
            place = (subsystem, dimension)
            center, scale = (Packed.restore(arrays, f"{what} {key}") for what in ("level-center", "level-scale"))
            levels[place] = Levels(
                shared(tuple(names)), unpacked(center, place, len(names)), unpacked(scale, place, len(names))
            )
        baseline = cls(
            version=manifest["version"],
            center=np.asarray(arrays["center"], dtype=np.float32),
            scale=np.asarray(arrays["scale"], dtype=np.float32),
            candidates=manifest["candidates"],
            chance=manifest["chance"],
            blocks=blocks,
            levels=levels,
        )
        baseline.score(np.zeros(size, np.float32))  # what cannot say anything of a window is no model
        return baseline


def severity(strangeness: Mapping[str, float], subsystems: int) -> float:
    """Severity of a window that is so strange: -log10 of the chance that an ordinary one is in any of the host's
    `subsystems` (Bonferroni).
    """
    return max(0.0, max(strangeness.values()) - log10(subsystems))


@compiled("void(float32[:,::1])")
def _sort_columns(rows: Singles) -> None:
    """Sort each column of a few `rows` (n, columns): in n rounds neighbours change places, of all columns at a time
    (odd-even transposition: Habermann, Parallel neighbor-sort, 1972). A column with NaN is left as it comes.
    """
    for turn in range(len(rows)):
        for upper in range(turn % 2, len(rows) - 1, 2):
            for column in range(rows.shape[1]):
                one, other = rows[upper, column], rows[upper + 1, column]
                rows[upper, column] = other if other < one else one
                rows[upper + 1, column] = one if other < one else other


def _rounded(levels: Singles, place: Place) -> Singles:
    """Levels as a record holds them, so that a model that is restored is the same."""
    return unpacked(packed(levels, place), place, levels.shape[1])


def _levels(rows: list[Row]) -> dict[Place, Levels]:
    """Median and robust scale of each instance, from the rows that have the instances of the newest that has any."""
    levels: dict[Place, Levels] = {}
    known = [(row.instances, row.levels) for row in rows if row.instances]
    for place, names in known[-1][0].items() if known else ():
        alike = [there[place] for instances, there in known if instances.get(place) == names]
        values = np.stack(alike).astype(np.float64).reshape(len(alike), -1)
        [center] = quantiles(values, (0.5,))
        [spread] = quantiles(np.abs(values - center), (0.5,))
        parts = (each.astype(np.float32).reshape(alike[-1].shape) for each in (center, 1.4826 * spread))
        levels[place] = Levels(names, *(_rounded(each, place) for each in parts))
    return levels
