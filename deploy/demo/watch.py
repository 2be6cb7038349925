"""How the demo shows that time goes by: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINE_EVERY_S: Final = 10.0

# (done, note)
Advance = Callable[[float, str], None]


@contextmanager
def progress(
    console: Console, title: str, total: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[Advance]:
    """A display of something that goes from 0 to `total`; call what it yields with how far it is, and a note."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as bars:
            task = bars.add_task(title, total=total, note="")

            def move(done: float, note: str = "") -> None:
                bars.update(task, completed=min(done, total), note=note)

            yield move
        return
    told = float("-inf")

    def line(done: float, note: str = "") -> None:
        nonlocal told
        if clock() >= told + LINE_EVERY_S or (done >= total and told < float("inf")):
            told = clock() if done < total else float("inf")
            console.print(f"{title}: {min(done, total):.0f} of {total:.0f}{'  ' + note if note else ''}")

    yield line
