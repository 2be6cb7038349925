"""The steady workload: `python -m tests.laboratory.workload train|disk|traffic DIRECTORY`. Each runs until it is ended.

All of it together takes some 40 % of one core, so that two are far from full.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from tests.laboratory.peer import FLOOD_PORT, HEADER, PORT
from tests.laboratory.wire import HERE, PEER, SECOND_PEER

STEP_S: Final = 0.11
"""No multiple of the period of the samples: what a step does would lie in one sample or in its neighbour, as chance has
it, until a fault has shifted the steps.
"""
COMPUTE_S: Final = 0.03
SIZE: Final = 192
FILE: Final = 64 << 20
CHUNK: Final = 256 << 10
SYNC_EVERY: Final = 5
GRADIENTS: Final = 192 << 10
BEATS: Final = 8
BEAT: Final = 256
BEAT_S: Final = 0.25
PATIENCE_S: Final = 2.5
PARTS: Final = ("train", "disk", "traffic")


def steps(clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Nine turns a second, at even times; those that come late are not made up for."""
    due = clock()
    while True:
        yield
        due = max(due + STEP_S, clock())
        sleep(max(0.0, due - clock()))


def train(directory: Path) -> None:
    """Gradient descent of a small linear model, a fifth of each step."""
    random = np.random.default_rng(0)
    x, weights = random.normal(size=(SIZE, SIZE)), random.normal(size=(SIZE, SIZE))
    goal = x @ random.normal(size=(SIZE, SIZE))
    for _ in steps():
        end = time.process_time() + COMPUTE_S
        while time.process_time() < end:
            weights -= 1e-4 * (x.T @ (x @ weights - goal))


def disk(directory: Path) -> None:
    """Writes a piece of a file in each step, which it syncs twice a second, and reads another past the page cache."""
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file, mmap.mmap(-1, CHUNK) as page:
        noise = os.urandom(CHUNK)
        for _ in range(FILE // CHUNK):
            file.write(noise)
        os.fsync(file.fileno())
        reader = _direct(f"/proc/self/fd/{file.fileno()}")
        pieces = FILE // CHUNK
        for number, _ in enumerate(steps()):
            os.pwrite(file.fileno(), noise, number % pieces * CHUNK)
            if number % SYNC_EVERY == 0:
                os.fdatasync(file.fileno())
            os.preadv(reader, [page], number * 7 % pieces * CHUNK)


def _direct(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # a file system that knows none
        return os.open(path, os.O_RDONLY)


async def exchange() -> None:
    """Sends gradients to the peer in each step and waits for its own."""
    reader, writer = await _connect(PEER, PATIENCE_S)
    message = GRADIENTS.to_bytes(HEADER, "big") + bytes(GRADIENTS)
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        writer.write(message)
        await reader.readexactly(len(message))
        due = max(due + STEP_S, loop.time())
        await asyncio.sleep(due - loop.time())


async def beat(number: int) -> None:
    """Tells the second peer that it is alive; connects anew when it does not answer."""
    message = BEAT.to_bytes(HEADER, "big") + bytes(BEAT)
    await asyncio.sleep(BEAT_S * number / BEATS)
    while True:
        writer = None
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            reader, writer = await _connect(SECOND_PEER, PATIENCE_S)
            while True:
                writer.write(message)
                await asyncio.wait_for(reader.readexactly(len(message)), PATIENCE_S)
                await asyncio.sleep(BEAT_S)
        if writer is not None:
            writer.transport.abort()
        await asyncio.sleep(BEAT_S)


async def _connect(address: str, patience_s: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.wait_for(asyncio.open_connection(address, PORT), patience_s)


async def traffic() -> None:
    """Gradients, signs of life, and a socket for datagrams that is not read."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unread:
        unread.bind((HERE, FLOOD_PORT))
        await asyncio.gather(exchange(), *(beat(number) for number in range(BEATS)))


def main() -> None:
    """Run one part."""
    part, directory = sys.argv[1:]
    if part == "traffic":
        asyncio.run(traffic())
    {"train": train, "disk": disk}[part](Path(directory))


if __name__ == "__main__":
    main()
