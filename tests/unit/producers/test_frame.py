"""The frame: batches, cadences, instances that come and go, sources that fail or hang."""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from producers.collector import Collector, Reading, plain
from producers.collectors import COLLECTORS
from producers.feed import NORMAL, SHED, SLOWED
from producers.files import KeptFile, mounted_over
from producers.frame import SLOW_NS, Frame, Identity, Superseded
from producers.glance import glance, remarks
from producers.reading import Host, Texts
from schemas.codec import decode, encode
from schemas.records import Telemetry
from tests.unit.producers.scripted import Scripted, scripted, swap_free
from tests.unit.producers.tree import START_NS, FakeClock, Machine

TICK_NS = 100_000_000


def broken(texts: Texts) -> Reading:
    """A parser with a bug."""
    raise RuntimeError("boom")


def fill(machine: Machine, frame: Frame, clock: FakeClock, first: int, rows: int = 10) -> dict[str, Telemetry]:
    """One batch; the machine moves by one tick a row, beginning with tick `first`."""
    for row in range(rows):
        machine.advance(first + row)
        frame.sample(first + row, row)
        clock.pass_ns(TICK_NS)
    return {record.subsystem: record for record in frame.cut(START_NS, rows)}


def test_rates_are_those_of_the_machine(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    frame = machine.frame(clock)
    first = fill(machine, frame, clock, 0)
    assert np.isnan(first["cpu"].metrics["cpu.time.user"][0]).all()
    second = fill(machine, frame, clock, 10)
    cpu = second["cpu"]
    assert cpu.instances["core"] == ("cpu0", "cpu1")
    assert cpu.metrics["cpu.time.user"] == pytest.approx(np.full((10, 2), 0.4), rel=2**-13)
    assert cpu.metrics["cpu.context_switches_total"] == pytest.approx(np.full((10, 1), 500.0), rel=2**-13)
    assert cpu.metrics["cpu.busy_pct"] == pytest.approx(np.full((10, 2), 50.0))
    assert cpu.metrics["cpu.load1"] == pytest.approx(np.full((10, 1), 0.5))
    memory = second["memory"].metrics
    assert memory["mem.free"][:, 0].tolist() == [510.0 + row for row in range(10)]
    assert second["storage"].metrics["disk.await_read"] == pytest.approx(np.full((10, 1), 3.0))
    assert second["storage"].metrics["io.pgpgin"] == pytest.approx(np.full((10, 1), 80.0), rel=2**-13)


def test_records_cross_the_codec_unchanged(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    frame = machine.frame(clock, lost=lambda subsystem: 30 if subsystem == "cpu" else 0)
    frame.missed = 2
    fill(machine, frame, clock, 0)
    for name, record in fill(machine, frame, clock, 10).items():
        again = decode(encode(record))
        assert isinstance(again, Telemetry)
        assert (again.host, again.session, again.agent) == ("host-1", "session-1", "1.0")
        assert (again.sequence, again.start_ns, again.period_ms, again.count) == (1, START_NS, 100, 10)
        assert again.dropped == (32 if name == "cpu" else 2)
        assert not again.flaws
        assert again.instances == record.instances
        for metric, matrix in record.metrics.items():
            np.testing.assert_array_equal(again.metrics[metric], matrix)


def test_slow_sources_leave_rows_between(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    frame = machine.frame(clock)
    fill(machine, frame, clock, 0)
    memory = fill(machine, frame, clock, 10)["memory"].metrics
    assert memory["numa.mem_free"][0, 0] == 890
    assert np.isnan(memory["numa.mem_free"][1:]).all()
    assert memory["numa.hit"][0, 0] == pytest.approx(110, rel=2**-13)


def test_missed_ticks_are_rows_of_nan_and_rates_span_them(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    frame = machine.frame(clock)
    for tick in (0, 1, 5):
        machine.advance(tick)
        frame.sample(tick, tick)
        clock.pass_ns((4 if tick == 1 else 1) * TICK_NS)
    (user,) = [r.metrics["cpu.time.user"] for r in frame.cut(START_NS, 10) if r.subsystem == "cpu"]
    assert np.isnan(user[2:5]).all()
    assert np.isnan(user[6:]).all()
    assert user[5] == pytest.approx([0.4, 0.4], rel=2**-13)


def test_cpus_come_and_go(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    frame = machine.frame(clock)
    fill(machine, frame, clock, 0)
    for row in range(10):
        machine.cpus = [0, 1, 12] if row >= 5 else [0, 1]
        machine.advance(10 + row)
        frame.sample(10 + row, row)
        clock.pass_ns(TICK_NS)
    (cpu,) = [record for record in frame.cut(START_NS, 10) if record.subsystem == "cpu"]
    assert cpu.instances["core"] == ("cpu0", "cpu1", "cpu12")
    user = cpu.metrics["cpu.time.user"]
    assert user[:, :2] == pytest.approx(np.full((10, 2), 0.4), rel=2**-13)
    assert np.isnan(user[:6, 2]).all()
    assert user[6:, 2] == pytest.approx(np.full(4, 0.4), rel=2**-13)
    # softirqs says nothing of it, and what it lists beyond the CPUs that exist is left out.
    assert np.isnan(cpu.metrics["cpu.softirq.net_rx"][:, 2]).all()
    assert cpu.metrics["cpu.softirq.net_rx"][-1, 1] == pytest.approx(20, rel=2**-13)
    machine.cpus = [0]
    assert fill(machine, frame, clock, 20)["cpu"].instances["core"] == ("cpu0",)


def test_a_source_with_a_bug_stops_no_other(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    machine.write("proc/bad", "x")
    frame = machine.frame(clock, more=(Collector("bad", ("proc/bad",), plain(lambda: broken), ()),))
    fill(machine, frame, clock, 0)
    assert "cpu" in fill(machine, frame, clock, 10)
    (problem,) = [problem for problem in frame.problems() if problem.collector == "bad"]
    assert problem.kind == "failing"
    assert "boom" in problem.reason
    assert frame.errors()["bad"] > 0


def test_a_hanging_source_stops_no_other(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    (tmp_path / "proc").mkdir()
    fifo = tmp_path / "proc" / "hangs"
    os.mkfifo(fifo)
    # Opening a pipe that nobody writes to blocks, as a driver may.
    hangs = Collector("hangs", ("proc/hangs",), plain(lambda: swap_free), ("mem.swap_free",), may_block=True)
    frame = machine.frame(clock, more=(hangs,))
    began = time.monotonic()
    for batch in range(8):
        records = fill(machine, frame, clock, 10 * batch)
        assert "mem.swap_free" not in records["memory"].metrics
        assert records["cpu"].sequence == batch
    assert time.monotonic() - began < 5
    (problem,) = [problem for problem in frame.problems() if problem.collector == "hangs"]
    assert problem.kind == "hung"
    frame.close()


def test_one_look_does_not_wait_for_a_hanging_source(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    machine.advance(0)
    os.mkfifo(tmp_path / "proc" / "hangs")
    hangs = Collector("hangs", ("proc/hangs",), plain(lambda: swap_free), ("mem.swap_free",), may_block=True)
    frame = machine.frame(clock, more=(hangs,))
    found = {(value.metric, value.instance): value.value for value in glance(frame, clock)}
    assert found["cpu.load1", ""] == 0.5
    assert found["mem.total", ""] == 1000
    lines = remarks(frame, [], (hangs,))
    assert "hangs: proc/hangs is hung: no answer for 1.0 s" in lines
    assert "without a value at the moment: mem.swap_free" in lines
    frame.close()


def test_a_source_that_answers_late_is_picked_up(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    (tmp_path / "proc").mkdir()
    path = tmp_path / "proc" / "late"
    os.mkfifo(path)
    late = Collector("late", ("proc/late",), plain(lambda: swap_free), ("mem.swap_free",), may_block=True)
    frame = machine.frame(clock, more=(late,))
    fill(machine, frame, clock, 0)
    # pread on a pipe fails, so the reader wakes with an error, backs off, and finds a plain file after that.
    descriptor = os.open(path, os.O_WRONLY)
    os.close(descriptor)
    path.unlink()
    path.write_text("17\n")
    deadline = time.monotonic() + 10
    batch = 1
    values: list[float] = []
    while not values and time.monotonic() < deadline:
        clock.pass_ns(60 * 10 * TICK_NS)
        records = fill(machine, frame, clock, 10 * batch)
        matrix = records["memory"].metrics.get("mem.swap_free")
        values = [] if matrix is None else matrix[~np.isnan(matrix)].tolist()
        batch += 1
        time.sleep(0.01)
    assert set(values) == {17.0}
    frame.close()


def test_a_pipe_in_the_place_of_a_fast_source_is_refused(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    frame = machine.frame(clock)
    fill(machine, frame, clock, 0)
    (tmp_path / "proc/net").mkdir()
    os.mkfifo(tmp_path / "proc/net/sockstat")
    clock.pass_ns(61 * 10 * TICK_NS)
    fill(machine, frame, clock, 10)
    (problem,) = [problem for problem in frame.problems() if problem.collector == "sockstat"]
    assert (problem.kind, problem.reason) == ("failing", "not a regular file")


def test_missing_sources_are_probed_once_a_minute_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    frame = machine.frame(clock)
    probes = []
    real = os.open

    def counting(path: str, flags: int) -> int:
        probes.append(path)
        return real(path, flags)

    monkeypatch.setattr(os, "open", counting)
    for batch in range(3):
        fill(machine, frame, clock, 10 * batch)
    schedstat = str(tmp_path / "proc/schedstat")
    assert probes.count(schedstat) == 1
    (problem,) = [problem for problem in frame.problems() if problem.collector == "schedstat"]
    assert (problem.kind, problem.reason) == ("missing", "No such file or directory")
    machine.write("proc/schedstat", "version 15\ncpu0 1 2 3 4 5 6 7 80 90\ncpu1 1 2 3 4 5 6 7 8 9\n")
    clock.pass_ns(60 * 10 * TICK_NS)
    assert "cpu.run_delay" in fill(machine, frame, clock, 30)["cpu"].metrics
    assert not [problem for problem in frame.problems() if problem.collector == "schedstat"]


def test_pressure_that_is_compiled_in_but_off_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    pressure = machine.write("proc/pressure/cpu", "never read")
    frame = machine.frame(clock)
    reads = 0
    real = os.pread

    def refusing(descriptor: int, size: int, offset: int) -> bytes:
        nonlocal reads
        if os.path.samestat(os.fstat(descriptor), os.stat(pressure)):
            reads += 1
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", refusing)
    for batch in range(3):
        assert "cpu.psi.some" not in fill(machine, frame, clock, 10 * batch)["cpu"].metrics
    assert reads == 1
    problems = {problem.path: problem for problem in frame.problems()}
    assert problems["proc/pressure/cpu"].kind == "missing"
    assert problems["proc/pressure/cpu"].reason == os.strerror(errno.EOPNOTSUPP)


def test_a_cpu_that_cannot_tell_its_frequency_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    path = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    machine.write(path.format(0), "2400000\n")
    offline = machine.write(path.format(1), "0\n")
    real = os.pread

    def busy(descriptor: int, size: int, offset: int) -> bytes:
        if os.path.samestat(os.fstat(descriptor), os.stat(offline)):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return real(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", busy)
    frame = machine.frame(clock)
    deadline = time.monotonic() + 10
    batch = 0
    matrix = np.full((1, 2), np.nan)
    while np.isnan(matrix).all() and time.monotonic() < deadline:
        found = fill(machine, frame, clock, 10 * batch)["cpu"].metrics.get("cpu.freq.current")
        matrix = matrix if found is None else found
        batch += 1
    assert set(matrix[~np.isnan(matrix[:, 0]), 0]) == {2_400_000.0}
    assert np.isnan(matrix[:, 1]).all()
    assert [problem.kind for problem in frame.problems() if "cpu1/" in problem.path] == ["failing"]
    frame.close()


def test_a_file_that_is_replaced_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "value"
    path.write_text("1")
    file = KeptFile(str(path))
    assert file.read() == b"1"
    (tmp_path / "new").write_text("2")
    (tmp_path / "new").rename(path)
    file.check()
    assert file.read() == b"2"
    path.unlink()
    file.check()
    with pytest.raises(FileNotFoundError):
        file.read()
    path.write_text("3" * 200_000)
    assert file.read() == b"3" * 200_000
    file.close()


def test_files_that_a_program_serves_are_found() -> None:
    mountinfo = (
        b"22 27 0:21 / /proc rw,nosuid - proc proc rw\n"
        b"500 22 0:60 /proc/stat /proc/stat rw - fuse.lxcfs lxcfs rw\n"
        b"501 22 0:60 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw\n"
        b"502 27 0:61 / /processes rw - tmpfs tmpfs rw\n"
    )
    assert mounted_over(mountinfo, "/proc") == {"stat", "meminfo"}


def swaps(records: dict[str, Telemetry]) -> list[float]:
    """Values of mem.swap_free of a batch."""
    matrix = records["memory"].metrics.get("mem.swap_free")
    return [] if matrix is None else matrix[~np.isnan(matrix)].tolist()


def test_costs_are_those_of_the_processor_time(tmp_path: Path) -> None:
    cpu_ns, made = 0, list[Scripted]()

    def spend() -> None:
        nonlocal cpu_ns
        cpu_ns += 2_000_000

    machine, clock = Machine(tmp_path), FakeClock()
    frame = machine.frame(clock, more=(scripted(spend, made),), cpu_clock=lambda: cpu_ns)
    for batch in range(28):
        fill(machine, frame, clock, 10 * batch)
    costs = frame.costs()
    assert set(costs) == {collector.name for collector in COLLECTORS} | {"scripted"}
    # One reading in seven is measured, and stands for the others.
    assert costs["scripted"] == pytest.approx(280 * 0.002, rel=0.05)
    assert costs["stat"] == 0


def test_measuring_costs_next_to_nothing(tmp_path: Path) -> None:
    machine, clock, asked = Machine(tmp_path), FakeClock(), 0

    def cpu_clock() -> int:
        nonlocal asked
        asked += 1
        return 0

    frame = machine.frame(clock, cpu_clock=cpu_clock)
    for batch in range(8):
        fill(machine, frame, clock, 10 * batch)
    # Two for a reading, two for parsing, two for the matrices: about once a second each.
    assert asked / 8 < 8 * len(COLLECTORS)


def test_a_source_that_blocks_once_gets_a_thread_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine, clock, made = Machine(tmp_path), FakeClock(), list[Scripted]()
    threads: list[int] = []

    def act() -> None:
        threads.append(threading.get_ident())
        if len(threads) == 3:
            time.sleep(0.001)
            clock.pass_ns(SLOW_NS + 1)

    frame = machine.frame(clock, more=(scripted(act, made),))
    # As long, but it never waited: it was busy, or the processor was taken away.
    busy = scripted(lambda: clock.pass_ns(SLOW_NS + 1), [], "busy")
    alone = Frame((busy,), Host({}, clock.monotonic_ns), 100, Identity("h", "s"))
    assert swaps(fill(machine, alone, clock, 0)) == list(range(1, 11))
    assert "thread of its own" not in caplog.text
    first = swaps(fill(machine, frame, clock, 0))
    assert "scripted: a reading took 200 ms: from now on it has a thread of its own" in caplog.text
    assert first[:3] == [1, 2, 3]
    found: list[float] = []
    deadline = time.monotonic() + 10
    batch = 1
    while len(found) < 5 and time.monotonic() < deadline:
        found += swaps(fill(machine, frame, clock, 10 * batch))
        batch += 1
    assert found == sorted(set(found))
    assert len(found) >= 5
    assert set(threads[:3]) == {threading.get_ident()}
    assert threading.get_ident() not in threads[3:]
    frame.close()


def test_a_reading_that_hangs_is_left_to_its_thread(tmp_path: Path) -> None:
    machine, clock, made = Machine(tmp_path), FakeClock(), list[Scripted]()
    entered, released = threading.Event(), threading.Event()

    def act() -> None:
        if made[0].reads == 2:
            entered.set()
            assert released.wait(30)

    frame = machine.frame(clock, more=(scripted(act, made),))
    served: list[bool] = []

    def loop() -> None:
        for row in range(5):
            try:
                frame.sample(row, row)
            except Superseded as late:
                late.serve()
                served.append(True)
                return

    assert frame.abandon(0) == ""
    machine.advance(0)
    stuck = threading.Thread(target=loop, daemon=True)
    stuck.start()
    assert entered.wait(10)
    since_ns = clock.monotonic
    clock.pass_ns(6 * 10 * TICK_NS)
    assert frame.abandon(since_ns) == "scripted"
    assert frame.abandon(since_ns) == ""
    for batch in range(1, 4):
        assert "cpu" in fill(machine, frame, clock, 10 * batch)
    (problem,) = [problem for problem in frame.problems() if problem.collector == "scripted"]
    assert (problem.kind, problem.path) == ("hung", "scripted")
    assert frame.host.vitals.hung == 1
    released.set()
    deadline = time.monotonic() + 10
    values: list[float] = []
    batch = 4
    while len(values) < 3 and time.monotonic() < deadline:
        values += swaps(fill(machine, frame, clock, 10 * batch))
        batch += 1
    assert values[:1] == [3]
    assert values == sorted(set(values))
    assert frame.host.vitals.hung == 0
    events = frame.host.notices.drain("h", "s", "")
    assert [(event.kind, event.subsystem, event.instance) for event in events] == [
        ("source_hung", "memory", "scripted"),
        ("source_back", "memory", "scripted"),
    ]
    frame.close()
    stuck.join(10)
    assert served == [True]
    assert made[0].closed == 1


def test_a_source_that_hangs_is_told_once(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    (tmp_path / "proc").mkdir()
    fifo = tmp_path / "proc" / "hangs"
    os.mkfifo(fifo)
    hangs = Collector("hangs", ("proc/hangs",), plain(lambda: swap_free), ("mem.swap_free",), may_block=True)
    frame = machine.frame(clock, more=(hangs,))
    for batch in range(12):
        fill(machine, frame, clock, 10 * batch)
    (event,) = frame.host.notices.drain("h", "s", "")
    assert (event.kind, event.severity) == ("source_hung", "warning")
    assert "hangs: proc/hangs does not answer: no answer for 5." in event.message
    # Opening the other end lets the reader go.
    os.close(os.open(fifo, os.O_WRONLY))
    deadline = time.monotonic() + 10
    events = frame.host.notices.drain("h", "s", "")
    while not events and time.monotonic() < deadline:
        fill(machine, frame, clock, 200)
        events = frame.host.notices.drain("h", "s", "")
    assert [event.kind for event in events] == ["source_back"]
    frame.close()


def test_collectors_are_slowed_shed_and_come_back(tmp_path: Path) -> None:
    machine, clock, made = Machine(tmp_path), FakeClock(), list[Scripted]()
    frame = machine.frame(clock, more=(scripted(lambda: None, made),))
    vitals = frame.host.vitals
    assert len(swaps(fill(machine, frame, clock, 0))) == 10
    frame.throttle("scripted", SLOWED)
    assert frame.levels()["scripted"] == SLOWED
    assert frame.every()["scripted"] == 1000
    assert swaps(fill(machine, frame, clock, 10)) == [11]
    assert (vitals.shed, made[0].closed) == (0, 0)
    frame.throttle("scripted", SHED)
    assert swaps(fill(machine, frame, clock, 20)) == []
    assert (vitals.shed, made[0].closed) == (1, 1)
    assert made[0].reads == 11
    frame.throttle("scripted", SLOWED)
    assert len(swaps(fill(machine, frame, clock, 30))) == 1
    frame.throttle("scripted", NORMAL)
    assert len(swaps(fill(machine, frame, clock, 40))) == 10
    assert vitals.shed == 0
    assert len(made) == 2
    assert frame.widths()["scripted"] == 1


def test_vitals_say_how_the_agent_is(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    machine.write("proc/bad", "x")
    slow = scripted(lambda: clock.pass_ns(3_000_000), [])
    frame = machine.frame(
        clock,
        more=(Collector("bad", ("proc/bad",), plain(lambda: broken), ()), slow),
        lost=lambda subsystem: 20 if subsystem == "memory" else 10,
    )
    frame.missed = 5
    fill(machine, frame, clock, 0)
    vitals = frame.host.vitals
    assert (vitals.period_ms, vitals.dropped, vitals.failing, vitals.hung) == (100, 25, 1, 0)
    assert vitals.sample_ms == pytest.approx(3.0)


def test_another_period_takes_hold_at_once(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    frame = machine.frame(clock)
    fill(machine, frame, clock, 0)
    frame.pace(500)
    for row in range(2):
        machine.advance(10 + 5 * row)
        frame.sample(2 + row, row)
        clock.pass_ns(5 * TICK_NS)
    (cpu,) = [record for record in frame.cut(START_NS, 2) if record.subsystem == "cpu"]
    assert (cpu.period_ms, cpu.count, cpu.sequence) == (500, 2, 1)
    assert cpu.metrics["cpu.time.user"] == pytest.approx(np.full((2, 2), 0.4), rel=2**-13)
    assert frame.host.vitals.period_ms == 500
    frame.pace(100)
    third = fill(machine, frame, clock, 20)["cpu"]
    assert (third.period_ms, third.count) == (100, 10)
    assert third.metrics["cpu.time.user"] == pytest.approx(np.full((10, 2), 0.4), rel=2**-13)


def test_latest_values_are_there_before_the_batch_ends(tmp_path: Path) -> None:
    machine, clock = Machine(tmp_path), FakeClock()
    frame = machine.frame(clock)
    assert frame.latest("mem.free") is None
    assert frame.latest("no.such.metric") is None
    for tick in range(3):
        machine.advance(tick)
        frame.sample(tick, tick)
        reading = frame.latest("mem.free")
        assert reading is not None
        time_ns, layout, values = reading
        assert time_ns == clock.monotonic
        assert dict(zip(layout.channels, values, strict=True))["mem.free", ""] == 500 + tick
        clock.pass_ns(TICK_NS)
    # Looking takes nothing away.
    (memory,) = [record for record in frame.cut(START_NS, 10) if record.subsystem == "memory"]
    assert memory.metrics["mem.free"][:3, 0].tolist() == [500, 501, 502]


def test_a_slow_source_is_told_again_until_its_next_reading_is_overdue(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "slow").write_text("7\n")
    slow = Collector("slow", ("proc/slow",), plain(lambda: swap_free), ("mem.swap_free",), every_ms=3000)
    clock = FakeClock()
    host = Host({"proc": str(tmp_path / "proc")}, clock.monotonic_ns)
    frame = Frame((slow,), host, 500, Identity("h", "s"))
    seen: list[list[float]] = []
    for tick in range(40):
        frame.sample(tick, tick % 2)
        clock.monotonic += 500_000_000
        if tick == 13:
            # Read for the third time at tick 12; what is not read at tick 18 is not passed off as fresh for long.
            (tmp_path / "proc" / "slow").write_text("")
        if tick % 2:
            records = frame.cut(tick, 2)
            seen.append(records[0].metrics["mem.swap_free"][:, 0].tolist() if records else [])
    values = [[value for value in rows if not math.isnan(value)] for rows in seen]
    assert values[:9] == [[7.0]] * 9
    assert values[-8:] == [[]] * 8


def test_a_file_that_a_program_serves_gets_a_thread(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "slow").write_text("7\n")
    served = Collector("served", ("proc/slow",), plain(lambda: swap_free), ("mem.swap_free",))
    host = Host({"proc": str(tmp_path / "proc")}, time.monotonic_ns)
    assert not Frame((served,), host, 500, Identity("h", "s")).waits()
    host = replace(host, served=frozenset({"proc/slow"}))
    assert Frame((served,), host, 500, Identity("h", "s")).waits()
