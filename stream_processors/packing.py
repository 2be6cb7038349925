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

Singles = NDArray[np.float32]

STEPS: Final = 32.0
RANGE: Final = 1024.0
"""The largest float16 is 65,504 of them; where there is a larger value, it and its like are kept as float32."""
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
        there = ~np.isnan(values)
        steps = np.rint(values[there] / scales[there] * np.float32(STEPS))
        moving = steps != 0
        steps = steps[moving]
        large = np.abs(steps) > BYTE
        shares = steps[large] / np.float32(STEPS * RANGE)
        if (np.abs(shares) <= np.finfo(np.float16).max).all():
            shares = shares.astype(np.float16)
        parts = (np.packbits(moving), np.packbits(large), steps[~large].astype(np.int8), shares)
        return cls(_shared(np.packbits(there).tobytes()), b"".join(part.tobytes() for part in parts))

    def check(self, size: int) -> None:
        """Raises ValueError if these are not `size` values."""
        self.values(np.ones(size, np.float32))

    def values(self, scales: Singles) -> Singles:
        """The values (n,), to half a step or 0.05 %. Raises ValueError if they are more or fewer."""
        there = _flags(np.frombuffer(self.there, np.uint8), len(scales))
        data = np.frombuffer(self.data, np.uint8)
        moving, data = _split(data, int(there.sum()))
        large, data = _split(data, int(moving.sum()))
        count = len(large) - int(large.sum())
        kinds = {2 * (len(large) - count): "<f2", 4 * (len(large) - count): "<f4"}
        if len(data) - count not in kinds:
            raise ValueError(f"{len(data)} bytes for {count} small and {len(large) - count} large values")
        steps = np.empty(len(large), np.float32)
        steps[~large] = data[:count].view(np.int8)
        steps[large] = data[count:].view(kinds[len(data) - count]) * np.float32(STEPS * RANGE)
        whole = np.zeros(len(moving), np.float32)
        whole[moving] = steps
        unpacked = np.full(len(scales), np.nan, np.float32)
        unpacked[there] = whole * (scales[there] / np.float32(STEPS))
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


def _split(data: NDArray[np.uint8], count: int) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
    """`count` bits, and the bytes after them."""
    size = -(-count // 8)
    return _flags(data[:size], count), data[size:]


def _flags(data: NDArray[np.uint8], count: int) -> NDArray[np.bool_]:
    if len(data) != -(-count // 8):
        raise ValueError(f"{len(data)} bytes do not hold {count} bits")
    return np.unpackbits(data, count=count).astype(bool)
