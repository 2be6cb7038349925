"""The matrices of a telemetry message: as columns of one matrix, and where they lie in the bytes of a body."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]
Places = NDArray[np.intp]

KNOWN: Final = 1024
"""So many kinds of hosts times subsystems are remembered; more are read as well, only slower."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Which columns of a matrix belong to which metric. There is one object for the same metrics of the same widths.

    names   of the metrics
    starts  (metrics,) first column of each
    widths  (metrics,) number of columns of each, at least 1
    places  columns by name
    """

    names: tuple[str, ...]
    starts: Places
    widths: Places
    places: Mapping[str, slice]


@lru_cache(maxsize=KNOWN)
def columns(names: tuple[str, ...], widths: tuple[int, ...]) -> Columns:
    """The columns of metrics that stand side by side."""
    ends = list(accumulate(widths))
    starts = [end - width for end, width in zip(ends, widths, strict=True)]
    places = {name: slice(start, end) for name, start, end in zip(names, starts, ends, strict=True)}
    return Columns(names, np.array(starts, np.intp), np.array(widths, np.intp), places)


class Matrices(Mapping[str, Singles]):
    """Matrices by the name of their metric, each (count, instances): columns of `cells`, float32 (count, channels)."""

    __slots__ = ("cells", "columns")

    def __init__(self, cells: Singles, columns: Columns) -> None:
        self.cells = cells
        self.columns = columns

    @classmethod
    def of(cls, matrices: Mapping[str, Singles]) -> Self:
        """From matrices that lie apart; those without instances are left out."""
        if isinstance(matrices, cls):
            return matrices
        there = {name: matrix for name, matrix in matrices.items() if matrix.shape[1]}
        cells = np.concatenate(list(there.values()), axis=1) if there else np.empty((0, 0))
        widths = tuple(matrix.shape[1] for matrix in there.values())
        return cls(cells.astype(np.float32, copy=False), columns(tuple(there), widths))

    def __getitem__(self, name: str) -> Singles:
        return self.cells[:, self.columns.places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns.places)

    def __len__(self) -> int:
        return len(self.columns.places)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """How matrices lie in the body of a message: Avro writes them one after the other, each after a few bytes that say
    that it is there and how long it is. A host sends messages of the same form second after second. Where those bytes
    are what they were, the matrices are where they were, and nothing needs to be read field by field.

    sizes    bytes of each field, None where there is no matrix
    between  the bytes before each matrix, and after the last
    parts    splits a body into those and the matrices, in turn
    """

    sizes: tuple[int | None, ...]
    between: tuple[bytes, ...]
    parts: struct.Struct

    @classmethod
    def of(cls, fields: Sequence[bytes | None]) -> Self:
        """The form of a body with these fields, each a union of null and bytes."""
        sizes = tuple(None if field is None else len(field) for field in fields)
        between = [b""]
        for size in sizes:
            if size is None:
                between[-1] += b"\x00"
            else:
                between[-1] += b"\x02" + _long(size)
                between.append(b"")
        present = [size for size in sizes if size is not None]
        lengths = chain.from_iterable(zip(map(len, between), [*present, 0], strict=True))
        return cls(sizes, tuple(between), struct.Struct("".join(f"{length}s" for length in lengths)))

    def read(self, data: bytes, start: int) -> tuple[bytes, ...] | None:
        """The matrices in a body that lies in `data` from `start` to the end; None if it is not of this form."""
        if len(data) - start != self.parts.size:
            return None
        parts: tuple[bytes, ...] = self.parts.unpack_from(data, start)
        return parts[1:-1:2] if parts[::2] == self.between else None


@lru_cache(maxsize=4 * KNOWN)
def shared(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same names of instances: hosts of a kind have the same, and every second of a host has."""
    return names


def side_by_side(matrices: Sequence[bytes], count: int, columns: Columns) -> Singles:
    """Little-endian float32 matrices (count, width) as these columns of one, (count, channels)."""
    cells = np.frombuffer(b"".join(matrices), dtype="<f4")
    return np.asarray(cells.take(_turned(count, columns)), dtype=np.float32)


@lru_cache(maxsize=KNOWN)
def _turned(count: int, columns: Columns) -> Places:
    """Where the cells of the rows of all matrices are when they lie one matrix after the other, (count, channels)."""
    blocks = [
        count * start + np.arange(count * width).reshape(count, width)
        for start, width in zip(columns.starts, columns.widths, strict=True)
    ]
    return np.concatenate(blocks, axis=1) if blocks else np.empty((count, 0), np.intp)


def _long(number: int) -> bytes:
    """As Avro writes a number that is not negative: zigzag, seven bits a byte, the lowest first."""
    rest, written = number << 1, bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)
