"""Migrations: the DDL in `migrations/`, applied in order, recorded with its checksum."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Any, Final, Protocol

from schemas.settings import WarehouseSettings
from sinks.warehouse.store import Store, StoreError

LOG: Final = logging.getLogger(__name__)
_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
# Servers before 26.8 take the comment of a column only before its codec; some migrations were published with it behind.
_COMMENT_BEHIND: Final = re.compile(r"(CODEC\((?:[^()]|\([^()]*\))*\)) (COMMENT '(?:[^'\\]|\\.)*')")
_ABSENT: Final = (60, 81)
"""ClickHouse's numbers for: no such table, no such database."""
_RECORDS: Final = """
CREATE TABLE IF NOT EXISTS ${database}.migrations_log ${on_cluster}
(
    number UInt32, name String, checksum String, state LowCardinality(String) COMMENT 'up or down',
    applied DateTime64(6, 'UTC') DEFAULT now64(6)
)
ENGINE = ${replicated}ReplacingMergeTree(applied) ORDER BY number
"""
_RECORD: Final = """
INSERT INTO ${database}.migrations_log (number, name, checksum, state)
VALUES (${number}, '${name}', '${checksum}', '${state}')
"""


class MigrationError(Exception):
    """The database and the migrations of this program do not fit together; the message says how and what to do."""


