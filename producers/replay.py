"""Recordings, published again: which records to send, and when."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from schemas.records import Telemetry

SECOND_NS: Final = 1_000_000_000


class ReplayError(ValueError):
    """The recording cannot be replayed as asked; the message says why."""


def readdress(
    records: Iterable[Telemetry],
    host: str = "",
    now_ns: int | None = None,
    session: Callable[[], str] = lambda: secrets.token_hex(8),
) -> Iterator[Telemetry]:
    """The records, renamed to `host` and moved by whole seconds so that the first starts at `now_ns`, if given.

    Moved records get a new session for each old one: they are not what that session sent. Raises ReplayError when
    several hosts would become one.
    """
    shift_ns: int | None = None if now_ns is not None else 0
    sessions: dict[tuple[str, str], str] = {}
    first = ""
    for record in records:
        first = first or record.host
        if host and record.host != first:
            raise ReplayError(f"the recording holds {first} and {record.host}: they cannot both become {host}")
        if now_ns is None:
            yield replace(record, host=host) if host else record
            continue
        if shift_ns is None:
            shift_ns = (now_ns // SECOND_NS - record.start_ns // SECOND_NS) * SECOND_NS
        key = (record.host, record.session)
        if key not in sessions:
            sessions[key] = session()
        yield replace(record, host=host or record.host, start_ns=record.start_ns + shift_ns, session=sessions[key])


def paced(
    records: Iterable[Telemetry], speed: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[Telemetry]:
    """The records, each when its time has come: `speed` times as fast as they were taken, at once if infinite.

    `clock` in s. A record comes when its last sample has been taken, as from an agent.
    """
    start_ns: int | None = None
    began = clock()
    for record in records:
        if math.isfinite(speed):
            end_ns = record.start_ns + record.count * record.period_ms * 1_000_000
            if start_ns is None:
                start_ns = end_ns
            wait = began + (end_ns - start_ns) / SECOND_NS / speed - clock()
            if wait > 0:
                sleep(wait)
        yield record
