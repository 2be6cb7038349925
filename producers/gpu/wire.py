"""What the process that reads GPUs and its parent say to each other.

The parent writes one line of JSON, `Orders`, and then a byte for each reading that it wants. The child answers with
frames: length and kind (little-endian, 4 and 1 byte), then JSON, or for VALUES the monotonic time (ns, 8 bytes) and a
float64 for each channel of the last HELLO. In a few bytes of shared memory it writes which GPU it asks at the moment,
which is known then even if the answer never comes.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

HELLO: Final = 1
VALUES: Final = 2
XID: Final = 3
LOST: Final = 4
DOWN: Final = 5
KINDS: Final = frozenset({HELLO, VALUES, XID, LOST, DOWN})

HEADER: Final = struct.Struct("<IB")
TIME: Final = struct.Struct("<Q")
LARGEST: Final = 1 << 24
MARK_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class Orders:
    """What a child is to do.

    nvml      path of the library; empty for the one that the system finds
    names     names given so far, by UUID
    unwanted  names of GPUs that are not to be read
    parent    process id, so that a child whose parent died early ends
    mark      descriptor of the shared memory of MARK_SIZE bytes, -1 for none
    realtime  whether its readings go before all that share the processors fairly, where that is allowed
    """

    nvml: str
    names: dict[str, str]
    unwanted: tuple[str, ...]
    parent: int
    mark: int = -1
    realtime: bool = False


@dataclass(frozen=True, slots=True)
class GpuId:
    """A GPU: name of the session, UUID, PCI address, model."""

    name: str
    uuid: str
    pci: str
    model: str


@dataclass(frozen=True, slots=True)
class Hello:
    """What there is to read.

    gpus      those that answer
    failed    reasons of those that NVML counts and gives no handle of, or that were lost at once, by name or ""
    channels  (metric, instance) of each value
    notes     what a person should know
    """

    gpus: tuple[GpuId, ...]
    failed: tuple[tuple[str, str], ...]
    channels: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Xid:
    """An XID that NVML reported, at a time of the wall clock, ns."""

    instance: str
    code: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A GPU that does not answer any more."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Down:
    """Why there is nothing to read at all; `absent` if there is just no driver here."""

    reason: str
    absent: bool


Said = Hello | Xid | Lost | Down
_KIND_OF: Final[dict[type, int]] = {Hello: HELLO, Xid: XID, Lost: LOST, Down: DOWN}


def pack(kind: int, payload: bytes) -> bytes:
    """A frame."""
    return HEADER.pack(len(payload), kind) + payload


def say(said: Said) -> bytes:
    """A frame of JSON."""
    return pack(_KIND_OF[type(said)], json.dumps(asdict(said)).encode())


def heard(kind: int, payload: bytes) -> Said:
    """What a frame of JSON says. Raises ValueError."""
    try:
        found: dict[str, Any] = json.loads(payload)
        if kind == HELLO:
            return Hello(
                tuple(GpuId(**gpu) for gpu in found["gpus"]),
                tuple((str(name), str(reason)) for name, reason in found["failed"]),
                tuple((str(metric), str(instance)) for metric, instance in found["channels"]),
                tuple(map(str, found["notes"])),
            )
        said: Said = {XID: Xid, LOST: Lost, DOWN: Down}[kind](**found)
        return said
    except (KeyError, TypeError) as error:
        raise ValueError(f"a frame of kind {kind} that cannot be understood: {error!r}") from None


def orders(line: bytes) -> Orders:
    """What the parent wrote. Raises ValueError or TypeError."""
    found = json.loads(line)
    return Orders(**{**found, "unwanted": tuple(found["unwanted"])})


class Frames:
    """Takes a stream of bytes apart."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """Kind and payload of each frame that `chunk` completes. Raises ValueError when the stream is none."""
        data = self._rest + chunk
        start = 0
        while len(data) - start >= HEADER.size:
            length, kind = HEADER.unpack_from(data, start)
            if kind not in KINDS or length > LARGEST:
                raise ValueError(f"no frame: kind {kind}, {length} bytes")
            end = start + HEADER.size + length
            if len(data) < end:
                break
            yield kind, data[start + HEADER.size : end]
            start = end
        self._rest = data[start:]


class Mark:
    """Shared memory that holds the name of the GPU that is asked at the moment, "" for none."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, MARK_SIZE) if descriptor >= 0 else bytearray(MARK_SIZE)

    def set(self, name: str) -> None:
        """It is the turn of `name`."""
        self._memory[:] = name.encode()[:MARK_SIZE].ljust(MARK_SIZE, b"\0")

    def get(self) -> str:
        """Whose turn it is."""
        return self._memory[:].rstrip(b"\0").decode("ascii", "replace")

    def close(self) -> None:
        """Give the memory back."""
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()
