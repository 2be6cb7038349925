"""`reveal demo`: two real faults on this machine, and what Reveal finds of them. About three minutes."""

from __future__ import annotations

import argparse
import signal
from types import FrameType
from typing import Final

WIDTH: Final = 120
HELP: Final = "start everything, learn this machine, cause two real faults, show what was found"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--keep", action="store_true", help="leave the stack running, and say where")
    parser.add_argument(
        "--directory", metavar="D", help="data and logs, kept as they are found (default: .reveal/demo, emptied first)"
    )


def run(args: argparse.Namespace) -> int:
    """Exit status 0 only if both faults were found and attributed to the right subsystem.

    Raises StackError, LocalKafkaError and SettingsError when it cannot be shown.
    """
    from rich.console import Console  # noqa: PLC0415

    from deploy.demo.show import Demo  # noqa: PLC0415

    # As Ctrl-C does it: everything is stopped first.
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    return Demo(args.environ, args.file, args.directory, console).run(keep=args.keep)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
