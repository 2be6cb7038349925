"""One answer on the wire: its headers, its compression, and errors, also those that come in the middle of a result."""

import asyncio
import json
import secrets
import tempfile
from typing import IO

from aiohttp import hdrs, web

from deploy.clickhouse.compression import COMPRESSORS, Compressor
from deploy.clickhouse.engine import Engine, Result
from deploy.clickhouse.errors import QueryError
from deploy.clickhouse.execution import Output
from deploy.clickhouse.request import QueryRequest

# An error within the first bytes still gets a proper status, and a short result its figures.
_HEAD_BYTES = 65_536
_SPOOL_BYTES = 4 << 20
_PIECE = 1 << 20
# A client that stalls holds one of the few turns.
_SEND_S = 300.0
_CONTENT_TYPES = {
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "TSV": "text/tab-separated-values; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "CSVWithNames": "text/csv; charset=UTF-8; header=present",
    "JSON": "application/json; charset=UTF-8",
    "JSONCompact": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "XML": "application/xml; charset=UTF-8",
    "Native": "application/octet-stream",
    "RowBinary": "application/octet-stream",
    "Arrow": "application/vnd.apache.arrow.file",
    "ArrowStream": "application/vnd.apache.arrow.stream",
    "Parquet": "application/vnd.apache.parquet",
}


class Exchange:
    """Answers one request once: by `whole`, by `stream`, or by `fail`, which may also come after `stream` began."""

    def __init__(self, request: web.Request, engine: Engine) -> None:
        self._request = request
        self._engine = engine
        self._response: web.StreamResponse | None = None
        self._compressor: Compressor | None = None
        self._tag = secrets.token_hex(8)

    async def whole(self, result: Result, asked: QueryRequest, output_format: str) -> web.StreamResponse:
        """Answers with a result that is held in memory."""
        await self._begin(asked, output_format, result)
        await self._write(result.output)
        return await self._end()

    async def stream(self, output: Output, asked: QueryRequest, output_format: str) -> web.StreamResponse:
        """Answers while the result comes. Raises QueryError, before or after bytes have gone out."""
        limit = None if asked.wait_end else _HEAD_BYTES
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=str(self._engine.scratch)) as held:
            complete = await _gather(output, held, limit)
            # A closed pipe is not yet success: the engine closes it after a failure just as well.
            result = await output.result() if complete else None
            await self._begin(asked, output_format, result)
            held.seek(0)
            while piece := held.read(_PIECE):
                await self._write(piece)
        if result is None:
            while piece := await output.read():
                await self._write(piece)
            await output.result()
        return await self._end()

    async def fail(self, error: QueryError, query_id: str) -> web.StreamResponse:
        """Answers with an error; within a result, marks it there and breaks the connection, as a server does."""
        text = str(error).rstrip()
        if "(version " not in text:
            text += f" (version {self._engine.version})"
        if self._response is None:
            headers = self._headers(query_id) | {
                "X-ClickHouse-Exception-Code": str(error.code),
                hdrs.CONTENT_TYPE: "text/plain; charset=UTF-8",
            }
            if error.status == web.HTTPUnauthorized.status_code:
                headers[hdrs.WWW_AUTHENTICATE] = 'Basic realm="ClickHouse"'
            return web.Response(status=error.status, text=text + "\n", headers=headers)
        message = text.encode(errors="surrogateescape")
        tag = self._tag.encode()
        await self._write(
            b"\r\n__exception__\r\n%b\r\n%b\n%d %b\r\n__exception__\r\n" % (tag, message, len(message) + 1, tag)
        )
        if self._compressor is not None:
            await self._response.write(self._compressor.finish())
        # No final chunk: nobody may take what went out for a whole result.
        if self._request.transport is not None:
            self._request.transport.close()
        return self._response

    def _headers(self, query_id: str) -> dict[str, str]:
        return {
            "X-ClickHouse-Query-Id": query_id,
            "X-ClickHouse-Server-Display-Name": self._engine.host,
            "X-ClickHouse-Timezone": self._engine.timezone,
        }

    async def _begin(self, asked: QueryRequest, output_format: str, result: Result | None) -> None:
        headers = self._headers(asked.query_id) | {
            "X-ClickHouse-Format": output_format,
            "X-ClickHouse-Summary": _summary(result),
            "X-ClickHouse-Exception-Tag": self._tag,
            hdrs.CONTENT_TYPE: _CONTENT_TYPES.get(output_format, "text/plain; charset=UTF-8"),
        }
        # A statement without output has nothing to pack, and clients that did not look expect nothing.
        if asked.encoding and not (result is not None and result.result_rows == 0 and not result.output):
            self._compressor = COMPRESSORS[asked.encoding]()
            headers[hdrs.CONTENT_ENCODING] = asked.encoding
        self._response = web.StreamResponse(headers=headers)
        self._response.enable_chunked_encoding()
        await self._response.prepare(self._request)

    async def _write(self, data: bytes) -> None:
        assert self._response is not None
        if self._compressor is not None:
            data = self._compressor.compress(data)
        if not data:
            return
        try:
            async with asyncio.timeout(_SEND_S):
                await self._response.write(data)
        except TimeoutError:
            raise ConnectionResetError(f"the client took no byte for {_SEND_S:.0f} s") from None

    async def _end(self) -> web.StreamResponse:
        assert self._response is not None
        if self._compressor is not None:
            await self._response.write(self._compressor.finish())
        await self._response.write_eof()
        return self._response


async def _gather(output: Output, held: IO[bytes], limit: int | None) -> bool:
    """Takes output up to a limit in bytes; True if that was all of it."""
    size = 0
    while limit is None or size < limit:
        piece = await output.read()
        if not piece:
            return True
        held.write(piece)
        size += len(piece)
    return False


def _summary(result: Result | None) -> str:
    """Figures as strings, as a server sends them. They are zero while a result is still on its way."""
    figures = result or Result(b"", 0, 0, 0, 0, 0, 0, 0)
    return json.dumps(
        {
            "read_rows": str(figures.read_rows),
            "read_bytes": str(figures.read_bytes),
            "written_rows": str(figures.written_rows),
            "written_bytes": str(figures.written_bytes),
            "total_rows_to_read": str(figures.read_rows),
            "result_rows": str(figures.result_rows),
            "result_bytes": str(figures.result_bytes),
            "elapsed_ns": str(figures.elapsed_ns),
        }
    )
