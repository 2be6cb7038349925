"""Runs one statement of a request in the engine's threads: rows stream in by INSERT, results stream out by a pipe.

Results go through a pipe because the engine then writes one document of the asked format, in bounded memory and with
back-pressure; its own streaming call gives a document for every chunk, which no client could put together.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncIterable, Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

from deploy.clickhouse.engine import Connection, Result
from deploy.clickhouse.errors import QueryError
from deploy.clickhouse.statement import Statement

log = logging.getLogger(__name__)

_LUMP = 1 << 20
_PIPE = 1 << 20
_KILL_AGAIN_S = 0.5
_T = TypeVar("_T")


class Output:
    """A running statement: `read` its output to the end, then `result`. `cancel` it, or let it finish."""

    def __init__(self, reader: asyncio.StreamReader, pipe: asyncio.ReadTransport, running: asyncio.Future[Result]):
        self._reader = reader
        self._pipe = pipe
        self._running = running

    @classmethod
    async def of(cls, connection: Connection, statement: Statement, output_format: str, pool: Executor) -> "Output":
        """Starts a statement whose output is of any length."""
        loop = asyncio.get_running_loop()
        read_end, write_end = os.pipe()
        with contextlib.suppress(OSError):  # the user's quota of pipe memory may be spent; any size works
            fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE)
        reader = asyncio.StreamReader(limit=_PIPE)
        try:
            pipe, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
            )
        except BaseException:
            os.close(write_end)
            raise
        sql = (
            f"{statement.body.decode(errors='surrogateescape')}\nINTO OUTFILE '/proc/self/fd/{write_end}' TRUNCATE "
            f"COMPRESSION 'none' FORMAT {output_format} {statement.tail.decode(errors='surrogateescape')}"
        )

        def run() -> Result:
            try:
                return connection.run(sql, output_format)
            finally:
                os.close(write_end)

        return cls(reader, pipe, loop.run_in_executor(pool, run))

    async def read(self) -> bytes:
        """Some more bytes, none at the end."""
        return await self._reader.read(_LUMP)

    async def result(self) -> Result:
        """Its figures, at the end. Raises QueryError if it failed, whatever was read before."""
        return await settled(self._running)

    async def cancel(self, kill: Callable[[], Awaitable[None]]) -> None:
        """Ends it and returns when the engine has let go of it."""
        self._pipe.close()
        while not self._running.done():
            # A query that is only just starting is not there to be killed yet.
            try:
                await kill()
            except QueryError as error:
                log.warning("a query whose client is gone could not be cancelled, trying again: %s", error)
            await asyncio.wait([self._running], timeout=_KILL_AGAIN_S)
        if not self._running.cancelled():
            self._running.exception()

    def close(self) -> None:
        """Gives the pipe back."""
        self._pipe.close()


async def insert(connection: Connection, statement: Statement, rows: AsyncIterable[bytes], pool: Executor) -> Result:
    """Streams rows into a table. Raises QueryError; then, or when cancelled, what is not committed is dropped."""
    loop = asyncio.get_running_loop()
    running = await settled(loop.run_in_executor(pool, connection.insert, statement.text, statement.format or "Values"))
    try:
        lump = bytearray()
        async for piece in rows:
            lump += piece
            if len(lump) >= _LUMP:
                await settled(loop.run_in_executor(pool, running.append, bytes(lump)))
                lump.clear()
        if lump:
            await settled(loop.run_in_executor(pool, running.append, bytes(lump)))
    except BaseException:
        with contextlib.suppress(QueryError):
            await settled(loop.run_in_executor(pool, running.cancel))
        raise
    return await settled(loop.run_in_executor(pool, running.finish))


async def settled(future: asyncio.Future[_T]) -> _T:
    """Waits for a step to end even when cancelled, however often, since the connection is in use until then."""
    interrupted = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            interrupted = True
    if interrupted:
        if not future.cancelled():
            future.exception()
        raise asyncio.CancelledError
    return future.result()
