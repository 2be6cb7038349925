"""`reveal models`: the models of hosts, as Kafka holds them, and which of them workers are to use."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from schemas.settings import KafkaSettings, load

HELP: Final = "show what workers have learnt of hosts, pin a version of it or roll back"

ACTIONS: Final = {
    "list": "a line a host",
    "show": "everything about the models of a host",
    "pin": "keep a version, and fit no other until unpinned",
    "unpin": "learn on",
    "rollback": "keep the version before the one in use",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, words in ACTIONS.items():
        action = actions.add_parser(name, help=words, description=words)
        if name == "list":
            action.add_argument("--host", default="", metavar="NAME", help="only this one")
        else:
            action.add_argument("host", metavar="HOST")
        if name == "pin":
            action.add_argument("version", metavar="VERSION", type=int)
        if name in {"list", "show"}:
            action.add_argument("--json", action="store_true", help="print JSON")
        else:
            action.add_argument(
                "--wait",
                type=float,
                default=15.0,
                metavar="S",
                help="seconds for a worker to obey (default: %(default)g)",
            )


def run(args: argparse.Namespace) -> int:
    """Print what is asked for, or have it done; exit status 1, with a line on stderr, when that is not possible."""
    from deploy.models import ModelsError, command, find, list_all, read, show  # noqa: PLC0415
    from stream_processors.kafka import KafkaException  # noqa: PLC0415

    kafka = load(KafkaSettings, args.environ, args.file)
    try:
        if args.action == "list":
            list_all([held for _, held in read(kafka, args.host)], as_json=args.json)
        elif args.action == "show":
            show(find(kafka, args.host)[1], as_json=args.json)
        else:
            print(command(kafka, args.action, args.host, getattr(args, "version", 0), args.wait))
    except ModelsError as error:
        print(f"reveal models: {error}", file=sys.stderr)
        return 1
    except KafkaException as error:
        print(
            f"reveal models: Kafka at {kafka.bootstrap}: {error.args[0]}; is it running, and REVEAL_KAFKA_BOOTSTRAP"
            " right?",
            file=sys.stderr,
        )
        return 1
    return 0
