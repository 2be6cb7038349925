"""The workload's peer at the other end of the wire: `python -m tests.laboratory.peer serve|flood`.

serve  moves to a network namespace of its own and answers the workload there
flood  sends datagrams to this machine as fast as FLOOD_PER_S, from the namespace that it is started in
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from typing import Final

from tests.laboratory.wire import HERE, new_namespace

PORT: Final = 7070
FLOOD_PORT: Final = 7071
FLOOD_PER_S: Final = 40_000
TURN_S: Final = 0.01
HEADER: Final = 4


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """For each message, whose length comes first, as many bytes back."""
    try:
        while header := await reader.readexactly(HEADER):
            writer.write(header + await reader.readexactly(int.from_bytes(header, "big")))
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass  # the workload has gone away, or lost its patience
    finally:
        writer.close()


async def serve() -> None:
    """Answer for ever, on all addresses that the peer ever has."""
    async with await asyncio.start_server(answer, "0.0.0.0", PORT) as server:
        await server.serve_forever()


def flood() -> None:
    """Datagrams at an even rate, for ever."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect((HERE, FLOOD_PORT))
        content = bytes(64)
        due = time.monotonic()
        while True:
            for _ in range(int(FLOOD_PER_S * TURN_S)):
                try:
                    out.send(content)
                except OSError:
                    break
            due = max(due + TURN_S, time.monotonic() - TURN_S)
            time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    """Do what the argument says."""
    if sys.argv[1] == "flood":
        flood()
    new_namespace()
    asyncio.run(serve())


if __name__ == "__main__":
    main()
