"""Rows that a baseline learns from: the features of one window and the levels of its instances."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.records import StateRecord
from stream_processors.features import feature_table
from stream_processors.seconds import Singles
from stream_processors.windows import Window

Names = tuple[str, ...]
Place = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One window as a baseline sees it.

    start      of the window, seconds since 1970-01-01 UTC
    blocks     by subsystem, its features, float32
    instances  by (subsystem, dimension), the names of its instances
    levels     by (subsystem, dimension), float32 (metrics, instances)
    """

    start: int
    blocks: Mapping[str, Singles]
    instances: Mapping[Place, Names]
    levels: Mapping[Place, Singles]

    @classmethod
    def of(cls, window: Window, features: Singles) -> Row:
        """Row of a window with these features."""
        slices = feature_table().slices
        return cls(
            start=window.start,
            blocks={name: features[slices[name]].copy() for name in window.stats},
            instances={(name, dimension): names for name, dimension, names in window.places()},
            levels={(name, dimension): window.levels(name, dimension) for name, dimension, _ in window.places()},
        )

    def record(self, host: str, slot: str) -> StateRecord:
        """The row as a record of the models topic."""
        arrays: dict[str, NDArray[Any]] = {f"features {name}": block for name, block in self.blocks.items()}
        arrays |= {f"levels {name} {dimension}": values for (name, dimension), values in self.levels.items()}
        manifest = {
            "start": self.start,
            "instances": {f"{name} {dimension}": names for (name, dimension), names in self.instances.items()},
        }
        return StateRecord(host, slot, json.dumps(manifest), arrays)

    @classmethod
    def restore(cls, record: StateRecord) -> Row:
        """The row that `record` came from. Raises KeyError or ValueError for any other record."""
        manifest = json.loads(record.manifest)
        slices = feature_table().slices
        blocks: dict[str, Singles] = {}
        levels: dict[Place, Singles] = {}
        for key, array in record.arrays.items():
            kind, _, rest = key.partition(" ")
            values = np.asarray(array, dtype=np.float32)
            if kind == "features":
                if values.shape != (slices[rest].stop - slices[rest].start,):
                    raise ValueError(f"{key}: made for another catalogue")
                blocks[rest] = values
            else:
                levels[_place(rest)] = values
        instances = {_place(key): tuple(names) for key, names in manifest["instances"].items()}
        return cls(manifest["start"], blocks, instances, levels)


def feature_matrix(rows: list[Row]) -> Singles:
    """Features of `rows`, float32 (n, len(feature_table())), NaN where absent."""
    table = feature_table()
    matrix = np.full((len(rows), len(table)), np.nan, dtype=np.float32)
    for i, row in enumerate(rows):
        for subsystem, block in row.blocks.items():
            matrix[i, table.slices[subsystem]] = block
    return matrix


def _place(text: str) -> Place:
    subsystem, _, dimension = text.partition(" ")
    return subsystem, dimension
