"""`reveal replay`: publishes a recording again."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from pathlib import Path
from typing import Final

from schemas.settings import AgentSettings, KafkaSettings, load

HELP: Final = "publish a recording again"
FLUSH_S: Final = 60.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("recording", type=Path, help="directory that `reveal record` wrote")
    parser.add_argument(
        "--speed",
        type=_speed,
        default=1.0,
        metavar="real|max|FACTOR",
        help="in real time, as fast as possible, or so many times faster (default: real)",
    )
    parser.add_argument("--host", default="", metavar="NAME", help="publish as this host")
    parser.add_argument("--now", action="store_true", help="move all times so that the recording starts now")


def run(args: argparse.Namespace) -> int:
    """Publish all records; exit status 1 when not all were delivered."""
    from producers.publisher import KafkaUnreachableError, Publisher  # noqa: PLC0415
    from producers.replay import ReplayError, paced, readdress  # noqa: PLC0415
    from schemas.recording import RecordingError, read_recording  # noqa: PLC0415

    kafka = load(KafkaSettings, args.environ, args.file)
    queue_mb = load(AgentSettings, args.environ, args.file).queue_mb
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    sent = 0
    first_ns = last_ns = 0
    publisher = Publisher(kafka.client(), queue_mb)
    try:
        records = readdress(read_recording(args.recording), args.host, time.time_ns() if args.now else None)
        publisher.check(10.0)
        for record in paced(records, args.speed, time.monotonic, time.sleep):
            publisher.publish_all(record)
            publisher.poll()
            sent += 1
            first_ns = first_ns or record.start_ns
            last_ns = max(last_ns, record.start_ns + record.count * record.period_ms * 1_000_000)
            _progress(sent, (last_ns - first_ns) / 1e9)
    except (RecordingError, ReplayError, KafkaUnreachableError) as error:
        print(f"reveal replay: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    left = publisher.flush(FLUSH_S)
    counts = publisher.counts
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(
        f"{counts.delivered} of {sent} records delivered, {(last_ns - first_ns) / 1e9:.0f} s of telemetry"
        f" in {time.monotonic() - began:.1f} s"
    )
    return 0 if not left and not counts.failed else 1


def _progress(sent: int, seconds: float) -> None:
    if sys.stderr.isatty() and sent % 20 == 0:
        print(f"\rreplaying: {sent} records, {seconds:.0f} s of telemetry", end="", file=sys.stderr)


def _speed(text: str) -> float:
    named = {"real": 1.0, "max": math.inf}
    try:
        value = named[text] if text in named else float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be real, max or a factor above zero, not {text}")
    return value
