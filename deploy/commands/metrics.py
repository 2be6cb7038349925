"""`reveal metrics`: the metric catalogue."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

HELP: Final = "print the metric catalogue"
FIELDS: Final = ("name", "subsystem", "unit", "kind", "dimension", "doc")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("--json", action="store_true", help="as a JSON list of objects")


def run(args: argparse.Namespace) -> int:
    """Prints every metric."""
    from schemas.catalogue import catalogue  # noqa: PLC0415

    rows = [{field: getattr(metric, field) for field in FIELDS} for metric in catalogue().values()]
    if args.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=f"{len(rows)} metrics", box=None, header_style="bold")
    for field in FIELDS:
        table.add_column(field, overflow="fold", no_wrap=field != "doc")
    for row in rows:
        table.add_row(*row.values())
    # A pipe has no width of its own: long enough for the longest row.
    Console(width=None if sys.stdout.isatty() else 240).print(table)
    return 0
