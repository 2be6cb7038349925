"""The embedded engine: the one owner of a directory, its configuration, its connections.

Two users exist. `default` may do all. `reader` may only read tables: its connections give up the role that grants
the rest, so the engine itself refuses it writes, DDL, files, URLs and other hosts; `Connection.classify`, the
engine's parser, keeps it from taking the role back. What cannot be set embedded: grants by table, quotas, and
passwords inside the engine (the HTTP interface checks them).
"""

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from deploy.clickhouse.errors import ACCESS_DENIED, UNKNOWN_SETTING, QueryError

DEFAULT = "default"
READER = "reader"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

# Embedded, the caches default to gigabytes and the pools to hundreds of threads. Rows come in batches, so inserts are
# not to be gathered by the server (async_insert, on by default since 26.2, would also hide their row counts). Old parts
# are removed soon and one after the other: left to itself the engine waits for minutes, and then deletes thousands of
# files with 128 threads, which is a storm on the host that is watched. The end of the disk is left free: a part whose
# writing meets it is taken for written, and can then not be read.
_SERVER = """<clickhouse>
    <users_config>{users}</users_config>
    <max_server_memory_usage>{memory}</max_server_memory_usage>
    <mark_cache_size>33554432</mark_cache_size>
    <primary_index_cache_size>33554432</primary_index_cache_size>
    <index_mark_cache_size>8388608</index_mark_cache_size>
    <query_condition_cache_size>8388608</query_condition_cache_size>
    <compiled_expression_cache_size>16777216</compiled_expression_cache_size>
    <parquet_metadata_cache_size>8388608</parquet_metadata_cache_size>
    <mmap_cache_size>128</mmap_cache_size>
    <max_thread_pool_size>256</max_thread_pool_size>
    <max_thread_pool_free_size>16</max_thread_pool_free_size>
    <max_io_thread_pool_size>16</max_io_thread_pool_size>
    <merge_tree>
        <cleanup_delay_period>5</cleanup_delay_period>
        <cleanup_delay_period_random_add>1</cleanup_delay_period_random_add>
        <max_cleanup_delay_period>5</max_cleanup_delay_period>
        <concurrent_part_removal_threshold>1000000</concurrent_part_removal_threshold>
    </merge_tree>
    <storage_configuration><disks><default>
        <keep_free_space_bytes>{free}</keep_free_space_bytes>
    </default></disks></storage_configuration>
</clickhouse>
"""
_KEEP_FREE = 1 << 30
_USERS = """<clickhouse>
    <profiles><default>
        <async_insert>0</async_insert>
        <implicit_select>0</implicit_select>
        <storage_file_read_method>pread</storage_file_read_method>
        <allow_introspection_functions>0</allow_introspection_functions>
        <max_memory_usage>{memory}</max_memory_usage>
        <max_bytes_before_external_group_by>{spill}</max_bytes_before_external_group_by>
        <max_bytes_before_external_sort>{spill}</max_bytes_before_external_sort>
    </default></profiles>
    <quotas><default/></quotas>
    <roles><full><grants><query>GRANT ALL ON *.*</query></grants></full></roles>
    <users><default>
        <password/>
        <networks><ip>::/0</ip></networks>
        <profile>default</profile>
        <quota>default</quota>
        <grants>
            <query>GRANT SELECT, SHOW, dictGet ON *.*</query>
            <query>GRANT full</query>
        </grants>
    </default></users>
</clickhouse>
"""


class DirectoryBusyError(Exception):
    """Another process owns the directory."""


@dataclass(frozen=True)
class Result:
    """What a statement gave: its output, and how many rows and bytes it read, wrote and returned."""

    output: bytes
    read_rows: int
    read_bytes: int
    result_rows: int
    result_bytes: int
    written_rows: int
    written_bytes: int
    elapsed_ns: int

    @classmethod
    def of(cls, raw: Any, output: bytes) -> "Result":
        """Takes the figures from the engine's own result."""
        written = raw.rows_written()
        return cls(
            output,
            raw.storage_rows_read(),
            raw.storage_bytes_read(),
            0 if written else raw.rows_read(),
            0 if written else raw.bytes_read(),
            written,
            raw.bytes_written(),
            int(raw.elapsed() * 1e9),
        )


