"""Messages are delivered without a task for each, unless they have to wait, and come in batches."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from mode import Service

from stream_processors.intake import PromptConsumer, batches


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
