"""What stands around the supervisor: ports, lock, state, health checks, logs, ready files."""

from __future__ import annotations

import asyncio
import http.server
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import psutil
import pytest

from deploy import logs
from deploy.kafka.ports import free_ports
from deploy.process import describe_exit, start_bound
from deploy.ready import ReadyFile
from deploy.stack import status
from deploy.stack.errors import StackError
from deploy.stack.foreground import welcome
from deploy.stack.health import Heartbeat, HttpCheck
from deploy.stack.ports import check_ports, holder
from deploy.stack.services import stack
from deploy.stack.state import ServiceState, StackState, is_locked, lock, read_state, resident_bytes
from schemas.settings import SettingsError
from tests.unit.deploy.supervised import until


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        yield server.getsockname()[1]


def test_busy_port_names_its_holder_and_the_way_out(listener: int) -> None:
    with pytest.raises(StackError) as caught:
        check_ports({"REVEAL_STACK_KAFKA_PORT": listener}, patience_s=0)
    assert f"port {listener} is in use: process {os.getpid()} (" in str(caught.value)
    assert "REVEAL_STACK_KAFKA_PORT=" in str(caught.value)


def test_holder_is_found_though_one_of_its_files_is_closed_meanwhile() -> None:
    with open(os.devnull) as before, socket.create_server(("127.0.0.1", 0)) as server:
        number = before.fileno()
        assert number < server.fileno()
        before.close()  # whoever lists the open files of this process has this one open, and closed when they are read
        found = holder(server.getsockname()[1])
    assert found is not None
    assert found[0] == os.getpid()


