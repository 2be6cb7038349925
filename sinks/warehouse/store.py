"""ClickHouse over HTTP: the only file of the sink that knows the client library.

The client silently sends an insert again when the connection drops after it was sent. That would be harmless (see the
package's docstring), but hides trouble, so the body is handed over as a memory view, which the client sends once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import clickhouse_connect
import pyarrow as pa
from clickhouse_connect.driver.exceptions import ClickHouseError
from urllib3.exceptions import HTTPError

from schemas.settings import ClickHouseSettings

# The client's errors around urllib3's, which say little more than that the peer is not there.
_NOT_SQL: Final = re.compile(r"HTTP driver|HTTPConnectionPool|executing HTTP request|Connection", re.IGNORECASE)
_NOISE: Final = re.compile(
    r"^.*?(?:DB::Exception: |response_body: )|\s*\(version [^)]*(?:\([^)]*\))?\)|\(for url .*?\)|Stack trace:.*",
    re.DOTALL,
)


class StoreError(Exception):
    """ClickHouse did not do it; the message is one paragraph for people.

    unreachable  it did not answer, or its answer was lost: nobody knows whether it was done
    code         ClickHouse's number of the error, where it said one
    """

    def __init__(self, message: str, *, unreachable: bool = False, code: int | None = None) -> None:
        super().__init__(message)
        self.unreachable = unreachable
        self.code = code


@dataclass(frozen=True, slots=True)
class Result:
    """Rows of a query. Times are aware, in UTC where the column says nothing else."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


class Store:
    """One ClickHouse database. Connects at the first use and again after a loss; for one thread.

    cluster  name of the cluster that has its tables on every node; empty for a single node
    """

    def __init__(self, settings: ClickHouseSettings, *, timeout_s: float = 10.0) -> None:
        self.database = settings.database
        self.cluster = settings.cluster
        self._settings = settings
        self._timeout_s = timeout_s
        self._client: Any = None

    def insert(self, table: str, rows: pa.Table) -> None:
        """Insert `rows` into `table` of the database and return when they are stored. Raises StoreError."""
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(sink, rows.schema, options=options) as writer:
            writer.write_table(rows)
        names = rows.schema.names
        body = memoryview(sink.getvalue())
        name = f"{self.database}.{table}"
        self._do(lambda client: client.raw_insert(name, names, body, {"async_insert": 0}, "Arrow"))

    def command(self, sql: str) -> None:
        """Run a statement that returns nothing. Raises StoreError."""
        self._do(lambda client: client.command(sql, use_database=False))

    def query(self, sql: str, parameters: Mapping[str, Any] | None = None, *, database: str = "") -> Result:
        """Result of a query with parameters bound ({name:Type} in the text). Raises StoreError.

        Names without a database are looked for in `database`, or in the user's default.
        """
        settings = {"database": database} if database else {}

        def read(client: Any) -> Result:
            answer = client.query(sql, parameters=dict(parameters or {}), transport_settings=None, settings=settings)
            return Result(tuple(answer.column_names), answer.result_rows)

        result: Result = self._do(read)
        return result

    def document(self, sql: str, parameters: Mapping[str, Any], format_: str, *, database: str = "") -> bytes:
        """Result of a query as one document of ClickHouse's format, such as Parquet. Raises StoreError."""
        settings = {"database": database} if database else {}
        found: bytes = self._do(
            lambda client: client.raw_query(sql, dict(parameters), settings, format_, use_database=False)
        )
        return found

    def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _do(self, work: Any) -> Any:
        try:
            if self._client is None:
                self._client = self._connect()
            return work(self._client)
        except ClickHouseError as error:
            raise self._readable(error) from error
        except (OSError, HTTPError) as error:
            raise StoreError(f"{self._place()} does not answer: {_root(error)}", unreachable=True) from error

    def _connect(self) -> Any:
        settings = self._settings
        return clickhouse_connect.get_client(
            host=settings.host,
            port=settings.port,
            username=settings.username,
            password=str(settings.password),
            secure=settings.secure,
            # Not ours: it may not exist before the migrations.
            database="default",
            connect_timeout=5,
            send_receive_timeout=self._timeout_s,
            autogenerate_session_id=False,
            tz_mode="aware",
            query_limit=0,
            dedicated_pool=True,
        )

    def _place(self) -> str:
        scheme = "https" if self._settings.secure else "http"
        return f"ClickHouse at {scheme}://{self._settings.host}:{self._settings.port}"

    def _readable(self, error: ClickHouseError) -> StoreError:
        text = str(error)
        code = getattr(error, "code", None)
        if code is None and _NOT_SQL.search(text):
            return StoreError(f"{self._place()} does not answer: {_root(error)}", unreachable=True)
        clean = " ".join(_NOISE.sub("", text).split()).rstrip(". ")
        return StoreError(f"{clean} [ClickHouse code {code}]" if code is not None else clean, code=code)


def _root(error: BaseException) -> BaseException:
    """The error of the network at the bottom of the client's wrappings."""
    found, below = error, error.__cause__ or error.__context__
    while below is not None:
        if isinstance(below, OSError | HTTPError):
            found = below
        below = below.__cause__ or below.__context__
    return found
