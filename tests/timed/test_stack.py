"""`reveal up` as a user has it: all services, real Kafka and ClickHouse, this machine's telemetry."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from deploy.kafka.ports import free_ports
from deploy.stack.state import StackState, read_state
from schemas.settings import ClickHouseSettings
from sinks.warehouse.store import Store, StoreError

pytestmark = pytest.mark.stack

START_S = 60.0
SECOND_START_S = 15.0
RESIDENT_BYTES = 1.5e9


@dataclass
class Up:
    """`reveal up` in a directory of the test, on ports of its own."""

    directory: Path
    environ: dict[str, str]
    process: subprocess.Popen[bytes]

    @property
    def output(self) -> str:
        return (self.directory / "up.out").read_text()

    @property
    def state(self) -> StackState:
        state = read_state(self.directory)
        assert state is not None
        return state

    def pids(self) -> list[int]:
        return [service.pid for service in self.state.services.values() if service.pid is not None]

    def wait_ready(self) -> float:
        """Seconds until ready, from now."""
        began = time.monotonic()
        while (state := read_state(self.directory)) is None or state.pid != self.process.pid or state.state != "ready":
            assert self.process.poll() is None, self.output
            assert time.monotonic() < began + START_S, self.output
            time.sleep(0.02)
        return time.monotonic() - began

    def windows(self) -> int:
        """Verdicts in ClickHouse; 0 while there is no table."""
        store = Store(ClickHouseSettings(port=int(self.environ["REVEAL_STACK_CLICKHOUSE_PORT"])))
        try:
            return int(store.query("SELECT count() FROM verdicts", database="reveal").rows[0][0])
        except StoreError:
            return 0
        finally:
            store.close()

    def wait_windows(self, more: int) -> None:
        """Until so many more windows are there."""
        wanted, deadline = self.windows() + more, time.monotonic() + 40
        while self.windows() < wanted:
            assert time.monotonic() < deadline, self.output
            time.sleep(0.2)


def start(directory: Path, environ: dict[str, str]) -> Up:
    directory.mkdir(exist_ok=True)
    with (directory / "up.out").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "deploy.cli", "up"], env=environ, stdout=output, stderr=subprocess.STDOUT
        )
    return Up(directory, environ, process)


def reveal(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.cli", *arguments],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Directory and environment that all tests here share, so that the second start is one."""
    directory = tmp_path_factory.mktemp("stack") / "stack"
    kafka, controller, clickhouse = free_ports(3)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REVEAL_")} | {
        "REVEAL_STACK_DIRECTORY": str(directory),
        "REVEAL_STACK_KAFKA_PORT": str(kafka),
        "REVEAL_STACK_KAFKA_CONTROLLER_PORT": str(controller),
        "REVEAL_STACK_CLICKHOUSE_PORT": str(clickhouse),
    }
    return directory, environ


@pytest.fixture
def up(place: tuple[Path, dict[str, str]]) -> Iterator[Up]:
    one = start(*place)
    yield one
    if one.process.poll() is None:
        one.process.kill()
        one.process.wait()


def test_first_start_to_clean_stop(up: Up) -> None:
    up.wait_ready()
    up.wait_windows(3)
    pids = up.pids()
    assert len(pids) == 6

    second = reveal(up.environ, "up")
    assert second.returncode == 2
    assert f"a stack runs already in {up.directory} (pid {up.process.pid})" in second.stderr

    elsewhere = reveal(up.environ, "up", "--directory", f"{up.directory}-2")
    assert elsewhere.returncode == 2
    kafka = up.state.services["kafka"].pid
    assert f"port {up.environ['REVEAL_STACK_KAFKA_PORT']} is in use: process {kafka} (" in elsewhere.stderr
    assert "REVEAL_STACK_KAFKA_PORT=" in elsewhere.stderr
    assert len(elsewhere.stderr.splitlines()) == 3

    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(40) == 0
    assert not any(map(psutil.pid_exists, pids))
    assert up.state.state == "stopped"
    stopped = re.findall(r"  (\w+) +stopped$", up.output, re.MULTILINE)
    assert sorted(stopped) == ["agent", "alerts", "clickhouse", "kafka", "warehouse", "worker"]
    assert stopped.index("kafka") > max(stopped.index(name) for name in ("agent", "worker", "warehouse", "alerts"))
    assert stopped.index("clickhouse") > stopped.index("warehouse")
    assert reveal(up.environ, "up", "--status").returncode == 1


def test_second_start_is_quick_small_and_heals(up: Up) -> None:
    took = up.wait_ready()
    print(f"ready in {took:.1f} s")
    assert took <= SECOND_START_S

    up.wait_windows(3)
    status = reveal(up.environ, "up", "--status")
    assert status.returncode == 0, status.stdout
    resident = sum(psutil.Process(pid).memory_info().rss for pid in (up.process.pid, *up.pids()))
    print(f"{resident / 1e6:.0f} MB resident\n{status.stdout}")
    assert resident <= RESIDENT_BYTES
    told = re.search(r"^together +(\d+)$", status.stdout, re.MULTILINE)
    assert told is not None
    assert int(told[1]) * 1e6 == pytest.approx(resident, rel=0.1)

    for name in ("worker", "kafka"):
        pid = up.state.services[name].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while not (up.state.services[name].restarts == 1 and up.state.state == "ready"):
            assert time.monotonic() < deadline, up.output
            time.sleep(0.05)
        assert f"{name} " in up.output
        assert "died (killed by SIGKILL" in up.output
    up.wait_windows(3)

    pids = up.pids()
    up.process.kill()
    up.process.wait()
    deadline = time.monotonic() + 10
    while any(map(psutil.pid_exists, pids)):
        assert time.monotonic() < deadline, "children outlived their supervisor"
        time.sleep(0.05)
