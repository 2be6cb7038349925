"""Compression of bodies, both ways, as streams: gzip, deflate, zstd and lz4 frames."""

import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import lz4.frame
import zstandard

from deploy.clickhouse.errors import CANNOT_DECOMPRESS, NOT_IMPLEMENTED, QueryError

# A kilobyte of zstd can hold 32 MB of zeros; small slices bound what one step may unpack to.
_SLICE = 4096
_UNPACKED = 1 << 20


class Compressor(Protocol):
    """Bytes in, compressed bytes out; `finish` ends the frame."""

    def compress(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class _Deflate:
    def __init__(self, window: int) -> None:
        self._stream = zlib.compressobj(1, wbits=window)

    def compress(self, data: bytes) -> bytes:
        return self._stream.compress(data)

    def finish(self) -> bytes:
        return self._stream.flush()


class _Zstd:
    def __init__(self) -> None:
        self._stream = zstandard.ZstdCompressor(level=1).compressobj()

    def compress(self, data: bytes) -> bytes:
        return self._stream.compress(data)

    def finish(self) -> bytes:
        return self._stream.flush()


class _Lz4:
    def __init__(self) -> None:
        self._stream = lz4.frame.LZ4FrameCompressor()
        self._head: bytes = self._stream.begin()

    def compress(self, data: bytes) -> bytes:
        head, self._head = self._head, b""
        packed: bytes = self._stream.compress(data)
        return head + packed

    def finish(self) -> bytes:
        head, self._head = self._head, b""
        packed: bytes = self._stream.flush()
        return head + packed


# In the order in which they are preferred when a client takes several.
COMPRESSORS: dict[str, Callable[[], Compressor]] = {
    "zstd": _Zstd,
    "lz4": _Lz4,
    "gzip": lambda: _Deflate(31),
    "deflate": lambda: _Deflate(15),
}


def choose(accept_encoding: str) -> str | None:
    """The encoding to answer in, from an Accept-Encoding header; None for plain bytes."""
    offered = {}
    for part in accept_encoding.lower().split(","):
        name, _, weight = part.strip().partition(";")
        offered[name.strip()] = weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return next((name for name in COMPRESSORS if offered.get(name, False)), None)


class _ZlibDecoder:
    def __init__(self, window: int) -> None:
        self._stream = zlib.decompressobj(wbits=window)
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return self._stream.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data and not self._stream.eof:
            yield self._stream.decompress(data, _UNPACKED)
            data = self._stream.unconsumed_tail
        self.unused_data = self._stream.unused_data


class _ZstdDecoder:
    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor().decompressobj()
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return self._stream.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _SLICE):
            yield self._stream.decompress(data[start : start + _SLICE])
            if self._stream.eof:
                self.unused_data = self._stream.unused_data + data[start + _SLICE :]
                return


class _Lz4Decoder:
    def __init__(self) -> None:
        self._stream = lz4.frame.LZ4FrameDecompressor()
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return bool(self._stream.eof)

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield self._stream.decompress(data, _UNPACKED)
        while not self._stream.eof and not self._stream.needs_input:
            yield self._stream.decompress(b"", _UNPACKED)
        self.unused_data = self._stream.unused_data or b""


class _Decoder(Protocol):
    unused_data: bytes

    @property
    def eof(self) -> bool: ...

    def feed(self, data: bytes) -> Iterator[bytes]: ...


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    "gzip": lambda: _ZlibDecoder(31),
    "deflate": lambda: _ZlibDecoder(47),
    "zstd": _ZstdDecoder,
    "lz4": _Lz4Decoder,
}


class Decompressor:
    """Unpacks one body, which may be several frames after one another. Raises QueryError on bytes that are no frame."""

    def __init__(self, encoding: str) -> None:
        if encoding not in _DECODERS:
            known = ", ".join(_DECODERS)
            raise QueryError.of(NOT_IMPLEMENTED, f"Content-Encoding {encoding!r} is not supported, use one of {known}")
        self._encoding = encoding
        self._decoder: _Decoder | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bytes that `data` unpacks to, in pieces of bounded size."""
        try:
            while data:
                if self._decoder is None:
                    self._decoder = _DECODERS[self._encoding]()
                yield from self._decoder.feed(data)
                if not self._decoder.eof:
                    return
                data, self._decoder = self._decoder.unused_data, None
        except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
            raise QueryError.of(CANNOT_DECOMPRESS, f"the body is not valid {self._encoding}: {error}") from None

    def finish(self) -> None:
        """Raises QueryError if the body ended within a frame."""
        if self._decoder is not None:
            raise QueryError.of(CANNOT_DECOMPRESS, f"the {self._encoding} body ends within a frame")
