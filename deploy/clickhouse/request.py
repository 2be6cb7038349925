"""The parameters of one HTTP request, as a ClickHouse server reads them from URL, headers and form."""

import base64
import binascii
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deploy.clickhouse.compression import choose
from deploy.clickhouse.errors import AUTHENTICATION_FAILED, BAD_ARGUMENTS, NOT_IMPLEMENTED, UNKNOWN_FORMAT, QueryError
from deploy.clickhouse.sessions import DEFAULT_TIMEOUT_S, LONGEST_TIMEOUT_S

# Parameters of the interface itself; every other one is a setting of the engine, which refuses those it doesn't know.
_OWN = frozenset(
    {
        "query", "database", "default_format", "user", "password", "quota_key", "session_id", "session_timeout",
        "session_check", "query_id", "compress", "decompress", "buffer_size", "wait_end_of_query", "stacktrace",
        "client_protocol_version", "close_session", "readonly", "role",
        # Settings of the engine that concern nothing but HTTP.
        "enable_http_compression", "send_progress_in_http_headers", "http_headers_progress_interval_ms",
        "cancel_http_readonly_queries_on_client_close",
    }
)  # fmt: skip
# The engine's log_comment carries our query id, by which a query can be cancelled.
_IGNORED = frozenset({"log_comment"})


@dataclass(frozen=True)
class QueryRequest:
    """What to run is in `query` and the body; this is how. `readonly` is 0, 1 or 2; `encoding` None for plain bytes."""

    query: str
    query_id: str
    database: str
    default_format: str
    settings: Mapping[str, str]
    parameters: Mapping[str, str]
    session: str
    session_timeout_s: float
    session_check: bool
    readonly: int
    wait_end: bool
    encoding: str | None


def read_request(method: str, pairs: Iterable[tuple[str, str]], headers: Mapping[str, str]) -> QueryRequest:
    """`pairs` of URL and form in order, the last of a name counts. Raises QueryError for what cannot be done."""
    values = dict(pairs)
    for name in ("compress", "decompress"):
        if _flag(values, name):
            raise QueryError.of(
                NOT_IMPLEMENTED,
                f"{name}=1 (blocks of the native protocol) is not supported here: use Accept-Encoding and "
                "Content-Encoding with zstd, lz4 or gzip",
            )
    if values.get("role"):
        raise QueryError.of(NOT_IMPLEMENTED, "roles do not exist in the embedded engine")
    # As on a server: GET only reads.
    readonly = _number(values, "readonly", 0)
    if readonly not in (0, 1, 2):
        raise QueryError.of(BAD_ARGUMENTS, f"readonly must be 0, 1 or 2, not {values['readonly']!r}")
    if method != "POST" and not readonly:
        readonly = 2
    # It becomes part of the SQL.
    default_format = values.get("default_format") or headers.get("X-ClickHouse-Format") or "TabSeparated"
    if not default_format.isidentifier():
        raise QueryError.of(UNKNOWN_FORMAT, f"Unknown format {default_format}")
    return QueryRequest(
        query=values.get("query", ""),
        query_id=values.get("query_id") or str(uuid.uuid4()),
        database=values.get("database") or headers.get("X-ClickHouse-Database", ""),
        default_format=default_format,
        settings={
            name: value
            for name, value in values.items()
            if name not in _OWN and name not in _IGNORED and not name.startswith("param_")
        },
        parameters={name: value for name, value in values.items() if name.startswith("param_")},
        session=values.get("session_id", ""),
        session_timeout_s=min(float(_number(values, "session_timeout", int(DEFAULT_TIMEOUT_S))), LONGEST_TIMEOUT_S),
        session_check=_flag(values, "session_check"),
        readonly=int(readonly),
        wait_end=_flag(values, "wait_end_of_query"),
        encoding=choose(headers.get("Accept-Encoding", "")) if _flag(values, "enable_http_compression", True) else None,
    )


def read_credentials(values: Mapping[str, str], headers: Mapping[str, str]) -> tuple[str, str]:
    """User and password, from ClickHouse's own headers, HTTP basic authentication or the URL; ("default", "") else."""
    if "X-ClickHouse-User" in headers or "X-ClickHouse-Key" in headers:
        return headers.get("X-ClickHouse-User") or "default", headers.get("X-ClickHouse-Key", "")
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            user, _, password = base64.b64decode(token, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise QueryError.of(AUTHENTICATION_FAILED, "the Authorization header is not valid") from None
        return user or "default", password
    if scheme:
        raise QueryError.of(
            AUTHENTICATION_FAILED, f"authentication by {scheme} is not supported, use user and password"
        )
    return values.get("user") or "default", values.get("password", "")


def _flag(values: Mapping[str, str], name: str, otherwise: bool = False) -> bool:
    value = values.get(name, "")
    return value.lower() not in ("0", "false") if value else otherwise


def _number(values: Mapping[str, str], name: str, otherwise: int) -> int:
    value = values.get(name, "")
    if not value:
        return otherwise
    if not value.isascii() or not value.isdigit():
        raise QueryError.of(BAD_ARGUMENTS, f"{name} must be a number, not {value!r}")
    return int(value)