def test_all_busy_ports_are_told_at_once(listener: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(StackError) as caught:
        check_ports({"A": listener, "B": other.getsockname()[1]}, patience_s=0)
    assert len(str(caught.value).splitlines()) == 2


def test_port_that_becomes_free_is_waited_for() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    timer = threading.Timer(0.3, server.close)
    timer.start()
    check_ports({"A": server.getsockname()[1]}, patience_s=5)
    timer.join()


def test_one_port_for_two_is_refused() -> None:
    with pytest.raises(StackError, match="A and B both name port 1234"):
        check_ports({"A": 1234, "B": 1234})


def test_holder_of_a_free_port_is_nobody() -> None:
    assert holder(free_ports(1)[0]) is None


def test_second_supervisor_is_refused(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    with lock(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(StackError, match=rf"a stack runs already in .* \(pid {os.getpid()}\)"), lock(tmp_path):
            pass
    assert not is_locked(tmp_path)
    with lock(tmp_path):
        pass


def test_lock_goes_with_its_killed_holder(tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from deploy.stack.state import lock
with lock(Path({str(tmp_path)!r})):
    print("locked", flush=True)
    time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        assert is_locked(tmp_path)
        process.kill()
        process.wait()
    assert not is_locked(tmp_path)


def test_state_survives_writing_and_reading(tmp_path: Path) -> None:
    state = StackState("ready", 1, "k:1", "http://c:2", str(tmp_path), {"agent": ServiceState("ready", 7, 2)})
    state.write()
    assert read_state(tmp_path) == state


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"services": 3}', '{"services": {}, "strange": 1}'])
def test_strange_state_is_no_state(tmp_path: Path, content: str) -> None:
    (tmp_path / "stack.json").write_text(content)
    assert read_state(tmp_path) is None


def test_status_of_nothing(tmp_path: Path) -> None:
    out = StringIO()
    assert status.show(tmp_path, out) == 1
    assert "no stack runs" in out.getvalue()


def test_status_of_a_dead_stack_is_that_of_nothing(tmp_path: Path) -> None:
    StackState("ready", 1, "k:1", "http://c:2", str(tmp_path)).write()
    assert status.show(tmp_path, StringIO()) == 1


def test_status_shows_services_and_memory(tmp_path: Path) -> None:
    me = os.getpid()
    with lock(tmp_path):
        StackState("ready", me, "k:1", "http://c:2", str(tmp_path), {"agent": ServiceState("ready", me, 2)}).write()
        out = StringIO()
        assert status.show(tmp_path, out) == 0
    agent = next(line.split() for line in out.getvalue().splitlines() if line.startswith("agent"))
    assert agent[1:4] == ["ready", str(me), "2"]
    assert int(agent[4]) > 10


def test_resident_counts_a_session() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        parent = psutil.Process(process.pid)
        rss = sum(one.memory_info().rss for one in (parent, *parent.children()))
        assert resident_bytes(process.pid) == pytest.approx(rss, rel=0.1)
        assert resident_bytes(process.pid, session=False) == pytest.approx(parent.memory_info().rss, rel=0.1)
        process.communicate(b"\n")


def test_heartbeat_needs_a_new_touch_every_time(tmp_path: Path) -> None:
    check = Heartbeat(tmp_path / "ready")
    assert not check()
    ReadyFile({"REVEAL_READY_FILE": str(tmp_path / "ready")}).beat()
    assert check()
    assert not check()
    os.utime(tmp_path / "ready", ns=(5, 5))
    assert check()


def test_ready_file_is_touched_every_other_second(tmp_path: Path) -> None:
    now, path = 0.0, tmp_path / "run" / "ready"
    file = ReadyFile({"REVEAL_READY_FILE": str(path)}, lambda: now)
    file.beat()
    path.unlink()
    now = 1.9
    file.beat()
    assert not path.exists()
    now = 2.0
    file.beat()
    assert path.exists()


def test_ready_file_unasked_for_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ReadyFile({}).beat()
    assert list(tmp_path.iterdir()) == []


async def test_beating_follows_health(tmp_path: Path) -> None:
    healthy, path = False, tmp_path / "ready"
    task = asyncio.create_task(ReadyFile({"REVEAL_READY_FILE": str(path)}).beating(lambda: healthy))
    await asyncio.sleep(0)
    assert not path.exists()
    healthy = True
    await asyncio.to_thread(until, path.exists)
    task.cancel()


def test_http_check() -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/ping" else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.server_address[1]
        assert HttpCheck("127.0.0.1", port, "/ping")()
        assert not HttpCheck("127.0.0.1", port, "/ill")()
        server.shutdown()
        thread.join()
    assert not HttpCheck("127.0.0.1", port, "/ping")()


def test_child_without_its_parent_does_not_start(tmp_path: Path) -> None:
    child = Path(sys.modules[start_bound.__module__].__file__ or "").with_name("child.py")
    mark = tmp_path / "mark"
    done = subprocess.run([sys.executable, str(child), "1", "9", "/usr/bin/touch", str(mark)], check=False)
    assert done.returncode == 1
    assert not mark.exists()


def test_missing_program_is_told(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="there is no program /no/such"):
        start_bound(["/no/such"], {}, None)


def test_exits_in_words() -> None:
    assert describe_exit(3) == "exit status 3"
    assert describe_exit(-9) == "killed by SIGKILL"
    assert describe_exit(-63) == "killed by signal 63"


def test_settings_reach_the_services(tmp_path: Path) -> None:
    one = stack({"REVEAL_STACK_KAFKA_PORT": "1111", "REVEAL_STACK_CLICKHOUSE_PORT": "2222"}, {}, str(tmp_path))
    environ = one.client_environ()
    assert environ["REVEAL_KAFKA_BOOTSTRAP"] == "127.0.0.1:1111"
    assert environ["REVEAL_CLICKHOUSE_PORT"] == "2222"
    assert environ["REVEAL_STACK_DIRECTORY"] == str(tmp_path)
    assert "REVEAL_CLICKHOUSE_PORT=2222 reveal sql" in welcome(one)
    assert set(one.ports.values()) == {1111, 19093, 2222}


def test_log_lines_are_in_utc_and_on_stderr() -> None:
    code = (
        "import logging, os; from deploy import logs; logs.configure(os.environ)\n"
        "logging.getLogger('a.b').info('hello %d', 1); logging.getLogger('a').debug('unseen')"
    )
    environ = {**os.environ, "TZ": "Asia/Tokyo"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environ)
    now = time.strftime("%Y-%m-%dT%H:", time.gmtime())
    assert re.fullmatch(r"\S{13}:\d\d:\d\d\.\d{3}Z INFO a\.b: hello 1\n", done.stderr)
    assert done.stderr.startswith(now) or time.gmtime().tm_min == 0
    assert done.stdout == ""


def test_wrong_log_level_is_told() -> None:
    before = logging.getLogger().handlers[:]
    with pytest.raises(SettingsError, match="REVEAL_LOG_LEVEL must be one of"):
        logs.configure({"REVEAL_LOG_LEVEL": "loud"})
    assert logging.getLogger().handlers == before
