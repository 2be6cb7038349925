"""Batches on their way: what was read, until it is enough or old enough to be written. Pure; time is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from schemas.records import DeadLetter
from sinks.warehouse.messages import Accepted
from sinks.warehouse.rows import count_rows

Partition = tuple[str, int]


@dataclass(slots=True)
class Batch:
    """What is written, and then committed, together.

    offsets    by (topic, partition), the offset after the last message of the batch: what to commit
    oldest_ms  Kafka's time of its oldest record, ms since 1970-01-01 UTC; infinite where none is known
    """

    accepted: list[Accepted] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    offsets: dict[Partition, int] = field(default_factory=dict)
    rows: int = 0
    oldest_ms: float = math.inf

    def forget(self, partitions: set[Partition]) -> None:
        """Do not commit these: they belong to another consumer now. Writing their rows does no harm."""
        for partition in partitions:
            self.offsets.pop(partition, None)


REST: Final = 1.0


class Lane:
    """One batch in the making, due with `rows` rows or `seconds` after its first message.

    After a write that took long the next one waits REST times as long, unless the batch is full: so a busy ClickHouse
    gets fewer and larger inserts, and none is late while it is quick.
    """

    def __init__(self, rows: int, seconds: float) -> None:
        self.rows = rows
        self.seconds = seconds
        self.batch = Batch()
        self._since = math.inf
        self._rested = -math.inf

    def accept(self, item: Accepted, topic: str, now: float) -> None:
        """Add a record."""
        self.batch.accepted.append(item)
        self.batch.rows += count_rows(item)
        if item.time_ms > 0:
            self.batch.oldest_ms = min(self.batch.oldest_ms, item.time_ms)
        self._passed((topic, item.partition), item.offset, now)

    def reject(self, topic: str, partition: int, offset: int, letter: DeadLetter | None, now: float) -> None:
        """Add a message that cannot be read, with the letter that is to be sent of it, if any."""
        if letter is not None:
            self.batch.letters.append(letter)
            self.batch.rows += 1
        self._passed((topic, partition), offset, now)

    def skip(self, topic: str, partition: int, offset: int) -> None:
        """Pass over a message of which nothing is kept. Nothing is due for it: it is committed with what is."""
        self.batch.offsets[topic, partition] = offset + 1

    def wait(self, now: float) -> float:
        """Seconds until the batch is due: 0 when it is, infinite while there is nothing to write."""
        if self.batch.rows >= self.rows:
            return 0.0
        return max(0.0, max(self._since + self.seconds, self._rested) - now)

    def written(self, began: float, now: float) -> None:
        """A write took from `began` to `now`."""
        self._rested = now + REST * (now - began)

    def take(self) -> Batch:
        """The batch, to be written; a new one begins."""
        batch, self.batch, self._since = self.batch, Batch(), math.inf
        return batch

    def restore(self, batch: Batch) -> None:
        """Take back a batch that could not be written: what came meanwhile must not be committed before it."""
        later = self.batch
        self.batch = Batch(
            batch.accepted + later.accepted,
            batch.letters + later.letters,
            batch.offsets | later.offsets,
            batch.rows + later.rows,
            min(batch.oldest_ms, later.oldest_ms),
        )
        self._since = -math.inf

    def _passed(self, partition: Partition, offset: int, now: float) -> None:
        self.batch.offsets[partition] = offset + 1
        self._since = min(self._since, now)
