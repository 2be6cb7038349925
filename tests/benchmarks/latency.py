"""From the last sample of a window to its verdict readable in ClickHouse, through the real Kafka, worker and sink.

python -m tests.benchmarks.latency [--hosts N] [--seconds N] [--json]

Made-up telemetry of N hosts is published in real time, each second of a host 100 ms before the second ends, as an
agent does. A reader asks ClickHouse for the newest windows as fast as it answers; a window's latency runs from its
last sample to the end of the first answer that has it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import clickhouse_connect

from schemas.codec import encode
from schemas.topics import TELEMETRY
from tests.clickhouse_fixture import ClickHouseProcess
from tests.kafka_fixture import local_kafka
from tests.streams import Service, make_topics, producer
from tests.synthetic import SUBSYSTEMS, second

WARM = 30
SETTLE_S = 0.4
"""So long a host takes, with the others, until it is learnt and what came meanwhile is worked through."""


def measure(hosts: int, seconds: int) -> dict[str, float]:
    """Percentiles of the latency, s, over the scored windows of all hosts, and how many windows they are of."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        directory = Path(place)
        kafka = stack.enter_context(local_kafka(directory / "kafka"))
        make_topics(kafka.bootstrap)
        clickhouse = ClickHouseProcess(directory / "clickhouse").start()
        stack.callback(clickhouse.kill)
        environ = {
            "REVEAL_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "REVEAL_CLICKHOUSE_PORT": str(clickhouse.port),
            "REVEAL_WORKER_DIRECTORY": str(directory / "worker"),
            "REVEAL_PIPELINE_WARMUP_WINDOWS": str(WARM),
        }
        for name in ("warehouse", "worker"):
            service = Service(name, environ, directory / f"{name}.log")
            stack.callback(service.stop)
        names = [f"host-{number:04d}" for number in range(hosts)]
        # The same few seconds again and again: making telemetry must not take the time that is measured.
        made = {name: [[second(name, each, index) for each in SUBSYSTEMS] for index in range(8)] for name in names}
        time.sleep(5)
        latencies: list[tuple[int, float]] = []
        stop = threading.Event()
        reader = threading.Thread(target=read, args=(clickhouse.port, latencies, stop))
        reader.start()
        out = producer(kafka.bootstrap)
        begin = int(time.time()) + 2
        settled = WARM + 10 + int(SETTLE_S * hosts)
        from_ms = 1000 * (begin + settled)
        for index in range(settled + seconds):
            now = begin + index
            time.sleep(max(0.0, now + 0.9 - time.time()))
            for name in names:
                for batch in made[name][index % 8]:
                    sent = replace(batch, sequence=index, start_ns=now * 10**9)
                    out.produce(TELEMETRY[batch.subsystem], encode(sent), name.encode())
                out.poll(0)
        out.flush(30)
        time.sleep(5)
        stop.set()
        reader.join()
    ordered = sorted(latency for end_ms, latency in latencies if end_ms > from_ms)
    if not ordered:
        raise SystemExit(f"the worker does not keep up with {hosts} hosts on this machine: no window within 20 s")
    return {
        "hosts": hosts,
        "windows": len(ordered),
        "p50_s": statistics.median(ordered),
        "p99_s": ordered[int(0.99 * len(ordered))],
        "max_s": ordered[-1],
    }


def read(port: int, latencies: list[tuple[int, float]], stop: threading.Event) -> None:
    """Note when windows appear."""
    client = clickhouse_connect.get_client(host="127.0.0.1", port=port)
    statement = (
        "SELECT host, toUnixTimestamp64Milli(window_end) FROM reveal.verdicts_log"
        " WHERE state = 'scored' AND window_end > now() - 20"
    )
    known: set[tuple[str, int]] = set()
    while not stop.is_set():
        try:
            rows = client.query(statement).result_rows
        except Exception:  # no table yet
            time.sleep(0.2)
            continue
        now = time.time()
        for host, end_ms in rows:
            if (host, end_ms) not in known:
                known.add((host, end_ms))
                latencies.append((end_ms, now - (end_ms / 1e3 - 0.1)))
        time.sleep(0.02)
    client.close()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = measure(args.hosts, args.seconds)
    if args.json:
        print(json.dumps(figures))
        return
    print(
        "{hosts} hosts, {windows} windows: p50 {p50_s:.2f} s, p99 {p99_s:.2f} s, longest {max_s:.2f} s".format(
            **figures
        )
    )


if __name__ == "__main__":
    main()