def quote(value: str) -> str:
    """A string literal of SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


_FAILED_INSERTS = "SELECT sum(value) FROM system.events WHERE event = 'FailedInsertQuery'"
_LAST_ERROR = (
    "SELECT concat('Code: ', toString(code), '. DB::Exception: ', last_error_message, '. (', name, ')') "
    "FROM system.errors ORDER BY last_error_time DESC LIMIT 1"
)


class Insert:
    """Rows on their way into a table, as bytes of the INSERT's format. Ends with `finish` or `cancel`.

    The engine says of an insert whose last step fails, such as on a full disk, that it is done. Only its own count of
    failures tells; so an insert beside which another one failed counts as failed as well, which costs a repetition.
    """

    def __init__(self, connection: Any, handle: Any, failed_before: bytes) -> None:
        self._connection = connection
        self._handle = handle
        self._failed_before = failed_before

    def append(self, data: bytes) -> None:
        """Raises QueryError if the engine cannot read the rows."""
        try:
            self._connection.insert_append(self._handle, data)
        except RuntimeError as error:
            raise QueryError.from_engine(str(error)) from None

    def finish(self) -> Result:
        """Commits. Raises QueryError."""
        try:
            result = Result.of(self._connection.insert_done(self._handle), b"")
            if _failed_inserts(self._connection) != self._failed_before:
                raise RuntimeError(self._connection.query(_LAST_ERROR, "TSVRaw").bytes().decode().strip())
        except RuntimeError as error:
            raise QueryError.from_engine(str(error)) from None
        return result

    def cancel(self) -> None:
        """Drops the rows that are not committed yet."""
        try:
            self._connection.insert_cancel(self._handle)
        except RuntimeError as error:
            raise QueryError.from_engine(str(error)) from None


def _failed_inserts(connection: Any) -> bytes:
    """How many inserts have failed, in the engine's own digits."""
    return bytes(connection.query(_FAILED_INSERTS, "TSVRaw").bytes())


class Connection:
    """One connection: its settings, database and temporary tables. For one statement at a time, from any thread."""

    def __init__(self, raw: Any, user: str) -> None:
        self._raw = raw
        self.user = user
        if user == READER:
            self.run("SET ROLE NONE")
            self.run("SET readonly = 2")

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def run(self, sql: str, output_format: str = "TabSeparated") -> Result:
        """Runs one statement to its end and holds its output. Raises QueryError."""
        try:
            raw = self._raw.query(sql, output_format)
            return Result.of(raw, raw.bytes())
        except RuntimeError as error:
            raise QueryError.from_engine(str(error)) from None

    def insert(self, sql: str, input_format: str) -> Insert:
        """Starts an INSERT (without FORMAT clause or rows). Raises QueryError."""
        try:
            failed_before = _failed_inserts(self._raw)
            return Insert(self._raw, self._raw.send_insert(sql, input_format), failed_before)
        except RuntimeError as error:
            raise QueryError.from_engine(str(error)) from None

    def set(self, settings: Mapping[str, str]) -> None:
        """Applies settings, `param_x` for a query's parameter x. Raises QueryError (unknown name, bad value)."""
        for name in settings:
            if not _NAME.fullmatch(name):
                raise QueryError.of(UNKNOWN_SETTING, f"Unknown setting {name!r}")
        if settings:
            self.run("SET " + ", ".join(f"{name} = {quote(value)}" for name, value in settings.items()))

    def values(self, names: list[str]) -> dict[str, str]:
        """Present values of settings, those unknown to the engine left out."""
        listed = ", ".join(quote(name) for name in names)
        rows = self.run(f"SELECT name, value FROM system.settings WHERE name IN ({listed})", "TSVRaw").output  # noqa: S608
        return dict(row.split("\t", 1) for row in rows.decode().splitlines())

    def use(self, database: str) -> None:
        """Makes it the current database. Raises QueryError if there is none of the name."""
        self.run("USE `" + database.replace("\\", "\\\\").replace("`", "\\`") + "`")

    def database(self) -> str:
        """The current database."""
        return self.run("SELECT currentDatabase()", "TSVRaw").output.decode().rstrip("\n")

    def classify(self, sql: str) -> str:
        """What the engine's parser takes it for: READ_ONLY, MUTATING, MUTATING_GLOBAL, CONTROL or UNKNOWN (no SQL)."""
        try:
            return str(self._raw.classify_query(sql)["query_class"].name)
        except RuntimeError as error:
            raise QueryError.from_engine(str(error)) from None

    def close(self) -> None:
        """Gives the connection back; its temporary tables go."""
        self._raw.close()


