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
        there = ~np.isnan(values)
        places = np.flatnonzero(there)
        steps = np.rint(values.take(places) / scales.take(places) * np.float32(STEPS))
        moving = steps != 0
        steps = steps[moving]
        large = np.abs(steps) > BYTE
        shares = steps[large] / np.float32(STEPS * RANGE)
        if (np.abs(shares) <= LARGEST).all():
            shares = shares.astype(np.float16)
        parts = (np.packbits(moving), np.packbits(large), steps[~large].astype(np.int8), shares)
        return cls(_shared(np.packbits(there).tobytes()), b"".join(part.tobytes() for part in parts))

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
        there = _places(self.there, len(scales))
        data = np.frombuffer(self.data, np.uint8)
        moving, data = _split(data, len(there))
        places = np.flatnonzero(moving)
        large, data = _split(data, len(places))
        count = int(np.count_nonzero(large))
        small = len(places) - count
        kind = _kind(len(data), small, count)
        steps = np.empty(len(places), np.float32)
        steps[~large] = data[:small].view(np.int8)
        steps[large] = data[small:].view(kind) * np.float32(STEPS * RANGE)
        whole = np.zeros(len(there), np.float32)
        whole[places] = steps
        unpacked = np.full(len(scales), np.nan, np.float32)
        unpacked[there] = whole * (scales.take(there) / np.float32(STEPS))
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


@lru_cache(maxsize=16)
def _places(there: bytes, count: int) -> NDArray[np.intp]:
    """Where of so many values those are that are there; rows of a host are unpacked together."""
    return np.flatnonzero(_flags(np.frombuffer(there, np.uint8), count))


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


def _split(data: NDArray[np.uint8], count: int) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
    """`count` bits, and the bytes after them."""
    return _flags(data[: _bytes(count)], count), data[_bytes(count) :]


def _flags(data: NDArray[np.uint8], count: int) -> NDArray[np.bool_]:
    _fits(len(data), count)
    return np.unpackbits(data, count=count).view(np.bool_)


def _fits(size: int, count: int) -> None:
    if size != _bytes(count):
        raise ValueError(f"{size} bytes do not hold {count} bits")
