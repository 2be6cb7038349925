"""`reveal kafka`: the local Kafka broker in the foreground."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "run a local Kafka broker in the foreground"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--directory", type=Path, required=True, help="where its data and log live")
    parser.add_argument("--port", type=int, default=19092, help="for clients, on loopback (default %(default)s)")
    parser.add_argument(
        "--controller-port", type=int, default=19093, help="for itself, on loopback (default %(default)s)"
    )
    parser.add_argument("--heap-mb", type=int, default=256, help="Java heap in MiB (default %(default)s)")
    parser.add_argument("--cache", type=Path, help="where Kafka's jars are kept (default: the user's cache)")


def run(args: argparse.Namespace) -> int:
    """Prepare, then become the broker: signals reach it, its status is ours (143 after SIGTERM, 130 after Ctrl-C)."""
    import os  # noqa: PLC0415
    import sys  # noqa: PLC0415

    from deploy.kafka.errors import LocalKafkaError  # noqa: PLC0415
    from deploy.kafka.progress import LineProgress  # noqa: PLC0415
    from deploy.kafka.server import LocalKafka  # noqa: PLC0415

    kafka = LocalKafka(
        args.directory, port=args.port, controller_port=args.controller_port, heap_mb=args.heap_mb, cache=args.cache
    )
    try:
        kafka.check_ports()
        kafka.prepare(LineProgress(sys.stderr))
    except LocalKafkaError as error:
        print(f"reveal kafka: {error}", file=sys.stderr)
        return 1
    print(f"Kafka serves {kafka.bootstrap} as process {os.getpid()}, log in {kafka.log}", file=sys.stderr, flush=True)
    command = kafka.command()
    try:
        os.execv(command[0], command)  # noqa: S606 - no shell is wanted
    except OSError as error:
        print(f"reveal kafka: {command[0]} cannot be executed: {error}", file=sys.stderr)
        return 1
