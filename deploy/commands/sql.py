"""`reveal sql`: a query of the warehouse, as a table, JSON or CSV."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

HELP: Final = "query the warehouse in SQL"

UNLIMITED: Final = 1_000_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("query", help='the query, such as "SELECT * FROM anomalies"; - reads it from stdin')
    parser.add_argument("--format", choices=("table", "json", "csv"), default="table", help="(default: %(default)s)")
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of {NAME:Type} in the query; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the result; status 1 with one paragraph on stderr when ClickHouse refuses or does not answer."""
    import sys  # noqa: PLC0415

    from deploy.answers import AnswerError, opened  # noqa: PLC0415
    from schemas.settings import ClickHouseSettings, load  # noqa: PLC0415

    settings = load(ClickHouseSettings, args.environ, args.file)
    text = sys.stdin.read() if args.query == "-" else args.query
    try:
        parameters = parse_parameters(args.param)
        if not text.strip():
            raise ValueError("the query is empty")
        with opened(settings, timeout_s=300, ours=False) as store:
            result = store.query(text.strip().rstrip(";"), parameters, database=settings.database)
    except (AnswerError, ValueError) as error:
        print(f"reveal sql: {error}", file=sys.stderr)
        return 1
    show_result = {"table": print_table, "json": print_json, "csv": print_csv}[args.format]
    if any(result.columns):
        show_result(result.columns, result.rows)
    else:
        # A statement that returns nothing; the client makes one nameless value of it.
        show_result((), ())
    return 0


def parse_parameters(pairs: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE to a mapping. Raises ValueError for what is not of that form."""
    parameters = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--param {pair!r} is not NAME=VALUE")
        parameters[name] = value
    return parameters


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table for people, numbers to the right. What is wider than the terminal is shown a column a line instead."""
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    screen = Console(highlight=False)
    if not columns:
        screen.print(Text("0 rows", style="dim"))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        numeric = any(isinstance(row[place], int | float) for row in rows[:100])
        table.add_column(Text(name), justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(show(value)) for value in row))
    # Into a file or pipe: a line a row, as wide as it takes.
    wide = Console(highlight=False, width=UNLIMITED)
    width = wide.measure(table).maximum
    if screen.is_terminal and width > screen.width:
        longest = max(map(len, columns))
        for number, row in enumerate(rows, 1):
            screen.print(Text(f"row {number}", style="dim"))
            for name, value in zip(columns, row, strict=True):
                screen.print(Text(f"  {name:<{longest}}  {show(value)}"))
    else:
        Console(highlight=False, width=max(width, 20)).print(table)
    screen.print(Text(f"{len(rows)} {'row' if len(rows) == 1 else 'rows'}", style="dim"))


def print_json(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A list of objects."""
    import json  # noqa: PLC0415

    print(json.dumps([dict(zip(columns, map(plain, row), strict=True)) for row in rows], indent=1, ensure_ascii=False))


def print_csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """CSV with a header line."""
    import csv  # noqa: PLC0415
    import sys  # noqa: PLC0415

    writer = csv.writer(sys.stdout, lineterminator="\n")
    if columns:  # an empty result has none
        writer.writerow(columns)
    writer.writerows(["" if value is None else show(value) for value in row] for row in rows)


def plain(value: Any) -> Any:
    """`value` as JSON has it: times in ISO form, NaN and infinities as null, bytes as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


def show(value: Any) -> str:
    """`value` in a cell."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) and abs(value) < 1e15 else str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={show(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value))
    return str(plain(value))


def iso(value: datetime) -> str:
    """ISO form; UTC ends in Z. A time without a zone is UTC, as everything here."""
    value = value.replace(tzinfo=UTC) if value.tzinfo is None else value
    text = value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")
    return text.replace("+00:00", "Z")
