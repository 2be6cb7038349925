"""What the agent takes: itself and its children, living and gone; and the collector that says so."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from producers.collector import ParseError
from producers.collectors.agent import AGENT, Itself
from producers.frame import Frame, Identity
from producers.reading import Host
from producers.usage import Usage
from producers.vitals import Vitals
from schemas.records import Telemetry
from tests.unit.producers.readings import values

BURN = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()\n"


def test_usage_is_that_of_this_process() -> None:
    cpu_s, memory_kb = Usage("/proc")()
    me = psutil.Process()
    times = me.cpu_times()
    children = sum(child.memory_info().rss for child in me.children(recursive=True))
    assert cpu_s == pytest.approx(times.user + times.system + times.children_user + times.children_system, rel=0.1)
    assert memory_kb * 1024 == pytest.approx(me.memory_info().rss + children, rel=0.1)


def test_children_count_while_they_live_and_after() -> None:
    usage = Usage("/proc", every=1)
    before_s, before_kb = usage()
    with subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        own_s = time.process_time()
        living_s, living_kb = usage()
        assert living_s - before_s >= 0.28
        assert living_kb - before_kb > 4000
        child.communicate(b"\n", timeout=20)
    # Told exactly now, and to the tick before.
    gone_s, gone_kb = usage()
    spent_s = time.process_time() - own_s
    assert gone_s - living_s == pytest.approx(spent_s, abs=0.1)
    assert gone_kb < living_kb - 4000


def test_a_child_of_a_child_counts(tmp_path: Path) -> None:
    for process, children, ticks in (("self", "12", 0), ("12", "13 14", 100), ("13", "", 200), ("14", "", 400)):
        task = tmp_path / process / "task" / process
        task.mkdir(parents=True)
        (task / "children").write_text(children)
        # A name may hold anything.
        (tmp_path / process / "stat").write_text(f"1 (a) b (c) S {'0 ' * 10}{ticks} {ticks} 5 5 0 0\n")
        (tmp_path / process / "statm").write_text("100 10 0 0 0 0 0\n")
    usage = Usage(str(tmp_path))
    cpu_s, memory_kb = usage()
    # Children of this very process that are gone count as well.
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    own_s = time.process_time() + gone.ru_utime + gone.ru_stime
    hertz = os.sysconf("SC_CLK_TCK")
    assert cpu_s - own_s == pytest.approx((1400 + 30) / hertz, abs=5)
    assert memory_kb == 4 * 10 * os.sysconf("SC_PAGE_SIZE") / 1024
    # One that goes takes only its own share along.
    for name in ("stat", "statm"):
        (tmp_path / "14" / name).unlink()
    later_s, later_kb = usage()
    assert cpu_s - later_s == pytest.approx(810 / hertz, abs=0.2)
    assert later_kb == 3 * 10 * os.sysconf("SC_PAGE_SIZE") / 1024


def test_memory_that_is_not_told_is_absent(tmp_path: Path) -> None:
    cpu_s, memory_kb = Usage(str(tmp_path))()
    assert cpu_s > 0
    assert math.isnan(memory_kb)


def test_the_agent_publishes_its_vitals() -> None:
    vitals = Vitals(dropped=3, spooled=4, shed=1)
    host = Host({"proc": "/proc"}, time.monotonic_ns, vitals=vitals)
    frame = Frame((AGENT,), host, 500, Identity("h", "s"), every={"agent": 500})
    records: list[Telemetry] = []
    for tick in range(4):
        frame.sample(tick, tick)
        spin = time.process_time() + 0.02
        while time.process_time() < spin:
            pass
    records = frame.cut(0, 4)
    (record,) = records
    assert record.subsystem == "cpu"
    assert set(record.metrics) == set(AGENT.metrics)
    found = {name: matrix[2, 0] for name, matrix in record.metrics.items()}
    assert 0.01 < found["agent.cpu"] < 2
    assert found["agent.memory"] > 10_000
    assert found["agent.period_ms"] == 500
    assert found["agent.sample_ms"] > 0
    assert (found["agent.spooled"], found["agent.shed"]) == (4, 1)


def test_unreadable_numbers_are_absent() -> None:
    parse = AGENT.parser()
    text = b"agent.cpu 1.5\nagent.memory nan\nagent.hung x\nagent.shed 2\nuptime 7\nagent.failing\n"
    found = values(parse({"agent": text}))
    assert found["agent.cpu", ""] == 1.5
    assert found["agent.shed", ""] == 2
    assert math.isnan(found["agent.memory", ""])
    assert math.isnan(found["agent.hung", ""])
    assert set(found) == {(f"agent.{name}", "") for name in ("cpu", "memory", "hung", "shed")}
    for empty in (b"", b"\n", b"other 1\n"):
        with pytest.raises(ParseError):
            parse({"agent": empty})


def test_the_source_says_every_metric() -> None:
    source = Itself(AGENT, Host({"proc": "/proc"}, time.monotonic_ns))
    reading = source.read(0)
    assert reading is not None
    assert set(values(AGENT.parser()(reading[1]))) == {(metric, "") for metric in AGENT.metrics}
