"""Which partition of a topic a key belongs to, as Kafka's own partitioner has it."""

from __future__ import annotations

from typing import Final

SEED: Final = 0x9747B28C
FACTOR: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Partition of a message with `key`: what librdkafka calls murmur2_random, and the Java client its default."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, 32 bit, little-endian, with the seed that Kafka uses."""
    value = SEED ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * FACTOR & MASK
        word = (word ^ word >> 24) * FACTOR & MASK
        value = (value * FACTOR & MASK) ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * FACTOR & MASK
    value = (value ^ value >> 13) * FACTOR & MASK
    return value ^ value >> 15
