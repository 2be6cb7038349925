"""Rows that a baseline learns from: the features of one window and, now and then, the levels of its instances.

A host keeps more than a hundred of them, so they are packed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from schemas.matrices import shared
from schemas.records import StateRecord
from stream_processors.features import feature_table
from stream_processors.packing import Packed
from stream_processors.seconds import Singles, layout
from stream_processors.windows import Window

Names = tuple[str, ...]
Place = tuple[str, str]

FEATURES: Final = "features"
LEVELS: Final = "levels"


@dataclass(frozen=True, slots=True)
class Row:
    """One window as a baseline sees it.

    start      of the window, seconds since 1970-01-01 UTC
    features   float32 (len(feature_table()),), packed
    instances  by (subsystem, dimension), the names of its instances; empty in a row without levels
    packed     by (subsystem, dimension), their levels (metrics, instances), packed
    """

    start: int
    features: Packed
    instances: Mapping[Place, Names]
    packed: Mapping[Place, Packed]

    @property
    def levels(self) -> Mapping[Place, Singles]:
        """By (subsystem, dimension), float32 (metrics, instances)."""
        return {place: unpacked(packed, place, len(self.instances[place])) for place, packed in self.packed.items()}

    @classmethod
    def of(cls, window: Window, features: Singles, *, levels: bool = True) -> Row:
        """Row of a window with these features, with or without the levels of its instances."""
        names = {(subsystem, dimension): names for subsystem, dimension, names in window.places()} if levels else {}
        return cls(
            start=window.start,
            features=Packed.of(features, _scales()),
            instances=names,
            packed={place: packed(window.levels(*place), place) for place in names},
        )

    def record(self, host: str, slot: str) -> StateRecord:
        """The row as a record of the models topic."""
        arrays = self.features.arrays(FEATURES)
        for (subsystem, dimension), levels in self.packed.items():
            arrays |= levels.arrays(f"{LEVELS} {subsystem} {dimension}")
        manifest = {
            "catalogue": _mark(),
            "start": self.start,
            "instances": {f"{name} {dimension}": names for (name, dimension), names in self.instances.items()},
        }
        return StateRecord(host, slot, json.dumps(manifest), arrays)

    @classmethod
    def restore(cls, record: StateRecord) -> Row:
        """The row that `record` came from. Raises KeyError or ValueError for any other record."""
        manifest = json.loads(record.manifest)
        if manifest["catalogue"] != _mark():
            raise ValueError("the row was made for another catalogue")
        instances = {_place(key): shared(tuple(names)) for key, names in manifest["instances"].items()}
        levels = {place: Packed.restore(record.arrays, f"{LEVELS} {place[0]} {place[1]}") for place in instances}
        row = cls(manifest["start"], Packed.restore(record.arrays, FEATURES), instances, levels)
        row.features.check(len(feature_table()))
        for place, each in levels.items():
            each.check(_level_scales()[place].size * len(instances[place]))
        return row


def feature_matrix(rows: list[Row]) -> Singles:
    """Features of `rows`, float32 (n, len(feature_table())), NaN where absent."""
    return np.stack([row.features.values(_scales()) for row in rows])


def packed(levels: Singles, place: Place) -> Packed:
    """Levels (metrics, instances) of a place, packed."""
    return Packed.of(levels.ravel(), np.repeat(_level_scales()[place], levels.shape[1]))


def unpacked(levels: Packed, place: Place, instances: int) -> Singles:
    """Levels (metrics, instances) of a place. Raises ValueError if they are of other metrics or instances."""
    scales = _level_scales()[place]
    return levels.values(np.repeat(scales, instances)).reshape(len(scales), instances)


@cache
def _scales() -> Singles:
    return np.asarray(feature_table().floors, np.float32)


@cache
def _level_scales() -> Mapping[Place, Singles]:
    """Smallest scales of the levels of each place, (metrics,)."""
    table = feature_table()
    floors = {f.metric.name: floor for f, floor in zip(table.features, _scales(), strict=True) if f.kind == "level"}
    return {
        (subsystem, group.dimension): np.array([floors[metric.name] for metric in group.metrics], np.float32)
        for subsystem in table.slices
        for group in layout(subsystem).groups
    }


@cache
def _mark() -> str:
    """Tells rows apart whose values mean something else."""
    return f"{feature_table().mark} {zlib.crc32(_scales().tobytes()):08x}"


def _place(text: str) -> Place:
    subsystem, _, dimension = text.partition(" ")
    return subsystem, dimension
