"""The real ClickHouse for tests: one server for the session, and further ones for tests that kill theirs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest

START_S = 120.0
STOP_S = 60.0


class ClickHouseProcess:
    """A `reveal clickhouse` process on a free loopback port. Its directory outlives it: `start` again after a kill."""

    def __init__(self, directory: Path, environ: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port = _free_port()
        self._environ = dict(environ or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def command(self, *more: str) -> list[str]:
        here = ["--directory", str(self.directory), "--port", str(self.port)]
        return [sys.executable, "-m", "deploy.cli", "clickhouse", *here, *more]

    def start(self) -> Self:
        """Returns when it answers a ping."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=os.environ | self._environ
            )
        until = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise AssertionError(f"ClickHouse does not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)
        return self

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM; its exit status, also if it has ended already."""
        assert self._process is not None, "not started"
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def resident_bytes(self) -> int:
        """Memory it holds in pages of its own and of files."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ping", timeout=2) as answer:
                return bool(answer.read() == b"Ok.\n")
        except (urllib.error.URLError, OSError):
            return False


MakeClickHouse = Callable[..., ClickHouseProcess]


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseProcess]:
    """A running server that all tests share: make databases of your own, leave the server alone."""
    server = ClickHouseProcess(tmp_path_factory.mktemp("clickhouse")).start()
    yield server
    server.stop()


@pytest.fixture
def make_clickhouse(tmp_path: Path) -> Iterator[MakeClickHouse]:
    """Makes running servers for this test alone; `environ` adds to the environment, `start=False` leaves it to you."""
    servers: list[ClickHouseProcess] = []

    def make(environ: Mapping[str, str] | None = None, *, start: bool = True) -> ClickHouseProcess:
        server = ClickHouseProcess(tmp_path / f"clickhouse-{len(servers)}", environ)
        servers.append(server)
        return server.start() if start else server

    yield make
    for server in servers:
        server.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
