"""Rows that a baseline learns from: the features of one window and, now and then, the levels of its instances.

A host keeps more than a hundred of them, so they are packed: most of the features that a host has are 0 most of the
time (counters of errors, devices at rest), and those that are not are kept as float16 in units of RANGE times the
feature's smallest scale. That is exact to 0.05 % of the value and, for small values, to 1e-4 of the smallest scale:
well below what a baseline tells apart.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.records import StateRecord
from stream_processors.features import feature_table
from stream_processors.seconds import Singles, layout
from stream_processors.windows import Window

Names = tuple[str, ...]
Place = tuple[str, str]


RANGE: Final = 1024.0
"""Largest value is 65,504 * RANGE smallest scales; what holds a larger one is kept as float32."""
Packed = NDArray[np.float16] | Singles


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The features of a subsystem that are there.

    positions  int16 (n,): in its slice of the feature table; rows of the same host share them
    moving     uint8 (ceil(n / 8),): bits that say which of them are not 0
    values     those, float16 in units of RANGE smallest scales, or float32
    """

    positions: NDArray[np.int16]
    moving: NDArray[np.uint8]
    values: Packed

    @classmethod
    def of(cls, features: Singles, units: Singles) -> Block:
        """Pack the features of a subsystem (len(slice),), NaN where absent."""
        there = np.flatnonzero(~np.isnan(features))
        present = features[there]
        filled = present != 0
        values = _pack(present[filled], units[there[filled]])
        return cls(_shared(there.astype(np.int16).tobytes()), np.packbits(filled), values)

    def fits(self, size: int) -> bool:
        """Whether its arrays fit each other and a slice of `size` features."""
        inside = ((self.positions >= 0) & (self.positions < size)).all()
        return (
            bool(inside)
            and self.moving.shape == (-(-len(self.positions) // 8),)
            and self.values.shape == (int(np.bitwise_count(self.moving).sum()),)
        )

    def unpack(self, units: Singles) -> Singles:
        """Values at `positions`, float32."""
        filled = np.unpackbits(self.moving, count=len(self.positions)).astype(bool)
        unpacked = np.zeros(len(self.positions), np.float32)
        unpacked[filled] = _unpack(self.values, units[self.positions[filled]])
        return unpacked


@lru_cache(maxsize=4096)
def _shared(positions: bytes) -> NDArray[np.int16]:
    return np.frombuffer(positions, np.int16)


@dataclass(frozen=True, slots=True)
class Row:
    """One window as a baseline sees it.

    start      of the window, seconds since 1970-01-01 UTC
    blocks     by subsystem, its features
    instances  by (subsystem, dimension), the names of its instances; empty in a row without levels
    packed     by (subsystem, dimension), their levels (metrics, instances)
    """

    start: int
    blocks: Mapping[str, Block]
    instances: Mapping[Place, Names]
    packed: Mapping[Place, Packed]

    @property
    def levels(self) -> Mapping[Place, Singles]:
        """By (subsystem, dimension), float32 (metrics, instances)."""
        return {place: _unpack(values, _level_units()[place]) for place, values in self.packed.items()}

    @classmethod
    def of(cls, window: Window, features: Singles, *, levels: bool = True) -> Row:
        """Row of a window with these features, with or without the levels of its instances."""
        units = _units()
        places = list(window.places()) if levels else []
        return cls(
            start=window.start,
            blocks={name: Block.of(features[place], units[place]) for name, place in _slices(window)},
            instances={(name, dimension): names for name, dimension, names in places},
            packed={
                (name, dimension): _pack(window.levels(name, dimension), _level_units()[name, dimension])
                for name, dimension, _ in places
            },
        )

    def record(self, host: str, slot: str) -> StateRecord:
        """The row as a record of the models topic."""
        arrays: dict[str, NDArray[Any]] = {f"positions {name}": block.positions for name, block in self.blocks.items()}
        arrays |= {f"moving {name}": block.moving for name, block in self.blocks.items()}
        arrays |= {f"features {name}": block.values for name, block in self.blocks.items()}
        arrays |= {f"levels {name} {dimension}": values for (name, dimension), values in self.packed.items()}
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
        table = feature_table()
        if manifest["catalogue"] != _mark():
            raise ValueError("the row was made for another catalogue")
        blocks: dict[str, Block] = {}
        packed: dict[Place, Packed] = {}
        for key, array in record.arrays.items():
            kind, _, rest = key.partition(" ")
            if kind == "features":
                positions = _shared(np.asarray(record.arrays[f"positions {rest}"], np.int16).tobytes())
                place = table.slices[rest]
                moving = np.asarray(record.arrays[f"moving {rest}"], np.uint8)
                block = Block(positions, moving, _packed(key, array))
                if not block.fits(place.stop - place.start):
                    raise ValueError(f"{key}: positions and values do not fit")
                blocks[rest] = block
            elif kind == "levels":
                packed[_place(rest)] = _packed(key, array)
        instances = {_place(key): tuple(names) for key, names in manifest["instances"].items()}
        return cls(manifest["start"], blocks, instances, packed)


def feature_matrix(rows: list[Row]) -> Singles:
    """Features of `rows`, float32 (n, len(feature_table())), NaN where absent."""
    table, units = feature_table(), _units()
    matrix = np.full((len(rows), len(table)), np.nan, dtype=np.float32)
    for i, row in enumerate(rows):
        for subsystem, block in row.blocks.items():
            place = table.slices[subsystem]
            matrix[i, place][block.positions] = block.unpack(units[place])
    return matrix


@cache
def _units() -> Singles:
    return np.asarray(feature_table().floors * RANGE, np.float32)


@cache
def _level_units() -> Mapping[Place, Singles]:
    """Units of the levels of each place, (metrics, 1)."""
    table = feature_table()
    floors = {f.metric.name: floor for f, floor in zip(table.features, _units(), strict=True) if f.kind == "level"}
    return {
        (subsystem, group.dimension): np.array([[floors[metric.name]] for metric in group.metrics], np.float32)
        for subsystem in table.slices
        for group in layout(subsystem).groups
    }


def _pack(values: Singles, units: Singles) -> Packed:
    scaled = values / units
    largest = np.abs(np.nan_to_num(scaled)).max(initial=0.0)
    return scaled.astype(np.float16) if largest <= np.finfo(np.float16).max else values


def _unpack(packed: Packed, units: Singles) -> Singles:
    return packed.astype(np.float32) * units if packed.dtype == np.float16 else np.asarray(packed, np.float32)


def _packed(name: str, array: NDArray[Any]) -> Packed:
    if array.dtype not in (np.float16, np.float32):
        raise ValueError(f"{name}: is {array.dtype}")
    return array


@cache
def _mark() -> str:
    """Tells rows apart whose values mean something else."""
    return f"{feature_table().mark} {zlib.crc32(_units().tobytes()):08x}"


def _slices(window: Window) -> list[tuple[str, slice]]:
    return [(name, feature_table().slices[name]) for name in window.stats]


def _place(text: str) -> Place:
    subsystem, _, dimension = text.partition(" ")
    return subsystem, dimension
