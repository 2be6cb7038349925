"""Answers of ClickHouse for commands: asked for quietly, written into files, and what to do where there is none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from schemas.settings import ClickHouseSettings
from sinks.warehouse.store import Store, StoreError

UNKNOWN_DATABASE: Final = 81
UNKNOWN_TABLE: Final = 60


class AnswerError(Exception):
    """There is none; the message is one paragraph that says why, and what to do."""


@contextmanager
def opened(settings: ClickHouseSettings, timeout_s: float, *, ours: bool = True) -> Iterator[Store]:
    """A store to ask, closed at the end; what it raises comes as AnswerError.

    ours  a table that is not there has not been made yet, rather than been misspelt
    """
    # What goes wrong is told once, by the command.
    logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)
    store = Store(settings, timeout_s=timeout_s)
    try:
        yield store
    except StoreError as error:
        hint = ""
        if error.unreachable:
            hint = "; is `reveal up` running, and are REVEAL_CLICKHOUSE_HOST and REVEAL_CLICKHOUSE_PORT right?"
        elif error.code == UNKNOWN_DATABASE or (ours and error.code == UNKNOWN_TABLE):
            hint = "; `reveal warehouse --migrate-only` makes the database and its tables"
        raise AnswerError(f"{error}{hint}") from error
    finally:
        store.close()


def write(path: Path, document: str | bytes) -> None:
    """Write `document` into a file. Raises AnswerError."""
    try:
        path.write_bytes(document.encode() if isinstance(document, str) else document)
    except OSError as error:
        raise AnswerError(f"cannot write {path}: {error.strerror}") from error
