"""`python -m tests.laboratory`: real faults on this machine, one after the other, and what Reveal made of them."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from rich.console import Console

from deploy.kafka.errors import LocalKafkaError
from deploy.stack.errors import StackError
from schemas.settings import SettingsError
from sinks.warehouse.store import StoreError
from tests.laboratory.judge import judged, quiet, result
from tests.laboratory.needs import NeedsError, provide, read_in
from tests.laboratory.report import show, show_faults
from tests.laboratory.session import Session
from tests.laboratory.table import FAULTS

WIDTH: Final = 140
INTERRUPTED: Final = 130


def main(argv: Sequence[str], environ: Mapping[str, str], user: Callable[[], int] = os.geteuid) -> int:
    """Exit status 0 when it ran through, whatever was found; 1 when it could not run."""
    args = _parser().parse_args(argv)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    if args.list:
        show_faults(console)
        return 0
    if user() != 0:
        print("the fault laboratory needs root: sudo make faults", file=sys.stderr)
        return 1
    # As Ctrl-C does it: everything is undone first.
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        _run(args, environ, console)
    except (NeedsError, StackError, LocalKafkaError, SettingsError, StoreError, OSError) as error:
        print(f"the fault laboratory could not run: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything is undone", file=sys.stderr)
        return INTERRUPTED
    return 0


def _run(args: argparse.Namespace, environ: Mapping[str, str], console: Console) -> None:
    if args.json is not None:
        args.json.touch()  # better now than in half an hour
    provide(console.print)
    trials, spans = [], []
    with Session(args.directory, environ, console) as session:
        read_in()
        session.warm_up()
        if args.quiet_minutes:
            spans.append(session.be_quiet(60 * args.quiet_minutes))
        for name in args.only:
            session.recover()
            trials.append(session.act(FAULTS[name], args.seconds))
        session.recover()
        episodes = session.episodes()
    outcomes, calm = judged(trials, episodes), quiet(spans, episodes, trials)
    show(console, outcomes, calm)
    if args.json is not None:
        args.json.write_text(json.dumps(result(outcomes, calm), indent=1) + "\n", "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there as well")
    parser.add_argument(
        "--only",
        type=_names,
        default=tuple(FAULTS),
        metavar="NAME,...",
        help="these faults, in this order (default: all)",
    )
    parser.add_argument(
        "--quiet-minutes",
        type=_minutes,
        default=3.0,
        metavar="N",
        help="without a fault, after the warm-up (default: 3)",
    )
    parser.add_argument("--seconds", type=_seconds, default=15.0, metavar="N", help="of each fault (default: 15)")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(".reveal/faults"),
        metavar="D",
        help="data and logs (default: .reveal/faults)",
    )
    parser.add_argument("--list", action="store_true", help="show the faults and end")
    return parser


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if strange := [name for name in names if name not in FAULTS]:
        raise argparse.ArgumentTypeError(f"no fault {', '.join(strange)}; there are {', '.join(FAULTS)}")
    return names


def _minutes(text: str) -> float:
    return _number(text, 0.0, 60.0 * 24 * 7)


def _seconds(text: str) -> float:
    return _number(text, 5.0, 600.0)


def _number(text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text} is no number from {least:g} to {most:g}")
    return value


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
