"""Starts and stops the server process: port, engine, HTTP; SIGTERM lets running inserts finish."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from deploy.clickhouse.access import Access, is_loopback
from deploy.clickhouse.engine import DirectoryBusyError, Engine
from deploy.clickhouse.http import Interface

log = logging.getLogger(__name__)

DEFAULT_PORT = 8123
DEFAULT_MEMORY_BYTES = 512 << 20
_SWEEP_S = 5.0
_FINISH_S = 20.0


class ServerError(Exception):
    """The server cannot start; the text says why and what to do."""


@dataclass(frozen=True)
class ServerConfig:
    """Where it keeps its data, where it listens, what all queries together may hold in memory (bytes), who may ask."""

    directory: Path
    port: int = DEFAULT_PORT
    host: str = "127.0.0.1"
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    access: Access = field(default_factory=Access)


def serve(config: ServerConfig) -> None:
    """Serves until SIGTERM or SIGINT. Raises ServerError if it cannot start."""
    if config.access.password is None and not is_loopback(config.host):
        raise ServerError(
            f"listening on {config.host} lets other machines in, which needs a password: set "
            "REVEAL_CLICKHOUSE_PASSWORD or give --password-file, or listen on 127.0.0.1"
        )
    with _bound(config.host, config.port) as bound:
        try:
            engine = Engine(config.directory, config.memory_bytes)
        except DirectoryBusyError as error:
            raise ServerError(str(error)) from None
        except OSError as error:
            raise ServerError(f"the directory {config.directory} cannot be used: {error}") from None
        try:
            asyncio.run(_serve(engine, bound, config.access))
        finally:
            engine.close()
    log.info("stopped")


async def _serve(engine: Engine, bound: socket.socket, access: Access) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    interface = Interface(engine, access)
    runner = web.AppRunner(
        interface.app(), access_log=None, auto_decompress=False, handler_cancellation=True, shutdown_timeout=1.0
    )
    await runner.setup()
    site = web.SockSite(runner, bound)
    await site.start()
    host, port = bound.getsockname()[:2]
    log.info("ClickHouse %s answers http://%s:%d as process %d", engine.version, host, port, os.getpid())
    while not stop.is_set():
        interface.expire_sessions()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _SWEEP_S)
    log.info("stopping: running inserts finish first")
    await site.stop()
    await interface.close(_FINISH_S)
    await runner.cleanup()


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ServerError(f"cannot listen on {host}: {error}") from None
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise ServerError(
            f"cannot listen on {host}:{port}: {error.strerror or error}. If another program has the port "
            f"(`ss -ltnp 'sport = :{port}'` names it), stop it or give another --port"
        ) from None
    return bound
