"""What a window costs the worker as it runs: from Kafka, through Faust and the pipeline, and its results back to Kafka.

python -m tests.benchmarks.worker [--host NAME] [--hosts N] [--seconds N] [--backlog] [--bare] [--json]

Telemetry of N hosts of a kind is published as agents do it, each message by itself. The hosts are learnt first, from
what lies in the topics. Then telemetry comes second by second, or with --backlog all at once, and the processor time is
taken that the process of the worker needs for it, and its main thread. With --bare an application of Faust that only
counts reads the same messages at the same time, and afterwards what is our own work on them is done once more, without
Kafka and Faust. On a core where bare Faust takes 10,000 messages a second from a backlog 1,000 hosts are to find room,
on others as many more or fewer: `needed_a_processor_s`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from schemas.codec import decode_telemetry, encode
from schemas.records import Telemetry
from schemas.settings import PipelineSettings
from schemas.topics import TELEMETRY, VERDICTS
from stream_processors.pipeline import Pipeline
from tests.benchmarks import bare
from tests.benchmarks.hosts import HOSTS
from tests.benchmarks.pipeline import work
from tests.kafka_fixture import local_kafka
from tests.streams import PARTITIONS, Service, eventually, make_topics

WARM: Final = 30
BUDGET: Final = 1000 / 10_000
"""Hosts a core over messages a second that bare Faust takes of it."""
LEARNT: Final = 60
"""Seconds after which all hosts have their model."""

PRODUCERS: Final = 16
WAITING: Final = 5_000


def measure(kind: str, hosts: int, seconds: int, beside: bool = False, backlog: bool = False) -> dict[str, float]:
    """Milliseconds of processor time a window, windows a second of processor time, and how long after the last message
    all verdicts were told. With `beside` also the milliseconds a message of bare Faust: beside the worker, and before
    that of what lies in the topics; how many windows a second its pace with a backlog asks for; and those of our own
    work.
    """
    telemetry = [[decode_telemetry(each) for each in second] for second in islice(HOSTS[kind](), LEARNT + seconds)]
    names = [f"bench-{number:05d}" for number in range(hosts)]
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        directory = Path(place)
        kafka = stack.enter_context(local_kafka(directory / "kafka"))
        make_topics(kafka.bootstrap)
        environ = {
            "REVEAL_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "REVEAL_KAFKA_PARTITIONS": str(PARTITIONS),
            "REVEAL_WORKER_DIRECTORY": str(directory / "worker"),
            "REVEAL_PIPELINE_WARMUP_WINDOWS": str(WARM),
            "REVEAL_PIPELINE_REFIT_WINDOWS": "1000000",
        }
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "bench"})
        stack.callback(consumer.close)

        def told() -> int:
            places = [TopicPartition(VERDICTS, partition) for partition in range(PARTITIONS)]
            return sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in places)

        def read(learnt: int) -> None:
            count = hosts * learnt * len(telemetry[0])
            eventually(lambda: bare.acknowledged(kafka.bootstrap) >= count, "bare Faust read", timeout_s=300 + hosts)

        tell(f"publishing {LEARNT} s of {hosts} hosts, to be learnt")
        publish(kafka.bootstrap, telemetry[:LEARNT], names)
        others = [stack.enter_context(bare.running(kafka.bootstrap, directory / "bare"))] if beside else []
        started = [*map(processor_s, others)]
        if beside:
            tell("bare Faust reads them")
            read(LEARNT)
        tell("the worker learns them")
        worker = Service("worker", environ, directory / "worker.log")
        stack.callback(worker.stop)
        # The first window ends with the third second.
        eventually(lambda: told() >= hosts * (LEARNT - 2), worker.tail, timeout_s=60 + 2 * hosts)
        processes = [worker.process.pid, *others]
        before = [*map(processor_s, processes), processor_s(worker.process.pid, worker.process.pid)]
        tell(f"publishing {seconds} s, to be measured")
        publish(kafka.bootstrap, telemetry[LEARNT:], names, every_s=0.0 if backlog else 1.0)
        tell("waiting for the last verdicts")
        began = time.monotonic()
        eventually(lambda: told() >= hosts * (LEARNT + seconds - 2), worker.tail, timeout_s=60 + hosts, every_s=0.02)
        behind = time.monotonic() - began
        if beside:
            read(len(telemetry))
        after = [*map(processor_s, processes), processor_s(worker.process.pid, worker.process.pid)]
    used, *counting, main_s = (late - early for late, early in zip(after, before, strict=True))
    windows, messages = hosts * seconds, hosts * seconds * len(telemetry[0])
    figures = {
        "hosts": hosts,
        "windows": windows,
        "messages": messages,
        "ms_a_window": 1e3 * used / windows,
        "main_ms_a_window": 1e3 * main_s / windows,
        "windows_a_processor_s": windows / used,
        "behind_s": behind,
    }
    if counting:
        figures["bare_ms_a_message"] = 1e3 * counting[0] / messages
        figures["bare_fast_ms_a_message"] = 1e3 * (before[1] - started[0]) / (hosts * LEARNT * len(telemetry[0]))
        quick = figures["bare_ms_a_message" if backlog else "bare_fast_ms_a_message"]
        figures["needed_a_processor_s"] = BUDGET * 1e3 / quick
        figures["own_ms_a_message"] = 1e3 * own_work_s(telemetry, names) / messages
    return figures


def own_work_s(telemetry: Sequence[Sequence[Telemetry]], names: Sequence[str]) -> float:
    """Processor time in which messages are decoded, go through the pipeline, and its results are encoded, s, once the
    hosts are learnt. Hosts come one after the other, as they do in a worker.
    """
    pipeline = Pipeline(PipelineSettings(warmup_windows=WARM, refit_windows=10**6))
    used = 0.0
    for number, second in enumerate(telemetry):
        messages = [encode(replace(batch, host=name)) for name in names for batch in second]
        before = time.process_time()
        work(pipeline, messages)
        used += time.process_time() - before if number >= LEARNT else 0.0
    return used


def publish(
    bootstrap: str, telemetry: Sequence[Sequence[Telemetry]], names: Sequence[str], every_s: float = 0.0
) -> None:
    """Publish these seconds of every host, one second after the other; each takes `every_s`, hosts spread over it. With
    0 all of it is encoded first, so that whoever reads it has a backlog.
    """
    options = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "compression.type": "zstd",
        "batch.num.messages": 1,
    }
    # One alone would wait for the broker most of the time.
    producers = [Producer(options) for _ in range(min(PRODUCERS, len(names)))]
    encoded = (
        [(TELEMETRY[batch.subsystem], encode(replace(batch, host=name)), name.encode()) for batch in second]
        for second in telemetry
        for name in names
    )
    ready = encoded if every_s else list(encoded)
    began = time.monotonic()
    for place, messages in enumerate(ready):
        out = producers[place % len(names) % len(producers)]
        time.sleep(max(0.0, began + every_s * place / len(names) - time.monotonic()))
        for topic, value, key in messages:
            out.produce(topic, value, key)
        out.poll(0)
        while len(out) > WAITING:
            out.poll(0.1)
    assert not any(out.flush(60) for out in producers)


def tell(what: str) -> None:
    """What goes on, while figures are waited for."""
    print(what, file=sys.stderr, flush=True)


def processor_s(process: int, thread: int | None = None) -> float:
    """Processor time that a process, or one of its threads, has used so far, s."""
    place = f"/proc/{process}/stat" if thread is None else f"/proc/{process}/task/{thread}/stat"
    fields = Path(place).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", choices=HOSTS, default="700")
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--backlog", action="store_true", help="publish all at once, not second by second")
    parser.add_argument("--bare", action="store_true", help="measure bare Faust beside the worker")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = measure(args.host, args.hosts, args.seconds, args.bare, args.backlog)
    if args.json:
        print(json.dumps(figures))
        return
    print(
        "{hosts} hosts, {windows} windows of {messages} messages: {ms_a_window:.3f} ms a window, "
        "{main_ms_a_window:.3f} of it the main thread, {windows_a_processor_s:.0f} windows a second of processor time, "
        "told {behind_s:.2f} s after the last".format(**figures)
    )
    if args.bare:
        print(
            "bare Faust: {bare_ms_a_message:.3f} ms a message beside it, {bare_fast_ms_a_message:.3f} ms of what lies "
            "in the topics, so that {needed_a_processor_s:.0f} windows a second are needed; our own work: "
            "{own_ms_a_message:.3f} ms a message".format(**figures)
        )


if __name__ == "__main__":
    main()
