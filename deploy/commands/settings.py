"""`reveal settings`: every setting, where it comes from and what it is."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Final

HELP: Final = "print every setting with its variable, its default and its value here"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares no arguments."""


def run(args: argparse.Namespace) -> int:
    """Print the table. Raises SettingsError for a value that is wrong."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from schemas.settings import SECTIONS, load  # noqa: PLC0415

    console = Console(file=sys.stdout)
    for section, kind in SECTIONS.items():
        settings = load(kind, args.environ, args.file)
        about = " ".join((kind.__doc__ or "").split())
        table = Table("setting", "variable", "default", "here", title=f"[{section}] {about}".replace("[", "\\["))
        for item in dataclasses.fields(kind):
            here = getattr(settings, item.name)
            shown = "" if here == item.default else repr(here)
            table.add_row(item.name, f"REVEAL_{section.upper()}_{item.name.upper()}", repr(item.default), shown)
        console.print(table)
    return 0
