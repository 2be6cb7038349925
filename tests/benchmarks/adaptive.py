"""Adaptive sampling: what it saves on a quiet machine, and what it costs in delay when something happens.

    python -m tests.benchmarks.adaptive [--repetitions N] [--warm N] [--hog N] [--quiet N] [--json]

Two agents sample this machine at the same time, one at 100 ms and one adaptively (500 ms when quiet), each in a process
of its own. Their telemetry goes through a pipeline each, in this process. Once those have learnt, a process begins to
spin, again and again, at random times; told is how long it takes from its start to the first sample of a second sampled
fast, and to the opened episode, median over the repetitions. At the end, what was sampled before the first of them is
fed again with the period switched half-way, which shows what a switch alone does to the verdicts.

The figures ask for a machine that is quiet but for this.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any, Final

import cramjam
import numpy as np

from producers.adaptive import QUIET_S
from schemas.catalogue import catalogue
from schemas.codec import decode_telemetry
from schemas.records import Episode, Telemetry, Verdict
from schemas.settings import PipelineSettings
from stream_processors.pipeline import Pipeline

FAST_MS: Final = 100
QUIET_MS: Final = 500
LEVEL: Final = 3
SECOND_NS: Final = 1_000_000_000
SPIN: Final = "while True: pass"


@dataclass
class Side:
    """One of the agents, seen from here: what it sent, what its pipeline said."""

    name: str
    process: subprocess.Popen[bytes]
    pipeline: Pipeline
    records: list[Telemetry] = field(default_factory=list)
    seconds: list[tuple[int, int]] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    cpu: list[tuple[int, float]] = field(default_factory=list)
    opened: list[tuple[int, str]] = field(default_factory=list)

    def follow(self) -> None:
        """Take in what comes, until its end."""
        assert self.process.stdout is not None
        for kind, message in frames(self.process.stdout):
            now_ns = time.time_ns()
            if kind == b"c":
                self.cpu.append((now_ns, struct.unpack("<d", message)[0]))
                continue
            record = decode_telemetry(message)
            second = record.start_ns // SECOND_NS
            self.sizes[second] = self.sizes.get(second, 0) + len(cramjam.zstd.compress(message, LEVEL))
            self.records.append(record)
            if record.subsystem == "cpu":
                self.seconds.append((record.start_ns, record.period_ms))
            for result in self.pipeline.feed(record, now_ns / SECOND_NS):
                if isinstance(result, Episode) and result.state == "opened":
                    self.opened.append((now_ns, result.subsystem))

    def slow_at(self, time_ns: int) -> bool:
        """Whether it sampled slowly at that time."""
        return any(start <= time_ns < start + SECOND_NS and period != FAST_MS for start, period in self.seconds)

    def first_fast(self, after_ns: int) -> float | None:
        """Seconds from `after_ns` to the first sample of the next fast second."""
        starts = [start for start, period in self.seconds if period == FAST_MS and start > after_ns]
        return (min(starts) - after_ns) / SECOND_NS if starts else None

    def episode(self, after_ns: int, until_ns: int) -> float | None:
        """Seconds from `after_ns` to the next opened episode."""
        times = [time_ns for time_ns, _ in self.opened if after_ns < time_ns < until_ns]
        return (min(times) - after_ns) / SECOND_NS if times else None

    def spent(self, begin_ns: int, end_ns: int) -> dict[str, float]:
        """Processor time, % of a core, and bytes a second, between two times."""
        inside = [(now, cpu) for now, cpu in self.cpu if begin_ns <= now <= end_ns]
        (first_ns, first), (last_ns, last) = inside[0], inside[-1]
        sizes = [size for second, size in self.sizes.items() if begin_ns <= second * SECOND_NS < end_ns]
        return {
            "core_percent": 100 * (last - first) / ((last_ns - first_ns) / SECOND_NS),
            "bytes_per_s": sum(sizes) / max(len(sizes), 1),
        }


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7, help="how often a process spins (default: 7)")
    parser.add_argument("--warm", type=int, default=120, help="windows to learn from (default: 120)")
    parser.add_argument("--hog", type=float, default=12.0, help="how long it spins, s (default: 12)")
    parser.add_argument("--quiet", type=float, default=QUIET_S, help="quiet before it falls slow, s (default: 30)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--agent", choices=("fast", "adaptive"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.agent:
        return agent(adaptive=args.agent == "adaptive", quiet_s=args.quiet)
    result = measure(args.repetitions, args.warm, args.hog, args.quiet)
    print(json.dumps(result, indent=1) if args.json else words(result))
    return 0


def measure(repetitions: int, warm: int, hog_s: float, quiet_s: float) -> dict[str, Any]:
    """Figures of one run, which takes about `warm` + 90 s, and `hog_s` + `quiet_s` + 12 s a repetition."""
    settings = PipelineSettings(warmup_windows=warm, rows=max(128, warm))
    sides = [Side(name, spawn(name, quiet_s), Pipeline(settings)) for name in ("fast", "adaptive")]
    threads = [threading.Thread(target=side.follow) for side in sides]
    for thread in threads:
        thread.start()
    chance = random.Random(0)
    onsets: list[int] = []
    try:
        # While slow the pipelines learn as fast as ever: a window a second.
        time.sleep(warm + 10)
        calm_ns = time.time_ns()
        time.sleep(60)
        calm_end_ns = time.time_ns()
        for _ in range(repetitions):
            time.sleep(chance.random())
            onsets.append(spin(hog_s))
            # Calm again, closed, and slow again.
            time.sleep(quiet_s + 12)
    finally:
        for side in sides:
            side.process.terminate()
        for thread, side in zip(threads, sides, strict=True):
            thread.join(30)
            side.process.wait(30)
    fast, adaptive = sides
    until = [onset + round((hog_s + 5) * SECOND_NS) for onset in onsets]
    told = [(onset, end) for onset, end in zip(onsets, until, strict=True) if adaptive.slow_at(onset)]
    spans = [(onset, end) for onset, end in zip(onsets, until, strict=True)]
    return {
        "quiet": {side.name: side.spent(calm_ns, calm_end_ns) for side in sides},
        "slow_share": statistics.fmean(
            [float(period != FAST_MS) for start, period in adaptive.seconds if calm_ns <= start < calm_end_ns]
        ),
        "onsets": len(onsets),
        "onsets_while_slow": len(told),
        "first_fast_sample_s": [adaptive.first_fast(onset) for onset, _ in told],
        "episode_s": {side.name: [side.episode(onset, end) for onset, end in told] for side in sides},
        "other_episodes": {
            side.name: sum(not any(onset < at < end for onset, end in spans) for at, _ in side.opened) for side in sides
        },
        "switch": switched([r for r in fast.records if r.start_ns < onsets[0] - 2 * SECOND_NS], warm, settings),
    }


def spin(seconds: float) -> int:
    """Keep one core busy for a while; when it began, ns of the wall clock."""
    process = subprocess.Popen([sys.executable, "-S", "-c", SPIN])
    began_ns = time.time_ns()
    time.sleep(seconds)
    process.kill()
    process.wait()
    return began_ns


def switched(records: Sequence[Telemetry], warm: int, settings: PipelineSettings) -> dict[str, Any]:
    """Verdicts over the same seconds, sampled as what was learnt and otherwise: windows scored, anomalous, episodes."""
    begin_ns = min(record.start_ns for record in records) + (warm + 8) * SECOND_NS
    slow = [slower(record) for record in records]
    found = {}
    for name, learnt, then in (
        ("fast, then fast", records, records),
        ("fast, then slow", records, slow),
        ("slow, then slow", slow, slow),
        ("slow, then fast", slow, records),
    ):
        pipeline = Pipeline(settings)
        scored = anomalous = episodes = 0
        features: dict[str, int] = {}
        for early, late in zip(learnt, then, strict=True):
            record = late if early.start_ns >= begin_ns else early
            for result in pipeline.feed(record, record.start_ns / SECOND_NS + 1):
                if isinstance(result, Verdict) and result.state == "scored" and result.window_start_ns >= begin_ns:
                    scored += 1
                    anomalous += result.anomalous
                elif isinstance(result, Episode) and result.state == "opened":
                    episodes += 1
                    for row in result.evidence:
                        features[row.feature] = features.get(row.feature, 0) + 1
        found[name] = {"scored": scored, "anomalous": anomalous, "episodes": episodes, "features": features}
    return found


def slower(record: Telemetry) -> Telemetry:
    """What the agent would have sent at QUIET_MS: rates over the longer period, every so-many-th gauge."""
    step = QUIET_MS // FAST_MS
    kinds = catalogue()
    metrics = {}
    for name, matrix in record.metrics.items():
        parts = matrix.reshape(record.count // step, step, matrix.shape[1])
        if kinds[name].kind == "counter" and not np.isnan(matrix[1:]).all():
            seen = ~np.isnan(parts)
            with np.errstate(invalid="ignore", divide="ignore"):
                metrics[name] = (np.where(seen, parts, 0).sum(axis=1) / seen.sum(axis=1)).astype(np.float32)
        else:
            metrics[name] = parts[:, 0]
    return replace(record, period_ms=QUIET_MS, count=record.count // step, metrics=metrics)


def words(result: dict[str, Any]) -> str:
    """The figures for people."""
    quiet = result["quiet"]
    lines = [
        f"quiet, {100 * result['slow_share']:.0f} % of the seconds slow: "
        + ", ".join(
            f"{name} {spent['core_percent']:.2f} % of a core, {spent['bytes_per_s']:.0f} B/s"
            for name, spent in quiet.items()
        ),
        f"onsets while slow: {result['onsets_while_slow']} of {result['onsets']}",
        f"onset to first fast sample: {median(result['first_fast_sample_s'])}",
        *(f"onset to episode, {name}: {median(delays)}" for name, delays in result["episode_s"].items()),
        "episodes without an onset: " + ", ".join(f"{name} {n}" for name, n in result["other_episodes"].items()),
    ]
    for name, found in result["switch"].items():
        lines.append(
            f"{name}: {found['anomalous']} of {found['scored']} windows anomalous, {found['episodes']} episodes"
            + (f" ({', '.join(found['features'])})" if found["features"] else "")
        )
    return "\n".join(lines)


def median(delays: Sequence[float | None]) -> str:
    """Of those that came, with how many did not."""
    there = sorted(delay for delay in delays if delay is not None)
    if not there:
        return f"none of {len(delays)}"
    return f"median {statistics.median(there):.2f} s, {there[0]:.2f} to {there[-1]:.2f}, {len(there)} of {len(delays)}"


def spawn(name: str, quiet_s: float) -> subprocess.Popen[bytes]:
    """An agent in a process of its own, which writes its messages to us."""
    command = [sys.executable, "-m", "tests.benchmarks.adaptive", "--agent", name, "--quiet", str(quiet_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})


def agent(*, adaptive: bool, quiet_s: float) -> int:
    """Sample until SIGTERM; messages and, after each second, the processor time so far go to the output."""
    from deploy.signals import stop_flag
    from producers.agent import Agent
    from producers.clock import SystemClock
    from producers.wiring import new_frame
    from schemas.codec import encode
    from schemas.settings import AgentSettings

    stopped = stop_flag()
    settings = AgentSettings(host="bench", period_ms=FAST_MS, adaptive=adaptive, quiet_period_ms=QUIET_MS)
    clock = SystemClock()
    frame = new_frame(settings, clock)
    out = sys.stdout.buffer

    def emit(records: Sequence[Telemetry]) -> None:
        for record in records:
            send(out, b"t", encode(record))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        send(out, b"c", struct.pack("<d", usage.ru_utime + usage.ru_stime))
        out.flush()

    Agent(frame, clock, emit, quiet_s=quiet_s).run(stopped)
    frame.close()
    return 0


def send(out: IO[bytes], kind: bytes, message: bytes) -> None:
    """One frame: kind, length, message."""
    out.write(kind + struct.pack("<I", len(message)) + message)


def frames(source: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Frames until the end."""
    while head := source.read(5):
        yield head[:1], source.read(struct.unpack("<I", head[1:])[0])


if __name__ == "__main__":
    sys.exit(main())
