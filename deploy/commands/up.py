"""`reveal up`: all of Reveal on this machine, under a supervisor, in the foreground."""

from __future__ import annotations

import argparse
import sys
from typing import Final

HELP: Final = "run everything on this machine: Kafka, ClickHouse, agent, worker, warehouse, alerts"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "--directory", metavar="D", help="where data, logs and state live (default: .reveal, or REVEAL_STACK_DIRECTORY)"
    )
    parser.add_argument(
        "--status", action="store_true", help="show what runs in the directory instead; status 0 only if it is ready"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the stack until Ctrl-C or SIGTERM, or shows its state.

    Raises StackError, LocalKafkaError and SettingsError before anything is started.
    """
    from deploy.stack import foreground, status  # noqa: PLC0415
    from deploy.stack.services import stack  # noqa: PLC0415

    wanted = stack(args.environ, args.file, args.directory)
    if args.status:
        return status.show(wanted.directory, sys.stdout)
    return foreground.run(wanted, sys.stdout)
