"""What one host takes up, resident in a worker and in the topic of models, and how long many take to be restored.

python -m tests.benchmarks.state [--host NAME ...] [--hosts N] [--json]

Each kind of host is measured in a process of its own. Its hosts see the same telemetry, every message decoded anew for
each of them, so that they share no more than hosts of a kind do.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from schemas.codec import decode, decode_telemetry, encode
from schemas.records import StateRecord
from schemas.settings import PipelineSettings
from stream_processors.pipeline import Pipeline
from tests.benchmarks.hosts import HOSTS

SETTINGS: Final = PipelineSettings(refit_windows=10**9)
MANY: Final = 1000


def measure(kind: str, hosts: int) -> dict[str, float]:
    """KB (1,024 B) of one host: resident, and its records by what they hold; and seconds in which MANY are restored."""
    names = [f"{kind}-{number:04d}" for number in range(hosts)]
    learnt(kind, names[:1])  # what all hosts share is there
    gc.collect()
    before = resident()
    _pipeline, told = learnt(kind, names)
    gc.collect()
    figures = {"resident": (resident() - before) / hosts}
    records = {slot: encode(record) for slot, record in told.items()}
    for part in ("model", "row", "progress"):
        figures[part] = sum(len(data) for slot, data in records.items() if slot.startswith(part)) / 1024
    began = time.process_time()
    again = Pipeline(SETTINGS)
    for name in names:
        states = [decode(data) for data in records.values()]
        lost = again.restore(name, [each for each in states if isinstance(each, StateRecord)])
        assert lost is None, lost
    figures[f"restore {MANY} hosts, s"] = (time.process_time() - began) * MANY / hosts
    return figures


def learnt(kind: str, names: list[str]) -> tuple[Pipeline, Mapping[str, StateRecord]]:
    """A pipeline that has learnt hosts of these names, and the records of the last of them, newest by slot."""
    pipeline = Pipeline(SETTINGS)
    told: dict[str, StateRecord] = {}
    messages = HOSTS[kind]()
    waiting = True
    while waiting:
        second = next(messages)
        for name in names:
            for message in second:
                batch = replace(decode_telemetry(message), host=name)
                results = pipeline.feed(batch, batch.start_ns / 1e9 + 1)
                if name == names[-1]:
                    told |= {each.slot: each for each in results if isinstance(each, StateRecord)}
        waiting = any(host.baseline is None for host in pipeline.hosts.values())
    return pipeline, told


def resident() -> float:
    """KB of memory that this process has."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("VmRSS:")))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", nargs="+", choices=HOSTS, default=list(HOSTS))
    parser.add_argument("--hosts", type=int, default=50, help="hosts of each kind")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for kind in args.host:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own:
            figures[kind] = own.submit(measure, kind, args.hosts).result()
    if args.json:
        print(json.dumps(figures))
        return
    print("KB of one host")
    print(f"{'':>22}" + "".join(f"{kind:>12}" for kind in figures))
    for row in next(iter(figures.values())):
        print(f"{row:>22}" + "".join(f"{figures[kind][row]:12.1f}" for kind in figures))


if __name__ == "__main__":
    main()
