"""How many windows a second one core works through: decoding, statistics, features, scoring, encoding of results.

python -m tests.benchmarks.pipeline [--seconds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from schemas.codec import decode_telemetry, encode
from schemas.records import Verdict
from schemas.settings import PipelineSettings
from stream_processors.baseline import Baseline
from stream_processors.features import feature_table, window_features
from stream_processors.pipeline import Pipeline
from stream_processors.seconds import merge, reduce_batch
from tests.synthetic import run

WARM = 60


def measure(seconds: int) -> dict[str, float]:
    """Milliseconds a window (one host, one second) by stage, and windows a second of it all. Best of five rounds."""
    settings = PipelineSettings(warmup_windows=WARM, rows=128, refit_windows=10**9)
    messages = [encode(batch) for batch in run(["bench"], WARM + 5 * seconds + 3)]
    pipeline = Pipeline(settings)
    results: list[Any] = []
    work(pipeline, messages[: 4 * (WARM + 3)])
    rounds: list[float] = []
    for number in range(5):
        part = messages[4 * (WARM + 3 + number * seconds) : 4 * (WARM + 3 + (number + 1) * seconds)]
        began = time.perf_counter()
        results = work(pipeline, part)
        rounds.append((time.perf_counter() - began) / seconds)
    assert sum(isinstance(each, Verdict) for each in results) == seconds
    baseline = pipeline.hosts["bench"].baseline
    assert baseline is not None
    stages = stage_times(messages[:40], baseline)
    return {**stages, "all": 1e3 * min(rounds), "windows_per_s": 1 / min(rounds)}


def work(pipeline: Pipeline, messages: Iterable[bytes]) -> list[Any]:
    """What a worker does with messages, short of Kafka."""
    results: list[Any] = []
    for message in messages:
        batch = decode_telemetry(message)
        results += pipeline.feed(batch, batch.start_ns / 1e9 + 1)
    for result in results:
        encode(result)
    return results


def stage_times(messages: list[bytes], baseline: Baseline) -> dict[str, float]:
    """Milliseconds a window of each stage alone."""
    batches = [decode_telemetry(message) for message in messages]
    seconds: dict[str, list[Any]] = {batch.subsystem: [] for batch in batches}
    for batch in batches:
        seconds[batch.subsystem] += reduce_batch(batch)

    def windows() -> dict[str, Any]:
        return {
            name: merge(merge(parts[0].stats, parts[1].stats, 1.0), parts[2].stats, 2.0)
            for name, parts in seconds.items()
        }

    stats = windows()
    deviations = baseline.deviations(window_features(stats))
    per = len(messages) / 4
    return {
        "decode": best(lambda: [decode_telemetry(message) for message in messages]) / per,
        "statistics": best(lambda: [reduce_batch(batch) for batch in batches]) / per,
        "merge": best(windows),
        "features": best(lambda: baseline.deviations(window_features(stats))),
        "score": best(lambda: baseline.score(deviations)),
    }


def best(call: Callable[[], object], rounds: int = 20) -> float:
    """Milliseconds of the quickest of `rounds` calls."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1e3 * min(times)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="seconds of telemetry a round")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = measure(args.seconds)
    if args.json:
        print(json.dumps(figures))
        return
    print(f"one host, 4 subsystems, {len(feature_table())} features, 10 Hz; ms a window, best of the rounds")
    for name, value in figures.items():
        print(f"{name:>14} {value:9.3f}")


if __name__ == "__main__":
    main()
