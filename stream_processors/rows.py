"""Rows that a baseline learns from: the features of one window and the levels of its instances."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.records import StateRecord
from stream_processors.features import feature_table
from stream_processors.seconds import Singles
from stream_processors.windows import Window

Names = tuple[str, ...]
Place = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The features of a subsystem that are there: their positions in its slice of the feature table, int16, which rows
    of the same host share, and their values, float32.
    """

    positions: NDArray[np.int16]
    values: Singles


@lru_cache(maxsize=4096)
def _shared(positions: bytes) -> NDArray[np.int16]:
    return np.frombuffer(positions, np.int16)


@dataclass(frozen=True, slots=True)
class Row:
    """One window as a baseline sees it.

    start      of the window, seconds since 1970-01-01 UTC
    blocks     by subsystem, its features
    instances  by (subsystem, dimension), the names of its instances
    levels     by (subsystem, dimension), float32 (metrics, instances)
    """

    start: int
    blocks: Mapping[str, Block]
    instances: Mapping[Place, Names]
    levels: Mapping[Place, Singles]

    @classmethod
    def of(cls, window: Window, features: Singles) -> Row:
        """Row of a window with these features."""
        slices = feature_table().slices
        return cls(
            start=window.start,
            blocks={name: _block(features[slices[name]]) for name in window.stats},
            instances={(name, dimension): names for name, dimension, names in window.places()},
            levels={(name, dimension): window.levels(name, dimension) for name, dimension, _ in window.places()},
        )

    def record(self, host: str, slot: str) -> StateRecord:
        """The row as a record of the models topic."""
        arrays: dict[str, NDArray[Any]] = {f"positions {name}": block.positions for name, block in self.blocks.items()}
        arrays |= {f"features {name}": block.values for name, block in self.blocks.items()}
        arrays |= {f"levels {name} {dimension}": values for (name, dimension), values in self.levels.items()}
        manifest = {
            "catalogue": feature_table().mark,
            "start": self.start,
            "instances": {f"{name} {dimension}": names for (name, dimension), names in self.instances.items()},
        }
        return StateRecord(host, slot, json.dumps(manifest), arrays)

    @classmethod
    def restore(cls, record: StateRecord) -> Row:
        """The row that `record` came from. Raises KeyError or ValueError for any other record."""
        manifest = json.loads(record.manifest)
        table = feature_table()
        if manifest["catalogue"] != table.mark:
            raise ValueError("the row was made for another catalogue")
        blocks: dict[str, Block] = {}
        levels: dict[Place, Singles] = {}
        for key, array in record.arrays.items():
            kind, _, rest = key.partition(" ")
            if kind == "features":
                positions = _shared(np.asarray(record.arrays[f"positions {rest}"], np.int16).tobytes())
                place = table.slices[rest]
                if (
                    array.shape != positions.shape
                    or not ((positions >= 0) & (positions < place.stop - place.start)).all()
                ):
                    raise ValueError(f"{key}: positions and values do not fit")
                blocks[rest] = Block(positions, np.asarray(array, np.float32))
            elif kind == "levels":
                levels[_place(rest)] = np.asarray(array, np.float32)
        instances = {_place(key): tuple(names) for key, names in manifest["instances"].items()}
        return cls(manifest["start"], blocks, instances, levels)


def feature_matrix(rows: list[Row]) -> Singles:
    """Features of `rows`, float32 (n, len(feature_table())), NaN where absent."""
    table = feature_table()
    matrix = np.full((len(rows), len(table)), np.nan, dtype=np.float32)
    for i, row in enumerate(rows):
        for subsystem, block in row.blocks.items():
            matrix[i, table.slices[subsystem]][block.positions] = block.values
    return matrix


def _block(features: Singles) -> Block:
    there = np.flatnonzero(~np.isnan(features))
    return Block(_shared(there.astype(np.int16).tobytes()), features[there])


def _place(text: str) -> Place:
    subsystem, _, dimension = text.partition(" ")
    return subsystem, dimension
