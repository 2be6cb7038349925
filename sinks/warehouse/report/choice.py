"""Which episode is meant: an id, the beginning of one, or the newest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sinks.warehouse.report import statements as sql
from sinks.warehouse.report import words
from sinks.warehouse.report.visible import visible
from sinks.warehouse.store import Result

Ask = Callable[[str, Mapping[str, Any]], Result]
"""Result of a query with its parameters, names looked for in Reveal's database."""


class ReportError(Exception):
    """There is no such episode, or more than one; the message says which there are."""


def find(ask: Ask, prefix: str) -> str:
    """Id of the one episode whose id begins with `prefix`, or is it. Raises ReportError, StoreError."""
    found = ask(sql.MATCHING, {"id": prefix}).rows
    if found and (len(found) == 1 or found[0][0] == prefix):
        return str(found[0][0])
    if found:
        more = ["  ..."] if len(found) > 5 else []
        raise ReportError("\n".join([f"more than one episode begins with {prefix}:", *_listed(found[:5]), *more]))
    newest = ask(sql.NEWEST, {"host": ""}).rows
    if not newest:
        raise ReportError("there is no episode yet")
    nearest = [row for row in ask(sql.NEAREST, {"id": prefix}).rows if row not in newest]
    lines = [f"there is no episode {prefix}; the newest are", *_listed(newest)]
    raise ReportError("\n".join([*lines, "and the nearest", *_listed(nearest)] if nearest else lines))


def find_last(ask: Ask, host: str = "") -> str:
    """Id of the episode that began last, of all hosts or of one. Raises ReportError, StoreError."""
    found = ask(sql.NEWEST, {"host": host}).rows
    if found:
        return str(found[0][0])
    if not host:
        raise ReportError("there is no episode yet")
    newest = ask(sql.NEWEST, {"host": ""}).rows
    others = ["; the newest of other hosts are", *_listed(newest)] if newest else []
    raise ReportError(f"there is no episode of host {host}" + "\n".join(others))


def seconds(moment: datetime) -> float:
    """A time of the database, which is UTC, in s since 1970-01-01."""
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _listed(rows: Sequence[Sequence[Any]]) -> list[str]:
    return [
        visible(f"  {id_}  {words.moment(seconds(start))}  {subsystem}  {host}") for id_, host, start, subsystem in rows
    ]
