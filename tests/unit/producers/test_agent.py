"""The loop: the grid, late wake-ups, clock steps, batches of every period; and replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from producers.agent import Agent
from producers.rates import round_mantissa
from producers.replay import ReplayError, paced, readdress
from schemas.records import Telemetry
from schemas.settings import AgentSettings, SettingsError
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

    def emit(self, records: Sequence[Telemetry]) -> None:
        self.records += records

    def wake(self) -> None:
        self.wakes += 1
        self.clock.pass_ns(self.at.get(self.wakes, 0))
        self.clock.wall += self.step.get(self.wakes, 0)

    def run(self, seconds: float) -> list[Telemetry]:
        """Records of cpu."""
        end = self.clock.monotonic + round(seconds * SECOND_NS)
        self.agent.run(lambda: self.clock.monotonic >= end)
        return [record for record in self.records if record.subsystem == "cpu"]


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
    assert records[-1].dropped == 2
    assert sum(10 - len(load_rows(record)) for record in records[:5]) == 2
    assert [record.sequence for record in records] == list(range(len(records)))


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_clock_steps_start_anew(tmp_path: Path, step_s: int, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path)
    run.step = {33: step_s * SECOND_NS}
    records = run.run(10)
    assert run.agent.steps == 1
    assert f"the clock was set by {step_s:+.1f} s" in caplog.text
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
    from producers.clock import SystemClock
    from producers.wiring import new_frame

    with pytest.raises(SettingsError, match="no collector fans; there are stat, "):
        new_frame(AgentSettings(disable=("stat", "fans")), SystemClock())
