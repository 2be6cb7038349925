"""Messages are unpacked and delivered without a decompressor and a task for each, and come in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zstandard
from aiokafka import codec
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from mode import Service

from schemas.settings import KafkaSettings, WorkerSettings
from stream_processors.intake import EmptyBuffer, Plain, PromptConsumer, Unpacking, application, batches


class Buffer:
    """A topic with its buffer."""

    def __init__(self, *, full: bool = False) -> None:
        self.queue = SimpleNamespace(full=lambda: full)


def consumer(*topics: Buffer) -> Any:
    """A consumer whose flow is on, without the threads and connections of a real one."""
    found: Any = PromptConsumer.__new__(PromptConsumer)
    Service.__init__(found)
    found.app = SimpleNamespace(flow_control=SimpleNamespace(is_active=lambda: True), topics=topics)
    found.suspend_flow = asyncio.Event()
    return found


def deliver(consumer: Any, delivery: Any) -> Any:
    """As Faust delivers a message."""
    return consumer.wait_first(delivery, consumer.suspend_flow.wait())


async def test_what_need_not_wait_is_delivered_in_the_task_that_reads() -> None:
    tasks: list[Any] = []

    async def delivery() -> None:
        tasks.append(asyncio.current_task())

    await deliver(consumer(Buffer()), delivery())
    assert tasks == [asyncio.current_task()]


async def test_a_delivery_that_waits_ends_when_the_flow_is_stopped() -> None:
    full, begun, ended = consumer(Buffer(full=True)), asyncio.Event(), asyncio.Event()

    async def delivery() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(deliver(full, delivery()))
    await asyncio.wait_for(begun.wait(), 10)
    assert not waiting.done()
    full.suspend_flow.set()
    await asyncio.wait_for(waiting, 10)
    await asyncio.wait_for(ended.wait(), 10)


async def test_keys_and_values_come_as_they_are() -> None:
    message: Any = SimpleNamespace(key=b"gpu-001", value=None, headers=[("a", b"b")])
    event = await Plain().compile(None)(message, propagate=True)
    assert (event.key, event.value, event.headers) == (b"gpu-001", None, {"a": b"b"})
    assert event.message is message


def test_faust_has_nothing_to_send() -> None:
    producer: Any = application(KafkaSettings(), WorkerSettings()).producer
    assert isinstance(producer.buffer, EmptyBuffer)
    assert producer.buffer.app is not None


def packed(values: Sequence[bytes]) -> bytes:
    """A batch of messages as Kafka keeps it."""
    batch = DefaultRecordBatchBuilder(2, 4, 0, -1, -1, 0, 1 << 24)
    for offset, value in enumerate(values):
        assert batch.append(offset, 1000, b"gpu-001", value, []) is not None
    return bytes(batch.build())


@pytest.mark.parametrize("size", [0, 10, 6_000, 3_000_000])
def test_batches_are_unpacked_by_one_decompressor(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever size, and many times over."""

    def made(_: object) -> bytes:
        raise AssertionError("aiokafka makes a decompressor for each batch")

    monkeypatch.setattr(codec, "zstd_decode", made)
    monkeypatch.setattr(codec.cramjam.zstd, "decompress", made)
    values = [np.random.default_rng(size).bytes(size // 2) + bytes(size // 2), b"the second"]
    for _ in range(3):
        batch = DefaultRecordBatch(packed(values))
        assert batch.compression_type == 4
        assert [record.value for record in batch] == values


def test_a_damaged_batch_is_refused() -> None:
    frame = zstandard.compress(bytes(range(256)) * 40)
    unpacking = Unpacking()
    for damaged in (frame[:-5], b"no zstd"):
        with pytest.raises((ValueError, zstandard.ZstdError)):
            unpacking(damaged)
    assert unpacking(memoryview(frame)) == bytes(range(256)) * 40


async def test_events_come_in_batches_none_acknowledged() -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    heard: dict[str, float] = {}
    app = SimpleNamespace(monitor=SimpleNamespace(stream_inbound_time=heard))
    stream = SimpleNamespace(channel=SimpleNamespace(queue=queue), app=app)
    events = [SimpleNamespace(message=SimpleNamespace(tp=f"topic-{number % 2}")) for number in range(7)]
    for event in events[:6]:
        queue.put_nowait(event)
    asyncio.get_running_loop().call_later(0.01, queue.put_nowait, events[6])
    taken = batches(stream, 3, 0.2)
    assert [await anext(taken) for _ in range(3)] == [events[:3], events[3:6], events[6:]]
    assert set(heard) == {"topic-0", "topic-1"}
    await taken.aclose()  # type: ignore[attr-defined]
