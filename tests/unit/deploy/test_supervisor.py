"""The supervisor over real child processes."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deploy.stack.service import Service, ServiceSpec, State
from deploy.stack.supervisor import Supervisor
from tests.unit.deploy.supervised import STEADY, Supervised, alive, until


def steady(place: Path, name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "argv": ["-c", STEADY, str(place), name], "beats": True, **more}


def words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def chain(place: Path) -> list[dict[str, Any]]:
    job = {"name": "job", "argv": ["-c", "print('made')"], "after": ["base"], "job": True}
    return [steady(place, "base"), job, steady(place, "middle", after=["job"]), steady(place, "top", after=["middle"])]


def test_starts_in_order_and_stops_in_the_opposite_one(tmp_path: Path) -> None:
    with Supervised(tmp_path, chain(tmp_path)) as stack:
        until(lambda: stack.said("top", "ready in"))
        assert words(tmp_path / "began") == ["base", "middle", "top"]
        said = [(name, text.split(" ")[0].rstrip(",")) for name, text in stack.lines]
        assert said.index(("base", "ready")) < said.index(("job", "started")) < said.index(("job", "done"))
        assert said.index(("job", "done")) < said.index(("middle", "started"))
        assert stack.stop() == 0
        assert words(tmp_path / "stopped") == ["top", "middle", "base"]
        assert (tmp_path / "logs" / "top.log").read_text() == "here is top\n"


def test_independent_services_start_and_stop_together(tmp_path: Path) -> None:
    with Supervised(tmp_path, [steady(tmp_path, "one"), steady(tmp_path, "two")]) as stack:
        until(lambda: stack.said("one", "ready") and stack.said("two", "ready"))
        texts = [text.split(",")[0] for _, text in stack.lines]
        assert texts[:2] == ["started", "started"]


def test_killed_service_starts_again_and_the_others_stay(tmp_path: Path) -> None:
    with Supervised(tmp_path, chain(tmp_path)) as stack:
        until(lambda: stack.said("top", "ready in"))
        first, other = stack.pid("base"), stack.pid("top")
        os.kill(first, signal.SIGKILL)
        until(lambda: stack.said("base", "died (killed by SIGKILL; last line of base.log: here is base); restarting"))
        until(lambda: stack.pid("base") != first)
        assert stack.pid("top") == other
        assert alive(other)
        assert stack.stop() == 0


def test_backoff_doubles(tmp_path: Path) -> None:
    table = [{"name": "bad", "argv": ["-c", "import sys; sys.exit('no luck')"]}]
    with Supervised(tmp_path, table) as stack:
        until(lambda: stack.said("bad", "restarting in 2 s"))
        died = [text for _, text in stack.lines if text.startswith("died")]
        assert died == [
            f"died (exit status 1; last line of bad.log: no luck); restarting in {delay} s"
            for delay in ("0.5", "1", "2")
        ]
        assert stack.stop() == 0


def test_backoff_is_bounded_and_forgiven_after_a_healthy_minute(tmp_path: Path) -> None:
    now, said = 0.0, list[str]()
    with ThreadPoolExecutor(1) as pool:
        service = Service(ServiceSpec("frail", ("sleep", "1000"), {}), tmp_path, said.append, pool, lambda: now)

        def life(healthy_s: float) -> str:
            """Of one process: its backoff in words."""
            nonlocal now
            service.step(may_start=True)
            now += 1.5
            service.step(may_start=True)
            assert service.state is State.READY
            now += healthy_s
            service.kill()
            until(lambda: service.step(may_start=False) and service.state is State.WAITING)
            now += 30
            return said[-1]

        words = [life(1) for _ in range(8)]
        assert words == [f"died (killed by SIGKILL); restarting in {s} s" for s in ("0.5", 1, 2, 4, 8, 16, 30, 30)]
        assert life(61).endswith("restarting in 0.5 s")
        assert service.restarts == 9


def test_wrong_settings_end_the_stack(tmp_path: Path) -> None:
    table = [steady(tmp_path, "good"), {"name": "wrong", "argv": ["-c", "import sys; sys.exit(2)"], "after": ["good"]}]
    with Supervised(tmp_path, table) as stack:
        assert stack.process.wait(15) == 1
        assert stack.said("wrong", "failed with exit status 2")
        assert words(tmp_path / "stopped") == ["good"]


def test_hung_service_is_killed_and_starts_again(tmp_path: Path) -> None:
    hang = STEADY.replace("while True:", "for _ in range(3):") + "\ntime.sleep(1000)"
    table = [{"name": "hung", "argv": ["-c", hang, str(tmp_path), "hung"], "beats": True, "hang_s": 4}]
    with Supervised(tmp_path, table) as stack:
        until(lambda: stack.said("hung", "no sign of life for 4 s: killed"))
        until(lambda: stack.said("hung", "died (killed by SIGKILL"))


def test_service_that_never_gets_ready_is_killed(tmp_path: Path) -> None:
    table = [{"name": "slow", "argv": ["-c", "import time; time.sleep(1000)"], "beats": True, "start_s": 0.5}]
    with Supervised(tmp_path, table) as stack:
        until(lambda: stack.said("slow", "not ready within 0 s: killed"))
        until(lambda: stack.said("slow", "died (killed by SIGKILL); restarting in 0.5 s"))


def test_service_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    stubborn = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(1000)"
    )
    with Supervised(tmp_path, [{"name": "stubborn", "argv": ["-c", stubborn], "stop_s": 0.5}]) as stack:
        log = tmp_path / "logs" / "stubborn.log"
        until(lambda: log.exists() and log.read_text().endswith("\n"))
        assert stack.stop() == 0
        assert stack.said("stubborn", "stopped with killed by SIGKILL")
        until(lambda: not alive(int(log.read_text())))


def test_children_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    with Supervised(tmp_path, chain(tmp_path)) as stack:
        until(lambda: stack.said("top", "ready in"))
        pids = [stack.pid(name) for name in ("base", "middle", "top")]
        assert all(alive(pid) for pid in pids)
        stack.process.kill()
        until(lambda: not any(alive(pid) for pid in pids), 5)


def test_ctrl_c_is_the_supervisors_alone(tmp_path: Path) -> None:
    with Supervised(tmp_path, [steady(tmp_path, "one")]) as stack:
        until(lambda: stack.said("one", "ready"))
        assert os.getpgid(stack.pid("one")) != os.getpgid(stack.process.pid)
        stack.process.send_signal(signal.SIGINT)
        assert stack.process.wait(15) == 0
        assert words(tmp_path / "stopped") == ["one"]


def test_large_log_is_put_aside(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "one.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (9 << 20))
    with Supervised(tmp_path, [steady(tmp_path, "one")]) as stack:
        until(lambda: stack.said("one", "ready"))
        assert log.read_text() == "here is one\n"
        assert log.with_suffix(".log.1").stat().st_size == 9 << 20


def test_table_out_of_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="top comes after base"):
        Supervisor([ServiceSpec("top", ("true",), {}, after=("base",))], tmp_path, lambda *_: None)


def test_stop_before_ready_is_quick(tmp_path: Path) -> None:
    table = [{"name": "slow", "argv": ["-c", "import time; time.sleep(1000)"], "beats": True}]
    with Supervised(tmp_path, [*table, steady(tmp_path, "later", after=["slow"])]) as stack:
        until(lambda: stack.said("slow", "started"))
        began = time.monotonic()
        assert stack.stop() == 0
        assert time.monotonic() - began < 3
        assert not stack.said("later", "started")
