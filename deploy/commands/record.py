"""`reveal record`: keeps telemetry in files, from this machine itself or from Kafka."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from deploy.signals import stop_flag
from schemas.settings import AgentSettings, KafkaSettings, load

HELP: Final = "record telemetry into a directory"
FLUSH_EVERY_S: Final = 5.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("directory", type=Path, help="new or empty directory for the recording")
    parser.add_argument("--seconds", type=_positive, metavar="N", help="how long (default: until Ctrl-C)")
    parser.add_argument(
        "--from-kafka", action="store_true", help="record what all hosts publish, instead of sampling this machine"
    )


def run(args: argparse.Namespace) -> int:
    """Record until the time is over, SIGINT or SIGTERM."""
    from producers.publisher import KafkaUnreachableError  # noqa: PLC0415
    from schemas.recording import RecordingError, RecordingWriter  # noqa: PLC0415
    from schemas.records import Telemetry  # noqa: PLC0415

    told_to_stop = stop_flag()
    began = time.monotonic()

    def stopped() -> bool:
        return told_to_stop() or (args.seconds is not None and time.monotonic() - began >= args.seconds)

    kafka = load(KafkaSettings, args.environ, args.file)
    agent = load(AgentSettings, args.environ, args.file)
    try:
        with RecordingWriter(args.directory) as writer:
            flushed = began

            def write(records: Sequence[Telemetry]) -> None:
                nonlocal flushed
                for record in records:
                    writer.write(record)
                if time.monotonic() - flushed > FLUSH_EVERY_S:
                    flushed = time.monotonic()
                    writer.flush()
                _progress(writer.records, time.monotonic() - began, args.seconds)

            if args.from_kafka:
                _from_kafka(kafka, write, stopped)
            else:
                _from_here(agent, write, stopped)
            records = writer.records
    except (RecordingError, KafkaUnreachableError, OSError) as error:
        print(f"reveal record: {error}", file=sys.stderr)
        return 1
    if sys.stderr.isatty():
        print(file=sys.stderr)
    size = sum(path.stat().st_size for path in args.directory.glob("*.avro"))
    print(f"{records} records, {size / 1e6:.2f} MB, in {args.directory}")
    return 0


def _from_here(settings: AgentSettings, write: Callable[..., None], stopped: Callable[[], bool]) -> None:
    from producers.agent import Agent  # noqa: PLC0415
    from producers.clock import SystemClock  # noqa: PLC0415
    from producers.wiring import new_frame  # noqa: PLC0415

    clock = SystemClock()
    frame = new_frame(settings, clock)
    Agent(frame, clock, write).run(stopped)
    for found in frame.problems():
        print(f"{found.collector}: {found.path} is {found.kind}: {found.reason}", file=sys.stderr)
    frame.close()


def _from_kafka(settings: KafkaSettings, write: Callable[..., None], stopped: Callable[[], bool]) -> None:
    from producers.publisher import Subscription  # noqa: PLC0415

    subscription = Subscription(settings.client(), f"reveal-record-{secrets.token_hex(6)}")
    try:
        subscription.check(10.0)
        for record in subscription.records(stopped):
            write([] if record is None else [record])
    finally:
        subscription.close()
    if subscription.rejected:
        print(f"{subscription.rejected} messages could not be used and were left out", file=sys.stderr)


def _progress(records: int, elapsed: float, seconds: float | None) -> None:
    if sys.stderr.isatty():
        end = f" of {seconds:.0f}" if seconds else ""
        print(f"\rrecording: {elapsed:.0f}{end} s, {records} records (Ctrl-C ends it)", end="", file=sys.stderr)


def _positive(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above zero, not {text}")
    return value