class Engine:
    """Owns a directory from construction to `close`; there can be one in a process.

    `memory_bytes` bounds what all queries together may hold; caches and idle engine come on top (some 350 MB).
    Raises DirectoryBusyError if another process owns it.
    """

    def __init__(self, directory: Path, memory_bytes: int) -> None:
        directory = directory.resolve()
        (directory / "data").mkdir(parents=True, exist_ok=True)
        # Results that are held back until they are complete; /tmp may be memory.
        self.scratch = directory / "scratch"
        self.scratch.mkdir(exist_ok=True)
        _refuse_if_owned(directory / "data")
        users, server = directory / "users.xml", directory / "engine.xml"
        users.write_text(_USERS.format(memory=memory_bytes * 4 // 5, spill=memory_bytes // 4))
        free = min(_KEEP_FREE, shutil.disk_usage(directory).total // 20)
        server.write_text(_SERVER.format(users=users, memory=memory_bytes + (350 << 20), free=free))
        # The import itself opens an engine and reads a config.xml of the working directory.
        os.chdir(directory)
        from chdb import _chdb  # noqa: PLC0415  # loading it takes half a second and 270 MB

        self._open: Callable[[str], Any] = getattr(_chdb, "connect")  # noqa: B009  # typed nowhere
        self._address = f"{directory / 'data'}?config-file={server}"
        # The engine lives as long as one connection does.
        try:
            self._anchor = self._open(self._address)
        except RuntimeError as error:
            _refuse_if_owned(directory / "data")
            raise QueryError.from_engine(str(error)) from None
        with self.connect(DEFAULT) as connection:
            row = connection.run("SELECT version(), timezone(), hostName()", "TSVRaw").output.decode()
        self.version, self.timezone, self.host = row.rstrip("\n").split("\t")

    def connect(self, user: str) -> Connection:
        """A new connection for DEFAULT or READER (0.2 ms). Raises QueryError."""
        if user not in (DEFAULT, READER):
            raise QueryError.of(ACCESS_DENIED, f"no user {user!r}")
        try:
            return Connection(self._open(self._address), user)
        except RuntimeError as error:
            raise QueryError.from_engine(str(error)) from None

    def kill(self, query_id: str) -> None:
        """Cancels what runs under that id; the engine names queries itself, so ours is in their log_comment."""
        with self.connect(DEFAULT) as connection:
            connection.run(f"KILL QUERY WHERE Settings['log_comment'] = {quote(query_id)} ASYNC")

    def ping(self) -> bool:
        """Whether the engine answers."""
        with self.connect(DEFAULT) as connection:
            return connection.run("SELECT 1").output == b"1\n"

    def close(self) -> None:
        """Writes out what it holds and gives the directory up. All connections must be closed before."""
        self._anchor.close()


def _refuse_if_owned(data: Path) -> None:
    """The engine's own words for it go to stderr only, so its lock is tried first."""
    try:
        descriptor = os.open(data / "status", os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 200).decode(errors="replace").partition("\n")[0].lower().replace(":", "")
        raise DirectoryBusyError(
            f"{data.parent} is owned by another ClickHouse process ({owner or 'unknown pid'}): "
            "use that one over HTTP, stop it first, or give another --directory"
        ) from None
    finally:
        os.close(descriptor)
