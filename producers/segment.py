"""The format of the spool's files: what is written, and what can still be read after any damage.

A segment is a header and records, all numbers little-endian:

    header  magic 8 bytes, version u16, salt u32, CRC-32 of what stands before
    record  marker 4 bytes, length of topic u8, of subsystem u8, of key u16, of value u32, samples u32, time i64 (ns),
            packing u8 (0 none, 1 zlib), CRC-32 of the value, CRC-32 of the record's other parts;
            topic, subsystem, key, value, packed if that makes it smaller: telemetry shrinks to a quarter

The salt is random and starts the CRC-32 of every record, so that no payload passes for a record of its segment. A
record whose head is sound and whose value is not is skipped by its length; behind a head that is not, reading goes on
at the next marker with a sound head.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"RVSPOOL\0"
VERSION: Final = 1
MARKER: Final = b"\xf5\x9cSM"
LARGEST_BYTES: Final = 32 << 20
PLAIN: Final = 0
ZLIB: Final = 1
WORTH_PACKING: Final = 64

_HEADER: Final = struct.Struct("<8sHI")
_CRC: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<4sBBHIIqBI")
HEADER_BYTES: Final = _HEADER.size + _CRC.size
HEAD_BYTES: Final = _HEAD.size + _CRC.size


class UnusableError(ValueError):
    """The bytes are no segment that this version reads; the message says why."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it goes to Kafka, with what is needed to account for it.

    samples  how many samples of `subsystem` it holds; 0 for an event
    time_ns  when it came into being, wall clock
    """

    topic: str
    key: bytes
    value: bytes
    subsystem: str
    samples: int
    time_ns: int

    @property
    def size(self) -> int:
        """Bytes that its record has at most."""
        return HEAD_BYTES + len(self.topic) + len(self.subsystem) + len(self.key) + len(self.value)


@dataclass(frozen=True, slots=True)
class Damage:
    """A place of a segment where nothing can be read: at least one message is lost.

    subsystem, samples  of the message, where its head is sound; "" and 0 otherwise
    """

    reason: str
    subsystem: str = ""
    samples: int = 0


def header(salt: int) -> bytes:
    """What a segment begins with. salt: 32 random bits."""
    fixed = _HEADER.pack(MAGIC, VERSION, salt)
    return fixed + _CRC.pack(zlib.crc32(fixed))


def salt_of(data: bytes) -> int:
    """The salt of the segment that begins with `data`. Raises UnusableError."""
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise UnusableError("not a segment of the spool")
    if len(data) < HEADER_BYTES:
        raise UnusableError("shorter than its header")
    _, version, salt = _HEADER.unpack_from(data)
    if _CRC.unpack_from(data, _HEADER.size)[0] != zlib.crc32(data[: _HEADER.size]):
        raise UnusableError("damaged header")
    if version != VERSION:
        raise UnusableError(f"version {version}, this agent reads {VERSION}")
    return int(salt)


def record(message: Stored, salt: int) -> bytes:
    """The bytes of `message` in a segment. Raises ValueError for one that does not fit the format."""
    topic, subsystem = message.topic.encode("ascii"), message.subsystem.encode("ascii")
    names = topic + subsystem + message.key
    if len(message.value) > LARGEST_BYTES:
        raise ValueError(f"a message of {len(message.value)} bytes is too large for the spool")
    packing, value = PLAIN, message.value
    if len(value) >= WORTH_PACKING:
        packed = zlib.compress(value, 1)
        if len(packed) < len(value):
            packing, value = ZLIB, packed
    try:
        fixed = _HEAD.pack(
            MARKER,
            len(topic),
            len(subsystem),
            len(message.key),
            len(value),
            message.samples,
            message.time_ns,
            packing,
            zlib.crc32(value, salt),
        )
    except struct.error as error:
        raise ValueError(f"a message that the spool cannot hold: {error}") from None
    return b"".join((fixed, _CRC.pack(zlib.crc32(names, zlib.crc32(fixed, salt))), names, value))


def records(data: bytes, salt: int) -> Iterator[tuple[int, Stored | Damage]]:
    """What `data`, a segment or a part of one that begins with a record, holds: where each item ends, and the item.

    Never raises, and never gives a message that was not written so. A damaged place is one item, however long.
    """
    at = 0
    while at < len(data):
        head = _head(data, at, salt)
        if head is None:
            start, at = at, _next(data, at + 1, salt)
            yield at, Damage(f"{at - start} bytes that are no record")
            continue
        topic, subsystem, key, samples, time_ns, packing, value_crc, begin, end = head
        if end > len(data):
            yield len(data), Damage("cut off", subsystem, samples)
            return
        at = end
        value = _value(data[begin:end], packing) if zlib.crc32(data[begin:end], salt) == value_crc else None
        if value is None:
            yield at, Damage("checksum of a message", subsystem, samples)
        else:
            yield at, Stored(topic, key, value, subsystem, samples, time_ns)


def _value(data: bytes, packing: int) -> bytes | None:
    """A value unpacked; None for one that nobody of ours has packed."""
    if packing == PLAIN:
        return data
    if packing != ZLIB:
        return None
    unpacking = zlib.decompressobj()
    try:
        value = unpacking.decompress(data, LARGEST_BYTES)
    except zlib.error:
        return None
    return value if unpacking.eof else None


def _head(data: bytes, at: int, salt: int) -> tuple[str, str, bytes, int, int, int, int, int, int] | None:
    """Topic, subsystem, key, samples, time, packing, CRC of the value, and where the value begins and ends; None if
    damaged.
    """
    names_at = at + HEAD_BYTES
    if len(data) < names_at:
        return None
    fixed = _HEAD.unpack_from(data, at)
    marker, topic_len, subsystem_len, key_len, value_len, samples, time_ns, packing, value_crc = fixed
    key_at = names_at + topic_len + subsystem_len
    begin = key_at + key_len
    if marker != MARKER or begin > len(data) or value_len > LARGEST_BYTES:
        return None
    (crc,) = _CRC.unpack_from(data, at + _HEAD.size)
    if crc != zlib.crc32(data[names_at:begin], zlib.crc32(data[at : at + _HEAD.size], salt)):
        return None
    try:
        topic = data[names_at : names_at + topic_len].decode("ascii")
        subsystem = data[names_at + topic_len : key_at].decode("ascii")
    except UnicodeDecodeError:
        return None
    return topic, subsystem, data[key_at:begin], samples, time_ns, packing, value_crc, begin, begin + value_len


def _next(data: bytes, at: int, salt: int) -> int:
    """Where the next record with a sound head begins, or the end."""
    while (at := data.find(MARKER, at)) >= 0:
        if _head(data, at, salt) is not None:
            return at
        at += 1
    return len(data)
