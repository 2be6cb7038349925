"""How many windows a second one core works through: decoding, statistics, features, scoring, encoding of results; and
what a fit takes, which comes every ten minutes a host: by itself, and shared among the windows between two.

python -m tests.benchmarks.pipeline [--host NAME ...] [--seconds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from schemas.codec import decode_telemetry, encode
from schemas.records import Verdict
from schemas.settings import PipelineSettings
from stream_processors.baseline import Baseline
from stream_processors.features import window_features
from stream_processors.host import Forgotten
from stream_processors.pipeline import Pipeline
from stream_processors.seconds import Statistics, merge, reduce_batch, together
from tests.benchmarks.hosts import HOSTS

SETTINGS: Final = PipelineSettings(refit_windows=10**9)
ROUNDS: Final = 5
BETWEEN_FITS: Final = PipelineSettings().refit_windows * 9 / 8
"""Windows from fit to fit; hosts are spread over a quarter more."""


def measure(host: str, seconds: int) -> dict[str, float]:
    """Milliseconds a window (one host, one second) by stage, and windows a second of it all, without fits. Best of the
    rounds.
    """
    messages = HOSTS[host]()
    pipeline = Pipeline(SETTINGS)
    name = ""
    while not name or pipeline.hosts[name].baseline is None:
        learnt = next(messages)
        work(pipeline, learnt)
        name = decode_telemetry(learnt[0]).host
    rounds: list[float] = []
    for _ in range(ROUNDS):
        part = [message for second in islice(messages, seconds) for message in second]
        began = time.process_time()
        results = work(pipeline, part)
        rounds.append(1e3 * (time.process_time() - began) / seconds)
        assert sum(isinstance(each, Verdict) and each.state == "scored" for each in results) == seconds
    baseline = pipeline.hosts[name].baseline
    assert baseline is not None
    batches = [decode_telemetry(message) for message in part[: len(learnt)]]
    stages = stage_times(list(islice(messages, 10)), baseline)
    rows = sorted(pipeline.hosts[name].learner.rows.values(), key=lambda row: row.start)
    fit = best(lambda: Baseline.fit(rows, 1, SETTINGS), 5)
    all_in = min(rounds)
    return {
        "channels": sum(matrix.shape[1] for batch in batches for matrix in batch.metrics.values()),
        "messages": len(learnt),
        **stages,
        "rest": all_in - sum(stages.values()),
        "all": all_in,
        "windows_per_s": 1e3 / all_in,
        "a_fit": fit,
        "fits": fit / BETWEEN_FITS,
    }


def work(pipeline: Pipeline, messages: Iterable[bytes]) -> list[Any]:
    """What a worker does with messages, short of Kafka."""
    results: list[Any] = []
    for message in messages:
        batch = decode_telemetry(message)
        for result in pipeline.feed(batch, batch.start_ns / 1e9 + 1):
            assert not isinstance(result, Forgotten)
            encode(result)
            results.append(result)
    return results


def stage_times(messages: Sequence[Sequence[bytes]], baseline: Baseline) -> dict[str, float]:
    """Milliseconds a window of each stage alone, from the messages of some seconds in a row."""
    every = [message for second in messages for message in second]
    first, second, third, *_ = (reduced(part) for part in messages)

    def window() -> Statistics:
        return merge(merge(first, second, 1.0), third, 2.0)

    stats = window()
    deviations = baseline.deviations(window_features(stats))
    decode = best(lambda: [decode_telemetry(message) for message in every]) / len(messages)
    return {
        "decode": decode,
        "statistics": best(lambda: [reduced(part) for part in messages]) / len(messages) - decode,
        "merge": best(window),
        "features": best(lambda: baseline.deviations(window_features(stats))),
        "score": best(lambda: baseline.score(deviations)),
    }


def reduced(messages: Iterable[bytes]) -> Statistics:
    """Statistics of a second, from its messages."""
    return together([second for message in messages for second in reduce_batch(decode_telemetry(message))])


def best(call: Callable[[], object], rounds: int = 20) -> float:
    """Milliseconds of the quickest of `rounds` calls."""
    times: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return 1e3 * min(times)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", nargs="+", choices=HOSTS, default=list(HOSTS))
    parser.add_argument("--seconds", type=int, default=60, help="seconds of telemetry a round")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    figures = {host: measure(host, args.seconds) for host in args.host}
    if args.json:
        print(json.dumps(figures))
        return
    print("ms a window of 3 s at 10 Hz, one every second, best of the rounds")
    print(f"{'':>14}" + "".join(f"{host:>12}" for host in figures))
    for row in next(iter(figures.values())):
        print(f"{row:>14}" + "".join(f"{figures[host][row]:12.3f}" for host in figures))


if __name__ == "__main__":
    main()
