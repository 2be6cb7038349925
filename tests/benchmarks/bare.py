"""Bare Faust, to measure the worker against: takes telemetry in batches, counts it and acknowledges it, nothing else.

python -m tests.benchmarks.bare BOOTSTRAP DIRECTORY
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import faust
import uvloop
from confluent_kafka import Consumer, TopicPartition

from schemas.settings import WorkerSettings
from schemas.topics import TELEMETRY
from tests.streams import PARTITIONS

GROUP: Final = "bare"


def application(bootstrap: str, directory: str) -> faust.App:
    """An application that takes as many messages at a time as a worker, with what Faust brings along."""
    settings = WorkerSettings()
    app = faust.App(
        GROUP,
        broker=f"kafka://{bootstrap}",
        consumer_auto_offset_reset="earliest",
        broker_commit_interval=1.0,
        datadir=directory,
        store="memory://",
        stream_wait_empty=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        web_enabled=False,
    )
    inputs = app.topic(
        *TELEMETRY.values(), key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
    )

    async def count(stream: Any) -> None:
        taken = 0
        async for events in stream.noack_take(settings.batch, within=settings.batch_within_s):
            taken += len(events)
            for event in events:
                event.ack()

    async def assigned(*_: Any, **__: Any) -> None:
        print("assigned", flush=True)

    app.agent(inputs, name="bare", concurrency=1)(count)
    app.on_partitions_assigned.connect(assigned, weak=False)
    return app


@contextmanager
def running(bootstrap: str, directory: Path) -> Iterator[int]:
    """A process of it that has its partitions; its id."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.bare", bootstrap, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "bare Faust did not start"
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


def acknowledged(bootstrap: str) -> int:
    """How many messages it has taken, as far as it has told Kafka."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        places = [TopicPartition(topic, each) for topic in TELEMETRY.values() for each in range(PARTITIONS)]
        return sum(max(each.offset, 0) for each in consumer.committed(places, timeout=10))
    finally:
        consumer.close()


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("directory")
    args = parser.parse_args()

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        app = application(args.bootstrap, args.directory)
        await app.start()
        await stop.wait()
        await app.stop()

    uvloop.run(run())


if __name__ == "__main__":
    main()
