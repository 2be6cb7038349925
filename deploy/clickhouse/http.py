"""Answers the ClickHouse HTTP interface.

Differences from a server, all of them refused loudly: `compress=1`, `decompress=1`, roles, external data, INSERT ...
SELECT FROM input(), and query ids of the engine itself (KILL QUERY needs `Settings['log_comment']`, where ours is).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import aiohttp
from aiohttp import hdrs, web

from deploy.clickhouse.access import Access, refuse_foreign_pages
from deploy.clickhouse.body import Body
from deploy.clickhouse.engine import READER, Connection, Engine
from deploy.clickhouse.errors import (
    ACCESS_DENIED,
    BAD_ARGUMENTS,
    NOT_IMPLEMENTED,
    QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING,
    READONLY,
    SERVER_SHUTS_DOWN,
    SYNTAX_ERROR,
    TOO_MANY_SIMULTANEOUS_QUERIES,
    QueryError,
)
from deploy.clickhouse.exchange import Exchange
from deploy.clickhouse.execution import Output, insert, settled
from deploy.clickhouse.request import QueryRequest, read_credentials, read_request
from deploy.clickhouse.sessions import Sessions
from deploy.clickhouse.statement import Statement, parse

log = logging.getLogger(__name__)

_PING_S = 5.0
# The rest is short; and EXPLAIN would take the clause that streams for a part of what it explains.
_OF_ANY_LENGTH = ("SELECT", "WITH", "FROM", "(")
# Ways out that the engine guards by no grant: the scalar function file(), and SQL or objects hidden in a string.
_UNGUARDED = ("file", "eval", "python")
_T = TypeVar("_T")


class Interface:
    """The HTTP side of one engine. `concurrency` statements run at once, further ones wait `patience_s` for a turn."""

    def __init__(self, engine: Engine, access: Access, concurrency: int = 16, patience_s: float = 30.0) -> None:
        self._engine = engine
        self._access = access
        self._patience_s = patience_s
        self._turns = asyncio.Semaphore(concurrency)
        self._pool = ThreadPoolExecutor(concurrency, "query")
        # Pings and cancellations never wait behind queries.
        self._control = ThreadPoolExecutor(2, "control")
        self._sessions = Sessions(engine.connect)
        self._running: dict[str, asyncio.Task[object]] = {}
        self._reading: set[str] = set()
        self._closing = False

    def app(self) -> web.Application:
        """The application, ready to be served with `auto_decompress=False` and `handler_cancellation=True`."""
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route(hdrs.METH_ANY, "/", self._root)
        app.router.add_get("/ping", self._ping)
        app.router.add_get("/replicas_status", self._ping)
        return app

    async def close(self, patience_s: float) -> None:
        """Takes no more statements, cancels those that read, waits for those that write, closes all connections."""
        self._closing = True
        for query_id in list(self._reading):
            self._running[query_id].cancel()
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=patience_s)
        for query_id, task in list(self._running.items()):
            log.warning("query %s did not end within %.0f s and is cancelled", query_id, patience_s)
            await self._kill(query_id)
            task.cancel()
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=2)
        self._sessions.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._control.shutdown(wait=False, cancel_futures=True)

    def expire_sessions(self) -> None:
        """Closes sessions past their time-out; to be called now and then."""
        self._sessions.expire()

    async def _ping(self, _: web.Request) -> web.Response:
        try:
            alive = await asyncio.wait_for(self._on_control(self._engine.ping), _PING_S)
        except (TimeoutError, QueryError) as error:
            log.error("the engine does not answer a ping: %s", error or "time-out")
            alive = False
        return web.Response(text="Ok.\n") if alive else web.Response(status=503, text="the engine does not answer\n")

    async def _root(self, request: web.Request) -> web.StreamResponse:
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_POST):
            return web.Response(status=501, text="use GET, HEAD or POST\n")
        if request.method != hdrs.METH_POST and "query" not in request.query:
            return web.Response(text="Ok.\n")
        query_id = request.query.get("query_id", "")
        exchange = Exchange(request, self._engine)
        try:
            user = self._authenticate(request)
            if self._closing:
                raise QueryError.of(SERVER_SHUTS_DOWN, "the server shuts down")
            form = await self._form(request)
            asked = read_request(request.method, [*request.query.items(), *form], request.headers)
            query_id = asked.query_id
            body = Body(asked.query, request.content, request.headers.get(hdrs.CONTENT_ENCODING, ""))
            async with self._turn(query_id):
                return await self._statement(user, asked, body, exchange)
        except QueryError as error:
            return await exchange.fail(error, query_id)
        except (ConnectionError, aiohttp.ClientPayloadError) as error:
            log.info("the client of query %s went away: %s", query_id, error)
            return web.Response(status=400)

    def _authenticate(self, request: web.Request) -> str:
        if self._access.password is None:
            refuse_foreign_pages(request.headers)
        user, password = read_credentials(request.query, request.headers)
        self._access.check(user, password)
        return user

    async def _form(self, request: web.Request) -> list[tuple[str, str]]:
        """Query and parameters may come as a multipart form."""
        if request.content_type != "multipart/form-data":
            return []
        try:
            fields = await request.post()
        except ValueError as error:
            raise QueryError.of(BAD_ARGUMENTS, f"the multipart body cannot be read: {error}") from None
        pairs = [(name, value) for name, value in fields.items() if isinstance(value, str)]
        if len(pairs) < len(fields):
            raise QueryError.of(NOT_IMPLEMENTED, "external data is not supported: use a temporary table in a session")
        return pairs

    @contextlib.asynccontextmanager
    async def _turn(self, query_id: str) -> AsyncIterator[None]:
        if query_id in self._running:
            raise QueryError.of(QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING, f"Query with id = {query_id} is already running")
        try:
            await asyncio.wait_for(self._turns.acquire(), self._patience_s)
        except TimeoutError:
            raise QueryError.of(TOO_MANY_SIMULTANEOUS_QUERIES, "Too many simultaneous queries, try later") from None
        task = asyncio.current_task()
        assert task is not None
        self._running[query_id] = task
        try:
            yield
        finally:
            self._running.pop(query_id, None)
            self._reading.discard(query_id)
            self._turns.release()

    async def _statement(self, user: str, asked: QueryRequest, body: Body, exchange: Exchange) -> web.StreamResponse:
        head = await body.head()
        statement = parse(head)
        rows = statement.data
        by_text = rows is not None and statement.format == "Values" and asked.parameters
        if rows is None or by_text:
            text = await body.whole()
            statement = statement if len(text) == len(head) else parse(text)
        async with self._connection(user, asked) as connection:
            kind = connection.classify(statement.text) if rows is None else "MUTATING"
            if asked.readonly or user == READER:
                _refuse_writing(kind, statement)
            if user == READER:
                for name in _UNGUARDED:
                    if statement.calls(name):
                        raise QueryError.of(ACCESS_DENIED, f"{user}: Not enough privileges to call {name}()")
            if rows is None and kind == "READ_ONLY" and statement.verb in _OF_ANY_LENGTH:
                return await self._answer(connection, statement, asked, exchange)
            output_format = statement.format or asked.default_format
            if by_text:
                # Parameters among the rows are known to the engine only where it reads them as SQL.
                sql = text.decode(errors="surrogateescape")
                result = await self._on_pool(connection.run, sql, output_format)
            elif rows is not None:
                result = await insert(connection, statement, body.rest(rows), self._pool)
            else:
                result = await self._on_pool(connection.run, statement.text, output_format)
        return await exchange.whole(result, asked, output_format)

    @contextlib.asynccontextmanager
    async def _connection(self, user: str, asked: QueryRequest) -> AsyncIterator[Connection]:
        """A connection with the request's settings: one of its own, or the session's, put back as it was."""
        settings = {**asked.settings, **asked.parameters, "log_comment": asked.query_id}
        if not asked.session:
            opening = asyncio.get_running_loop().run_in_executor(self._pool, self._open, user, asked, settings)
            try:
                connection = await settled(opening)
            except asyncio.CancelledError:
                if not opening.cancelled() and opening.exception() is None:
                    opening.result().close()
                raise
            try:
                yield connection
            finally:
                # Off the loop, and also when this task is cancelled.
                await settled(asyncio.get_running_loop().run_in_executor(self._pool, connection.close))
            return
        session = self._sessions.take(user, asked.session, asked.session_timeout_s, asked.session_check)
        connection = session.connection
        try:
            names = list(asked.settings)
            before = await self._on_pool(connection.values, names) if names else {}
            database = await self._on_pool(connection.database) if asked.database else ""
            try:
                await self._on_pool(_prepare, connection, asked, settings)
                yield connection
            finally:
                if before:
                    await self._on_pool(connection.set, before)
                if database:
                    await self._on_pool(connection.use, database)
        finally:
            self._sessions.give_back(session)

    def _open(self, user: str, asked: QueryRequest, settings: Mapping[str, str]) -> Connection:
        connection = self._engine.connect(user)
        try:
            _prepare(connection, asked, settings)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _answer(
        self, connection: Connection, statement: Statement, asked: QueryRequest, exchange: Exchange
    ) -> web.StreamResponse:
        output_format = statement.format or asked.default_format
        self._reading.add(asked.query_id)
        output = await Output.of(connection, statement, output_format, self._pool)
        try:
            return await exchange.stream(output, asked, output_format)
        except BaseException:
            # As a task: the client's going may cancel this one a second time.
            await settled(asyncio.ensure_future(output.cancel(lambda: self._kill(asked.query_id))))
            raise
        finally:
            output.close()

    async def _kill(self, query_id: str) -> None:
        await self._on_control(self._engine.kill, query_id)

    async def _on_pool(self, step: Callable[..., _T], *arguments: object) -> _T:
        return await settled(asyncio.get_running_loop().run_in_executor(self._pool, step, *arguments))

    async def _on_control(self, step: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._control, step, *arguments)


def _prepare(connection: Connection, asked: QueryRequest, settings: Mapping[str, str]) -> None:
    if asked.database:
        connection.use(asked.database)
    connection.set(settings)
    # For good: the engine takes it back from nobody. So a session, which outlives the request, relies on the parser.
    if asked.readonly and not asked.session and connection.user != READER:
        connection.set({"readonly": str(asked.readonly)})


def _refuse_writing(kind: str, statement: Statement) -> None:
    """The engine's read-only mode lets rows through into files, and SET ROLE; its parser tells those apart."""
    if kind == "READ_ONLY" or statement.verb == "USE" or statement.sets_only_settings:
        return
    if kind == "UNKNOWN":
        raise QueryError.of(SYNTAX_ERROR, "Syntax error: the statement cannot be parsed")
    raise QueryError.of(READONLY, "Cannot execute query in readonly mode")
