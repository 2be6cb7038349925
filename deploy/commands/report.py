"""`reveal report`: the root-cause report of an episode."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Final

HELP: Final = "show what happened in an episode, as text, Markdown or an HTML page"

SUFFIXES: Final = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}
MOST_S: Final = 86_400
EPILOG: Final = """\
examples:
  reveal report --last
  reveal report 5fdc4c92
  reveal report --last --host gpu-017 --output report.html
  reveal report 5fdc4c92 --format markdown --before 600 --after 300
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("id", nargs="?", type=_prefix, metavar="ID", help="the episode, or the beginning of its id")
    which.add_argument("--last", action="store_true", help="the episode that began last")
    parser.add_argument("--host", metavar="H", default="", help="with --last: of this host")
    parser.add_argument(
        "--format", choices=("text", "markdown", "html"), help="(default: what the end of FILE says, else text)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write into a file")
    parser.add_argument(
        "--before", type=_seconds, default=120.0, metavar="S", help="seconds before its start (default: 120)"
    )
    parser.add_argument(
        "--after", type=_seconds, default=120.0, metavar="S", help="seconds after its end (default: 120)"
    )


def run(args: argparse.Namespace) -> int:
    """Prints or writes the report; status 1 with the reason on stderr when there is none to be had."""
    from functools import partial  # noqa: PLC0415

    from deploy.answers import AnswerError, opened, write  # noqa: PLC0415
    from schemas.settings import ClickHouseSettings, load  # noqa: PLC0415
    from sinks.warehouse.report.choice import ReportError, find, find_last  # noqa: PLC0415
    from sinks.warehouse.report.queries import read_report  # noqa: PLC0415
    from sinks.warehouse.report.render import render, render_text  # noqa: PLC0415

    if args.host and not args.last:
        print("reveal report: --host goes with --last", file=sys.stderr)
        return 2
    settings = load(ClickHouseSettings, args.environ, args.file)
    chosen = args.format or SUFFIXES.get(args.output.suffix.lower() if args.output else "", "text")
    try:
        with opened(settings, timeout_s=60) as store:
            ask = partial(store.query, database=settings.database)
            id_ = find_last(ask, args.host) if args.last else find(ask, args.id)
            report = read_report(ask, id_, args.before, args.after)
        if args.output is not None:
            write(args.output, render(report, chosen))
            return 0
    except (AnswerError, ReportError) as error:
        print(f"reveal report: {error}", file=sys.stderr)
        return 1
    if chosen == "text" and sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        sys.stdout.write(render_text(report, columns, color="NO_COLOR" not in args.environ))
    else:
        sys.stdout.write(render(report, chosen))
    return 0


def _prefix(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return text.strip()


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MOST_S:
        raise argparse.ArgumentTypeError(f"must be 0 to {MOST_S}, not {text}")
    return value
