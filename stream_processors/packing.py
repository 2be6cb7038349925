"""Values packed by how much of them matters.

A value is a number of steps, STEPS of which make its smallest scale: what a baseline cannot tell apart is the same
number. Most are 0 most of the time (counters of errors, devices at rest) and take a bit, those of a few scales take a
byte, and what is larger is a float16, exact to 0.05 %, as a share of RANGE smallest scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from stream_processors.compiled import compiled

Singles = NDArray[np.float32]
Bytes = NDArray[np.uint8]

STEPS: Final = 32.0
RANGE: Final = 1024.0
"""The largest float16 is 65,504 of them; where there is a larger value, it and its like are kept as float32."""
LARGEST: Final = float(np.finfo(np.float16).max)
BYTE: Final = 127


@dataclass(frozen=True, slots=True)
class Packed:
    """Values that lie in an order that their reader knows.

    there  a bit each that says whether the value is there at all; the values of one host share it
    data   a bit for each that is there: whether it is not 0; a bit for each of those: whether it is large; then the
           small ones and the large ones
    """

    there: bytes
    data: bytes

    @classmethod
    def of(cls, values: Singles, scales: Singles) -> Self:
        """Pack values (n,), NaN where absent, whose smallest scales (n,) are given."""
        size = _bytes(len(values))
        there, moving, large = np.zeros((3, size), np.uint8)
        small, steps = np.empty(len(values), np.int8), np.empty(len(values), np.float32)
        present, moved, few = _pack(values, scales, there, moving, large, small, steps)
        shares = steps[:few] / np.float32(STEPS * RANGE)
        if (np.abs(shares) <= LARGEST).all():
            shares = shares.astype(np.float16)
        parts = (moving[: _bytes(present)], large[: _bytes(moved)], small[: moved - few], shares)
        return cls(_shared(there.tobytes()), b"".join(part.tobytes() for part in parts))

    def check(self, size: int) -> None:
        """Raises ValueError if these are not `size` values. Unpacks nothing: it is asked of all rows of all hosts when
        a worker takes over.
        """
        there = _number(self.there, size)
        moving = _number(self.data[: _bytes(there)], there)
        data = self.data[_bytes(there) :]
        large = _number(data[: _bytes(moving)], moving)
        _kind(len(data) - _bytes(moving), moving - large, large)

    def values(self, scales: Singles) -> Singles:
        """The values (n,), to half a step or 0.05 %. Raises ValueError if they are more or fewer."""
        there = _number(self.there, len(scales))
        large = _bytes(there)
        moving = _number(self.data[:large], there)
        small = large + _bytes(moving)
        few = _number(self.data[large:small], moving)
        kind = _kind(len(self.data) - small, moving - few, few)
        steps = np.frombuffer(self.data, kind, offset=small + moving - few) * np.float32(STEPS * RANGE)
        data = np.frombuffer(self.data, np.uint8)
        unpacked = np.empty(len(scales), np.float32)
        _unpack(np.frombuffer(self.there, np.uint8), data, large, small, steps, scales, unpacked)
        return unpacked

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Both parts as arrays of a record, under this name."""
        return {f"{name} there": np.frombuffer(self.there, np.uint8), name: np.frombuffer(self.data, np.uint8)}

    @classmethod
    def restore(cls, arrays: Any, name: str) -> Self:
        """What `arrays` gave. Raises KeyError if there is no such."""
        return cls(_shared(arrays[f"{name} there"].tobytes()), arrays[name].tobytes())


@lru_cache(maxsize=4096)
def _shared(there: bytes) -> bytes:
    return there


def _bytes(bits: int) -> int:
    return -(-bits // 8)


def _kind(size: int, small: int, large: int) -> str:
    """Type of the large ones among so many values in `size` bytes."""
    kinds = {small + 2 * large: "<f2", small + 4 * large: "<f4"}
    if size not in kinds:
        raise ValueError(f"{size} bytes for {small} small and {large} large values")
    return kinds[size]


def _number(data: bytes, count: int) -> int:
    """How many of `count` bits are set."""
    _fits(len(data), count)
    return (int.from_bytes(data, "big") >> (-count % 8)).bit_count()


def _fits(size: int, count: int) -> None:
    if size != _bytes(count):
        raise ValueError(f"{size} bytes do not hold {count} bits")


@compiled("UniTuple(int64, 3)(float32[::1], float32[::1], uint8[::1], uint8[::1], uint8[::1], int8[::1], float32[::1])")
def _pack(  # noqa: PLR0917 - compiled code takes what it is given by position
    values: Singles,
    scales: Singles,
    there: Bytes,
    moving: Bytes,
    large: Bytes,
    small: NDArray[np.int8],
    steps: Singles,
) -> tuple[int, int, int]:
    """Put bits of `values` into `there`, `moving` and `large`, which are 0, and what they are into `small` and `steps`.
    Returns how many are there, how many of those are not 0, and how many of those are large.
    """
    present = moved = few = 0
    for place in range(len(values)):
        if np.isnan(values[place]):
            continue
        there[place >> 3] |= np.uint8(128 >> (place & 7))
        step = np.rint(values[place] / scales[place] * np.float32(STEPS))
        if step != 0:
            moving[present >> 3] |= np.uint8(128 >> (present & 7))
            if abs(step) > BYTE:
                large[moved >> 3] |= np.uint8(128 >> (moved & 7))
                steps[few] = step
                few += 1
            else:
                small[moved - few] = np.int8(step)
            moved += 1
        present += 1
    return present, moved, few


@compiled(
    "void(Array(uint8, 1, 'C', readonly=True), Array(uint8, 1, 'C', readonly=True), int64, int64, float32[::1],"
    "float32[::1], float32[::1])"
)
def _unpack(  # noqa: PLR0917 - compiled code takes what it is given by position
    there: Bytes, data: Bytes, large: int, small: int, steps: Singles, scales: Singles, values: Singles
) -> None:
    """Put what `data` holds into `values`: bits of what is not 0, from byte `large` on of what is large, and from byte
    `small` on the small ones; `steps` are the large ones.
    """
    present = moved = few = 0
    for place in range(len(values)):
        if not there[place >> 3] & (128 >> (place & 7)):
            values[place] = np.nan
            continue
        step = np.float32(0)
        if data[present >> 3] & (128 >> (present & 7)):
            if data[large + (moved >> 3)] & (128 >> (moved & 7)):
                step = steps[few]
                few += 1
            else:
                step = np.float32(np.int8(data[small + moved - few]))
            moved += 1
        present += 1
        values[place] = step * (scales[place] / np.float32(STEPS))
