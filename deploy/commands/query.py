"""`reveal query`: ready queries of the warehouse, as a table, JSON, CSV or Parquet."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

HELP: Final = "ask the warehouse a ready question, such as which hosts are anomalous"

SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|w)")
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
EPILOG: Final = """\
examples:
  reveal query --list
  reveal query anomalous-hosts --since 7d
  reveal query host-timeline --host gpu-017 --since 2h
  reveal query before-after --host gpu-017 --param at=2026-01-31T12:00:00Z --param minutes=30
  reveal query samples --param episode=5fdc4c92 --param metric=cpu.busy_pct --format parquet --output samples.parquet
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    parser.add_argument("name", nargs="?", metavar="NAME", help="which query")
    parser.add_argument("--list", action="store_true", help="say which queries there are, and end")
    parser.add_argument("--show", action="store_true", help="print the query instead of running it")
    parser.add_argument(
        "--since", default="7d", metavar="TIME", help="such as 30m, 7d or 2026-01-31T12:00:00Z (default: %(default)s)"
    )
    parser.add_argument("--until", default="0s", metavar="TIME", help="in the same form (default: now)")
    parser.add_argument("--host", default="", metavar="H", help="only this one")
    parser.add_argument("--subsystem", default="", metavar="S", help="only this one")
    parser.add_argument("--limit", type=_limit, default=100, metavar="N", help="rows at most (default: %(default)s)")
    parser.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", help="what else the query takes; may be repeated"
    )
    parser.add_argument(
        "--format", choices=("table", "json", "csv", "parquet"), default="table", help="(default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write into a file")


def run(args: argparse.Namespace) -> int:
    """Prints or writes the result; status 1 with one paragraph on stderr when there is none, 2 for wrong usage."""
    from deploy.commands.sql import parse_parameters  # noqa: PLC0415
    from sinks.warehouse.preset import PresetError, presets  # noqa: PLC0415

    known = presets()
    if args.list:
        longest = max(map(len, known))
        for preset in known.values():
            takes = [name if value is None else f"{name}={value}" for name, value in preset.defaults.items()]
            print(f"{preset.name:<{longest}}  {preset.title}" + (f" [{', '.join(takes)}]" if takes else ""))
        return 0
    try:
        if args.name is None:
            raise PresetError("which query? `reveal query --list` says which there are")
        if args.name not in known:
            raise PresetError(f"there is no query {args.name}; there are {', '.join(known)}")
        preset = known[args.name]
        if args.show:
            print(preset.sql)
            return 0
        if args.format == "parquet" and args.output is None and sys.stdout.isatty():
            raise PresetError("Parquet is nothing for a terminal: give --output FILE")
        now = datetime.now(UTC)
        given = parse_parameters(args.param)
        bound = preset.bind(
            {
                "since": moment(args.since, now),
                "until": moment(args.until, now),
                "host": args.host,
                "subsystem": args.subsystem,
                "limit": str(args.limit),
                **{
                    name: moment(value, now) if preset.types.get(name, "").startswith("DateTime") else value
                    for name, value in given.items()
                },
            }
        )
    except ValueError as error:
        print(f"reveal query: {error}", file=sys.stderr)
        return 2
    return _ask(args, preset.sql, bound)


def _ask(args: argparse.Namespace, sql: str, bound: dict[str, str]) -> int:
    from contextlib import redirect_stdout  # noqa: PLC0415
    from io import StringIO  # noqa: PLC0415

    from deploy.answers import AnswerError, opened, write  # noqa: PLC0415
    from deploy.commands.sql import print_csv, print_json, print_table  # noqa: PLC0415
    from schemas.settings import ClickHouseSettings, load  # noqa: PLC0415

    settings = load(ClickHouseSettings, args.environ, args.file)
    document: str | bytes
    try:
        with opened(settings, timeout_s=300) as store:
            if args.format == "parquet":
                document = store.document(sql, bound, "Parquet", database=settings.database)
                if args.output is None:
                    sys.stdout.buffer.write(document)
                    return 0
            else:
                show = {"table": print_table, "json": print_json, "csv": print_csv}[args.format]
                result = store.query(sql, bound, database=settings.database)
                if args.output is None:
                    show(result.columns, result.rows)
                    return 0
                with redirect_stdout(StringIO()) as text:
                    show(result.columns, result.rows)
                document = text.getvalue()
        write(args.output, document)
    except AnswerError as error:
        print(f"reveal query: {error}", file=sys.stderr)
        return 1
    return 0


def moment(text: str, now: datetime) -> str:
    """A time as ClickHouse takes it, in UTC: `text` is a span before `now`, or ISO 8601. Raises ValueError."""
    if match := SPAN.fullmatch(text):
        then = now - timedelta(seconds=float(match[1]) * SECONDS[match[2]])
    else:
        try:
            then = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is no time such as 30m, 7d or 2026-01-31T12:00:00Z") from None
        then = then.replace(tzinfo=UTC) if then.tzinfo is None else then.astimezone(UTC)
    return then.strftime("%Y-%m-%d %H:%M:%S.") + f"{then.microsecond // 1000:03}"


def _limit(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 32:
        raise argparse.ArgumentTypeError(f"must be a whole number above zero, not {text}")
    return int(text)
