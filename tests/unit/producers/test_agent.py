"""The loop: the grid, late wake-ups, clock steps, batches of every period; and replay."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from producers.agent import Agent
from producers.clock import SystemClock
from producers.collectors import COLLECTORS
from producers.frame import Frame, Identity
from producers.rates import round_mantissa
from producers.reading import Host
from producers.replay import ReplayError, paced, readdress
from schemas.records import Telemetry
from schemas.settings import AgentSettings, SettingsError
from tests.unit.producers.scripted import scripted
from tests.unit.producers.tree import SECOND_NS, START_NS, FakeClock, Machine


class Run:
    """An agent on a made-up machine, for `seconds` of its clock; `at` are things to do at a sample."""

    def __init__(self, root: Path, period_ms: int = 100, offset_ns: int = 0) -> None:
        self.machine = Machine(root)
        self.machine.advance(0)
        self.clock = FakeClock(START_NS + offset_ns)
        self.clock.on_sleep = self.wake
        self.frame = self.machine.frame(self.clock, period_ms=period_ms)
        self.records: list[Telemetry] = []
        self.agent = Agent(self.frame, self.clock, self.emit)
        self.wakes = 0
        self.at: dict[int, int] = {}
        self.step: dict[int, int] = {}
        self.suspend: dict[int, int] = {}

    def emit(self, records: Sequence[Telemetry]) -> None:
        self.records += records

    def wake(self) -> None:
        self.wakes += 1
        self.clock.pass_ns(self.at.get(self.wakes, 0))
        self.clock.wall += self.step.get(self.wakes, 0)
        self.clock.suspend_ns(self.suspend.get(self.wakes, 0))

    def run(self, seconds: float) -> list[Telemetry]:
        """Records of cpu."""
        end = self.clock.monotonic + round(seconds * SECOND_NS)
        self.agent.run(lambda: self.clock.monotonic >= end)
        return [record for record in self.records if record.subsystem == "cpu"]

    def events(self) -> list[tuple[str, str]]:
        """Kind and message of everything noticed."""
        return [(event.kind, event.message) for event in self.frame.host.notices.drain("h", "s", "")]


def load_rows(record: Telemetry) -> list[int]:
    """Rows that were sampled."""
    return np.flatnonzero(~np.isnan(record.metrics["cpu.load1"][:, 0])).tolist()


@pytest.mark.parametrize(
    ("period_ms", "count", "seconds"), [(10, 100, 1), (100, 10, 1), (300, 10, 3), (600, 5, 3), (1000, 1, 1)]
)
def test_batches_of_every_period_begin_on_the_grid(tmp_path: Path, period_ms: int, count: int, seconds: int) -> None:
    records = Run(tmp_path, period_ms, offset_ns=123_456_789).run(10 * seconds)
    assert len(records) >= 9
    for sequence, record in enumerate(records[:9]):
        assert record.sequence == sequence
        assert record.count == count
        assert record.start_ns == records[0].start_ns + sequence * seconds * SECOND_NS
        assert record.start_ns % (seconds * SECOND_NS) == 0
        assert load_rows(record) == list(range(count))
        assert record.dropped == 0
    assert records[0].start_ns > START_NS


def test_first_record_has_rates_in_its_first_row(tmp_path: Path) -> None:
    first = Run(tmp_path, offset_ns=SECOND_NS // 2).run(3)[0]
    assert not np.isnan(first.metrics["cpu.time.user"]).any()


def test_the_grid_does_not_drift(tmp_path: Path) -> None:
    run = Run(tmp_path)
    # Every wake-up is 3 ms late: the next one is still due on the grid.
    run.at = dict.fromkeys(range(1, 1000), 3_000_000)
    run.run(20)
    assert run.agent.samples == pytest.approx(200, abs=2)
    assert run.clock.slept[-1] == pytest.approx(0.097)


def test_ticks_slept_through_are_counted_and_absent(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.at = {23: 250_000_000}
    records = run.run(6)
    assert records[-1].dropped == run.frame.host.vitals.dropped == 2
    assert run.events() == []
    assert sum(10 - len(load_rows(record)) for record in records[:5]) == 2
    assert [record.sequence for record in records] == list(range(len(records)))


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_clock_steps_start_anew(tmp_path: Path, step_s: int, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path)
    run.step = {33: step_s * SECOND_NS}
    records = run.run(10)
    assert run.agent.steps == 1
    text = f"the clock was set by {step_s:+.1f} s"
    assert text in caplog.text
    assert run.events() == [("clock_step", text)]
    assert run.agent.suspends == 0
    starts = [record.start_ns for record in records]
    jumps = np.diff(starts).tolist()
    assert sum(jump != SECOND_NS for jump in jumps) == 1
    assert all(start % SECOND_NS == 0 for start in starts)
    assert records[-1].dropped == 0
    assert [record.sequence for record in records] == list(range(len(records)))


def test_a_clock_set_back_a_little_takes_no_sample_twice(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step = {33: -500_000_000}
    records = run.run(10)
    starts = [record.start_ns for record in records]
    assert starts == sorted(set(starts))
    assert run.agent.steps == 0


def test_a_suspend_is_no_clock_step(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.suspend = {33: 7200 * SECOND_NS}
    records = run.run(10)
    assert (run.agent.suspends, run.agent.steps) == (1, 0)
    assert run.events() == [("suspend", "the machine was suspended for 7200.0 s")]
    # Nothing was due while the machine stood still, and rates go on: they are of the time that it ran.
    assert run.frame.missed == 0
    starts = np.diff([record.start_ns for record in records]) // SECOND_NS
    assert sorted(starts.tolist())[-1] >= 7200
    assert (starts == 1).sum() == len(starts) - 1
    for record in records:
        assert not np.isnan(record.metrics["cpu.time.user"][load_rows(record)]).any()


def test_a_clock_set_while_suspended_is_both(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.suspend = {33: 100 * SECOND_NS}
    run.step = {33: -40 * SECOND_NS}
    run.run(10)
    assert run.events() == [
        ("suspend", "the machine was suspended for 100.0 s"),
        ("clock_step", "the clock was set by -40.0 s"),
    ]


def test_a_short_suspend_is_a_gap(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.suspend = {33: SECOND_NS // 2}
    run.run(10)
    assert run.events() == []
    assert run.frame.missed == 5


def test_a_stall_between_the_readings_of_two_clocks_is_no_jump(tmp_path: Path) -> None:
    run = Run(tmp_path)
    real = run.clock.boot_ns
    reads = 0

    def boot_ns() -> int:
        nonlocal reads
        reads += 1
        if reads == 40:
            run.clock.pass_ns(2 * SECOND_NS)
        return real()

    run.clock.boot_ns = boot_ns  # type: ignore[method-assign]
    run.run(10)
    assert (run.agent.steps, run.agent.suspends) == (0, 0)
    assert run.frame.missed >= 19


def test_a_long_stall_is_told(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.at = {23: 4_050_000_000}
    records = run.run(10)
    assert run.events() == [
        ("samples_lost", "the agent did not run for 4.0 s: 40 samples could not be taken"),
    ]
    assert records[-1].dropped == run.frame.host.vitals.dropped == 40


def scripted_frame(act: Callable[[], None]) -> Frame:
    """/proc/loadavg and a source that does what `act` says, at 20 ms, on real clocks."""
    loadavg = next(collector for collector in COLLECTORS if collector.name == "loadavg")
    host = Host({"proc": "/proc"}, time.monotonic_ns)
    return Frame((loadavg, scripted(act, [])), host, 20, Identity("h", "s"))


def test_a_reading_that_hangs_does_not_stop_the_agent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    released, hanging = threading.Event(), threading.Event()
    reads = 0

    def act() -> None:
        nonlocal reads
        reads += 1
        if reads == 10:
            hanging.set()
            assert released.wait(60)

    frame = scripted_frame(act)
    records: list[Telemetry] = []
    agent = Agent(frame, SystemClock(), records.extend, look_s=0.1)
    began = time.monotonic()
    back: list[float] = []

    def stopped() -> bool:
        # Once it goes on without the source, let that come back; then wait for its values.
        if agent.samples > 80 and hanging.is_set():
            released.set()
        swaps = [record for record in records if "mem.swap_free" in record.metrics]
        back[:] = [value for record in swaps for value in record.metrics["mem.swap_free"][:, 0].tolist()]
        return time.monotonic() - began > 30 or (released.is_set() and np.nanmax([0, *back]) > 20)

    agent.run(stopped)
    assert "scripted: a reading has not come back for 0.5 s: sampling goes on without it" in caplog.text
    assert agent.stalled == ""
    assert np.nanmax(back) > 20
    assert frame.missed > 10
    starts = [record.start_ns for record in records if record.subsystem == "cpu"]
    assert starts == sorted(set(starts))
    frame.close()


def test_a_loop_that_is_stuck_elsewhere_is_told(caplog: pytest.LogCaptureFixture) -> None:
    frame = scripted_frame(lambda: None)
    released = threading.Event()
    seen: list[str] = []

    def emit(records: Sequence[Telemetry]) -> None:
        assert released.wait(60)

    agent = Agent(frame, SystemClock(), emit, look_s=0.05)

    def watch() -> None:
        deadline = time.monotonic() + 30
        while not agent.stalled and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.append(agent.stalled)
        released.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    agent.run(lambda: released.is_set() and not agent.stalled)
    watcher.join(30)
    assert seen == ["stuck in publishing"]
    assert "the loop moves again" in caplog.text
    frame.close()


def test_a_stuck_loop_does_not_keep_the_agent_from_ending() -> None:
    frame = scripted_frame(lambda: None)
    forever = threading.Event()
    agent = Agent(frame, SystemClock(), lambda records: assert_waits(forever), look_s=0.05)
    began = time.monotonic()
    agent.run(lambda: time.monotonic() - began > 1)
    assert agent.stalled == "stuck in publishing"
    assert time.monotonic() - began < 20
    forever.set()


def assert_waits(event: threading.Event) -> None:
    """Wait for `event`, which must come."""
    assert event.wait(60)


def test_what_emit_raises_ends_the_agent(tmp_path: Path) -> None:
    run = Run(tmp_path)

    def emit(records: Sequence[Telemetry]) -> None:
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        Agent(run.frame, run.clock, emit).run(lambda: False)


def test_rounding_keeps_twelve_bits() -> None:
    values = np.random.default_rng(1).lognormal(0, 20, 100_000).astype(np.float32)
    rounded = round_mantissa(values)
    assert np.max(np.abs(rounded - values) / values) <= 2**-13
    assert not (rounded.view(np.uint32) & 0x7FF).any()
    special = np.array([0.0, np.nan, 1.0, 4096.0, -2.5], np.float32)
    np.testing.assert_array_equal(round_mantissa(special), special)


def record(start_s: int, host: str = "a", session: str = "s", sequence: int = 0) -> Telemetry:
    """A record without metrics."""
    return Telemetry("cpu", host, session, sequence, start_s * SECOND_NS, 100, 10, {}, {})


def test_replay_as_it_was() -> None:
    records = [record(5), record(6, host="b")]
    assert list(readdress(records)) == records


def test_replay_moved_to_now() -> None:
    moved = list(readdress([record(5), record(7), record(7, session="t")], "x", now_ns=1000 * SECOND_NS + 7))
    assert [item.start_ns // SECOND_NS for item in moved] == [1000, 1002, 1002]
    assert {item.host for item in moved} == {"x"}
    assert moved[0].session == moved[1].session != moved[2].session
    assert not {"s", "t"} & {item.session for item in moved}


def test_replay_does_not_merge_hosts() -> None:
    with pytest.raises(ReplayError, match="holds a and b"):
        list(readdress([record(5), record(6, host="b")], "x"))


@pytest.mark.parametrize(("speed", "expected"), [(1.0, [0.0, 1.0, 3.0]), (2.0, [0.0, 0.5, 1.5]), (math.inf, [0.0] * 3)])
def test_replay_keeps_time(speed: float, expected: list[float]) -> None:
    clock = FakeClock()

    def now() -> float:
        return (clock.monotonic - 5_000 * SECOND_NS) / SECOND_NS

    times = [now() for _ in paced([record(5), record(6), record(8)], speed, now, clock.sleep)]
    assert times == pytest.approx(expected)


def test_unknown_collector_in_disable_is_refused() -> None:
    from producers.wiring import new_frame

    with pytest.raises(SettingsError, match="no collector fans; there are stat, "):
        new_frame(AgentSettings(disable=("stat", "fans")), SystemClock())