class Database(Protocol):
    """What is needed of a store."""

    database: str

    def command(self, sql: str) -> None:
        """Run a statement."""

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """Rows of a query, as `.rows`."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step, its statements still with placeholders. The checksum is that of the file."""

    number: int
    name: str
    checksum: str
    up: tuple[str, ...]
    down: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where tables live: a single node (also the embedded engine), or every node of a named cluster, replicated. Each
    node must know the macros {shard} and {replica}.
    """

    database: str
    cluster: str = ""

    def render(self, statement: str, **values: object) -> str:
        """`statement` with its placeholders filled. Raises KeyError for an unknown one."""
        return Template(statement).substitute(
            database=f"`{self.database}`",
            on_cluster=f"ON CLUSTER '{self.cluster}'" if self.cluster else "",
            replicated="Replicated" if self.cluster else "",
            **values,
        )


def parse(file_name: str, text: str) -> Migration:
    """The migration in a file. Raises MigrationError for a wrong name or a missing part."""
    match = _NAME.fullmatch(file_name)
    if match is None:
        raise MigrationError(f"{file_name}: a migration is called NNNN_name.sql")
    parts = re.split(r"^-- (up|down)\n", text, flags=re.MULTILINE)
    if parts[1::2] != ["up", "down"]:
        raise MigrationError(f"{file_name}: needs a line '-- up' with its statements and then a line '-- down'")
    up, down = (_statements(part) for part in parts[2::2])
    if not up or not down:
        raise MigrationError(f"{file_name}: both up and down need a statement")
    return Migration(int(match[1]), match[2], hashlib.sha256(text.encode()).hexdigest(), up, down)


def _statements(text: str) -> tuple[str, ...]:
    text = _COMMENT_BEHIND.sub(r"\2 \1", text)
    return tuple(part.strip() for part in re.split(r";[ \t]*(?:\n|\Z)", text) if part.strip())


def migrations() -> tuple[Migration, ...]:
    """All migrations of this program, in order. Raises MigrationError for two of one number or a gap."""
    folder = resources.files("sinks.warehouse").joinpath("migrations")
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda item: item.name)
    found = tuple(parse(item.name, item.read_text(encoding="utf-8")) for item in files)
    numbers = [migration.number for migration in found]
    if numbers != list(range(1, len(found) + 1)):
        raise MigrationError(f"migrations must be numbered from 0001 without a gap, not {numbers}")
    return found


def apply(store: Database, steps: Sequence[Migration], layout: Layout) -> list[Migration]:
    """Apply those of `steps` that the database lacks; which they were. Does nothing the second time.

    Each statement can be run twice and a step is recorded after its last one, so a crash in between costs nothing:
    the step is run again; sinks that start at the same time may both run one. Raises MigrationError, before anything is
    changed, for a step edited after it was applied.
    """
    applied = _begun(store, layout)
    for step in steps:
        if applied.get(step.number, step.checksum) != step.checksum:
            raise MigrationError(
                f"migration {step.number:04d}_{step.name} was edited after it was applied to database "
                f"{store.database}: restore the file, and put the change into a new migration"
            )
    done = []
    for step in steps:
        # Another sink may have done it meanwhile, and may have its views in use.
        if step.number in applied or step.number in recorded(store, layout):
            continue
        for statement in step.up:
            store.command(layout.render(statement))
        _record(store, layout, step, "up")
        done.append(step)
    return done


def revert(store: Database, steps: Sequence[Migration], layout: Layout, down_to: int = 0) -> list[Migration]:
    """Undo the applied steps above number `down_to`, the highest first; which they were. Their data is lost."""
    applied = recorded(store, layout)
    done = [step for step in reversed(steps) if step.number > down_to and step.number in applied]
    for step in done:
        for statement in step.down:
            store.command(layout.render(statement))
        _record(store, layout, step, "down")
    return done


def recorded(store: Database, layout: Layout) -> dict[int, str]:
    """Checksums of the applied steps by number."""
    sql = "SELECT number, checksum FROM ${database}.migrations_log FINAL WHERE state = 'up'"
    return {int(number): str(checksum) for number, checksum in store.query(layout.render(sql)).rows}


def _begun(store: Database, layout: Layout) -> dict[int, str]:
    """What is recorded. Nothing is told to a cluster where there is a record: it would wait for a node that is away."""
    try:
        return recorded(store, layout)
    except StoreError as error:
        if error.code not in _ABSENT:
            raise
    store.command(layout.render("CREATE DATABASE IF NOT EXISTS ${database} ${on_cluster}"))
    store.command(layout.render(_RECORDS))
    return recorded(store, layout)


def _record(store: Database, layout: Layout, step: Migration, state: str) -> None:
    store.command(layout.render(_RECORD, number=step.number, name=step.name, checksum=step.checksum, state=state))


def retention(settings: WarehouseSettings) -> dict[str, int]:
    """Days after which the rows of each table may go, counted from when they were stored: so a recording of long ago
    can be replayed, and a host with a wrong clock loses nothing.
    """
    return {
        "telemetry_log": settings.telemetry_days,
        "batches_log": settings.telemetry_days,
        "telemetry_minute_log": settings.minute_days,
        "telemetry_hour_log": settings.hour_days,
        "hosts_log": settings.episode_days,
        "verdicts_log": settings.verdict_days,
        "episodes_log": settings.episode_days,
        "evidence_log": settings.episode_days,
        "episode_samples_log": settings.sample_days,
        "episode_spans_log": settings.episode_days,
        "models_log": settings.episode_days,
        "events_log": settings.event_days,
        "alerts_log": settings.episode_days,
        "deliveries_log": settings.event_days,
        "feedback_log": settings.episode_days,
        "dead_letters_log": settings.dead_letter_days,
    }


def apply_retention(store: Database, days_of: Mapping[str, int], layout: Layout) -> list[str]:
    """Set the TTL of each table where it differs; which tables changed. A setting, so not a migration."""
    answer = store.query(
        "SELECT name, create_table_query FROM system.tables WHERE database = {database:String}",
        {"database": store.database},
    )
    present = {str(name): str(ddl) for name, ddl in answer.rows}
    changed = []
    for table, days in days_of.items():
        rule = f"TTL toDateTime(stored) + toIntervalDay({days})"  # as ClickHouse writes it back
        if table in present and rule not in present[table]:
            store.command(
                layout.render(f"ALTER TABLE ${{database}}.{table} ${{on_cluster}} MODIFY {rule}")
                # Old parts follow as they merge: rewriting them all at once would stop the inserts.
                + " SETTINGS materialize_ttl_after_modify = 0"
            )
            changed.append(table)
    return changed


def bring_up_to_date(store: Store, settings: WarehouseSettings, stop: threading.Event) -> bool:
    """Apply what is missing and the retention, trying until ClickHouse answers; False if told to stop before.

    Raises MigrationError, also for a statement that ClickHouse refuses: trying again would not help.
    """
    layout = Layout(store.database, store.cluster)
    pause, said = 0.1, False
    while not stop.is_set():
        try:
            for step in apply(store, migrations(), layout):
                LOG.info("applied migration %04d_%s", step.number, step.name)
            for table in apply_retention(store, retention(settings), layout):
                LOG.info("set the retention of %s", table)
        except StoreError as error:
            if not error.unreachable:
                raise MigrationError(f"ClickHouse refuses a migration: {error}") from error
            if not said:
                LOG.warning("waiting for ClickHouse: %s", error)
                said = True
            stop.wait(pause)
            pause = min(2.0, 2 * pause)
        else:
            LOG.info("tables of database %s are up to date", store.database)
            return True
    return False
