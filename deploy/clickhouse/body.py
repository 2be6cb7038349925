"""A request's text and rows as one stream: the query of the URL, then the body, unpacked as it arrives."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp

from deploy.clickhouse.compression import Decompressor
from deploy.clickhouse.errors import QUERY_IS_TOO_LARGE, SOCKET_TIMEOUT, QueryError

# The statement before an INSERT's rows must lie within this, as with a server's max_query_size.
HEAD_BYTES = 262_144
# A statement without rows, or one whose rows must be read as SQL, is held whole.
WHOLE_BYTES = 64 << 20
# A client that stalls holds one of the few turns.
RECEIVE_S = 60.0


class Body:
    """Read `head` first, then either `rest` or `whole`."""

    def __init__(self, query: str, content: aiohttp.StreamReader, encoding: str) -> None:
        self._start = query.encode(errors="surrogateescape") + b"\n" if query else b""
        self._pieces = _unpacked(content, encoding)
        self._head = b""

    async def head(self) -> bytes:
        """The beginning: all of it if it is short. Raises QueryError if the body is packed badly."""
        head = bytearray(self._start)
        while len(head) < HEAD_BYTES:
            piece = await anext(self._pieces, None)
            if piece is None:
                break
            head += piece
        self._head = bytes(head)
        return self._head

    async def rest(self, offset: int) -> AsyncIterator[bytes]:
        """Everything from that offset in the head on. Raises QueryError as `head` does."""
        yield self._head[offset:]
        async for piece in self._pieces:
            yield piece

    async def whole(self) -> bytes:
        """Everything. Raises QueryError if that is too much."""
        text = bytearray(self._head)
        async for piece in self._pieces:
            text += piece
            if len(text) > WHOLE_BYTES:
                raise QueryError.of(QUERY_IS_TOO_LARGE, f"the statement is longer than {WHOLE_BYTES} bytes")
        return bytes(text)


async def _unpacked(content: aiohttp.StreamReader, encoding: str) -> AsyncIterator[bytes]:
    encoding = encoding.strip().lower()
    decompressor = None if encoding in ("", "identity") else Decompressor(encoding)
    while True:
        try:
            async with asyncio.timeout(RECEIVE_S):
                piece = await content.readany()
        except TimeoutError:
            raise QueryError.of(SOCKET_TIMEOUT, f"no byte of the body came for {RECEIVE_S:.0f} s") from None
        if not piece:
            break
        if decompressor is None:
            yield piece
        else:
            for unpacked in decompressor.feed(piece):
                yield unpacked
    if decompressor is not None:
        decompressor.finish()
