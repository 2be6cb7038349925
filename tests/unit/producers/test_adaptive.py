"""Adaptive sampling: falling slow, coming back, whose episodes count, and the partition of a host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from producers.adaptive import INDICATORS, QUIET_S, Pace
from producers.agent import Agent
from producers.attention import AFTER_S, FORGET_S, Attention
from producers.collectors import COLLECTORS
from producers.frame import Frame, Identity
from producers.partition import murmur2, partition_of
from producers.reading import Host
from schemas.catalogue import catalogue
from schemas.records import Telemetry
from schemas.settings import AgentSettings
from tests.unit.producers.episodes import episode
from tests.unit.producers.tree import SECOND_NS, START_NS, FakeClock, rewrite

SOURCES = ("stat", "pressure", "netdev", "diskstats")
NET_DEV = """Inter-|   Receive                            |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
"""


@dataclass(frozen=True)
class Busy:
    """How busy a host is: cores in use, share of the time in which some task is stalled, MB/s, tasks."""

    cores: float = 0.02
    stalled: float = 0.0
    megabytes: float = 0.0
    running: int = 1


CALM = Busy()


class Quiet:
    """A host whose counters follow the clock, and its agent at 100 and 500 ms, slow after QUIET_S. `busy` says how
    busy it is: cores in use, share of the time stalled, MB/s, tasks; `changes` what it becomes at times of the wall
    clock.
    """

    def __init__(
        self, root: Path, *, attention: bool = False, adaptive: bool = True, quiet_ms: int = 500, quiet_s: float = 6.0
    ) -> None:
        self.root = root
        self.clock = FakeClock(START_NS + 123_000_000)
        self.clock.on_sleep = self.write
        self.busy = CALM
        self.changes: dict[int, Busy] = {}
        self.attention = attention
        self.totals = np.zeros(3)
        self.written_ns = self.clock.wall
        for directory in ("proc/pressure", "proc/net"):
            (root / directory).mkdir(parents=True)
        self.write()
        collectors = [collector for collector in COLLECTORS if collector.name in SOURCES]
        settings = AgentSettings(adaptive=adaptive, quiet_period_ms=quiet_ms)
        settings.check()
        host = Host({"proc": str(root / "proc")}, self.clock.monotonic_ns, settings=settings)
        self.frame = Frame(collectors, host, settings.period_ms, Identity("h", "s"))
        self.records: list[Telemetry] = []
        self.agent = Agent(self.frame, self.clock, self.emit, attention=lambda: self.attention, quiet_s=quiet_s)

    def emit(self, records: Sequence[Telemetry]) -> None:
        self.records += [record for record in records if record.subsystem == "cpu"]

    def write(self) -> None:
        now_ns = self.clock.wall
        for change_ns in sorted(time_ns for time_ns in self.changes if time_ns <= now_ns):
            self._pass(change_ns)
            self.busy = self.changes.pop(change_ns)
        self._pass(now_ns)
        cores, stalled, megabytes = self.totals
        idle = self.clock.monotonic // 5_000_000
        rewrite(
            self.root / "proc/stat",
            f"cpu  1 0 0 0 0 0 0 0 0 0\ncpu0 {round(100 * cores)} 0 0 {idle} 0 0 0 0 0 0\n"
            f"intr 1 2\nctxt 9\nprocesses 3\nprocs_running {self.busy.running}\nprocs_blocked 0\n",
        )
        some = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={round(1e6 * stalled)}\n"
        rewrite(self.root / "proc/pressure/cpu", some)
        rewrite(
            self.root / "proc/net/dev",
            f"{NET_DEV}  eth0: {round(1e6 * megabytes)} 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n",
        )
        rewrite(self.root / "proc/diskstats", "8 0 sda 2 0 9 6 0 0 0 0 1 3 4\n")

    def _pass(self, until_ns: int) -> None:
        rates = np.array([self.busy.cores, self.busy.stalled, self.busy.megabytes])
        self.totals += (until_ns - self.written_ns) / SECOND_NS * rates
        self.written_ns = until_ns

    def later(self, seconds: float, busy: Busy) -> int:
        """Become `busy` so long after START_NS; returns when that is."""
        time_ns = START_NS + round(seconds * SECOND_NS)
        self.changes[time_ns] = busy
        return time_ns

    def run(self, seconds: float) -> list[int]:
        """Go on; periods of the batches that came, ms."""
        before = len(self.records)
        end = self.clock.monotonic + round(seconds * SECOND_NS)
        self.agent.run(lambda: self.clock.monotonic >= end)
        return [record.period_ms for record in self.records[before:]]


def test_a_quiet_host_falls_slow_after_half_a_minute(tmp_path: Path) -> None:
    host = Quiet(tmp_path, quiet_s=QUIET_S)
    periods = host.run(40)
    assert QUIET_S == 30
    assert 29 <= periods.index(500) <= 32
    assert set(periods[: periods.index(500)]) == {100}
    assert set(periods[periods.index(500) :]) == {500}
    assert host.frame.host.vitals.period_ms == 500
    # Whole seconds, none of them twice or left out, each full, whatever the period; the last one was cut short.
    starts = [record.start_ns for record in host.records]
    assert np.diff(starts[:-1]).tolist() == [SECOND_NS] * (len(starts) - 2)
    assert all(start % SECOND_NS == 0 for start in starts)
    for record in host.records[:-1]:
        assert record.count * record.period_ms == 1000
        assert not np.isnan(record.metrics["cpu.time.user"]).any()
    assert [record.sequence for record in host.records] == list(range(len(host.records)))
    assert host.frame.missed == 0


def test_off_by_default(tmp_path: Path) -> None:
    assert not AgentSettings().adaptive
    assert set(Quiet(tmp_path, adaptive=False).run(10)) == {100}


@pytest.mark.parametrize(
    "busy", [Busy(cores=1.0), Busy(cores=8.0), Busy(stalled=0.3), Busy(megabytes=30.0), Busy(running=9)], ids=str
)
@pytest.mark.parametrize("phase_s", [0.05, 0.3, 0.55, 0.75])
def test_activity_brings_it_back_within_a_second(tmp_path: Path, busy: Busy, phase_s: float) -> None:
    host = Quiet(tmp_path)
    onset_ns = host.later(10 + phase_s, busy)
    host.run(14)
    slow = [record.start_ns for record in host.records if record.period_ms == 500]
    (first, *others) = [
        record.start_ns for record in host.records if record.period_ms == 100 and record.start_ns > slow[0]
    ]
    assert slow[-1] < first
    assert slow[0] < START_NS + 9 * SECOND_NS
    assert 0 < first - onset_ns <= SECOND_NS
    assert len(others) >= 2


def test_what_begins_just_before_a_second_is_seen_in_the_next(tmp_path: Path) -> None:
    host = Quiet(tmp_path)
    onset_ns = host.later(10.9, Busy(cores=1.0))
    host.run(14)
    first = next(r.start_ns for r in host.records if r.period_ms == 100 and r.start_ns > onset_ns)
    assert first - onset_ns == round(1.1 * SECOND_NS)


def test_steady_load_is_no_quiet(tmp_path: Path) -> None:
    host = Quiet(tmp_path)
    host.busy = Busy(cores=1.5)
    host.later(20, CALM)
    periods = host.run(29)
    assert set(periods[:19]) == {100}
    assert periods[-1] == 500


def test_a_host_that_is_never_still_has_a_quiet_of_its_own(tmp_path: Path) -> None:
    host = Quiet(tmp_path)
    host.busy = Busy(cores=0.3)
    # More than the floor, but not strange here; and then more than any quiet host does.
    host.later(12, Busy(cores=0.6))
    host.later(18, Busy(cores=1.1))
    periods = host.run(22)
    assert set(periods[9:16]) == {500}
    assert set(periods[18:]) == {100}


def test_one_busy_second_makes_it_wait_anew(tmp_path: Path) -> None:
    host = Quiet(tmp_path)
    host.later(4, Busy(cores=1.0))
    host.later(5, CALM)
    periods = host.run(15)
    assert set(periods[:10]) == {100}
    assert periods[-1] == 500


def test_an_open_episode_asks_for_a_close_look(tmp_path: Path) -> None:
    host = Quiet(tmp_path, attention=True)
    assert set(host.run(10)) == {100}
    host.attention = False
    assert host.run(10)[-1] == 500
    host.attention = True
    assert host.run(4)[-2:] == [100, 100]


def falls(periods: Sequence[int]) -> list[int]:
    """Seconds at which the period became longer."""
    return [index for index, (before, after) in enumerate(pairwise(periods), 1) if after > before]


def test_an_episode_that_follows_a_fall_makes_it_wait_longer(tmp_path: Path) -> None:
    host = Quiet(tmp_path)

    def emit(records: Sequence[Telemetry]) -> None:
        host.emit(records)
        host.attention = host.records[-1].period_ms == 500

    host.agent = Agent(host.frame, host.clock, emit, attention=lambda: host.attention, quiet_s=4.0)
    waits = np.diff(falls(host.run(70)))
    assert waits.tolist() == pytest.approx([9, 17, 33], abs=2)


def test_a_long_calm_forgives(tmp_path: Path) -> None:
    host = Quiet(tmp_path)
    troubled = True

    def emit(records: Sequence[Telemetry]) -> None:
        nonlocal troubled
        host.emit(records)
        slow = [record.period_ms == 500 for record in host.records]
        # Right after the first fall, and then only when it has been slow for half a minute.
        host.attention = slow[-1] and (troubled or all(slow[-30:]))
        troubled = troubled and not slow[-1]

    host.agent = Agent(host.frame, host.clock, emit, attention=lambda: host.attention, quiet_s=4.0)
    periods = host.run(65)
    first, second, third = falls(periods)[:3]
    assert second - first == pytest.approx(9, abs=2)
    rises = [index for index, (before, after) in enumerate(pairwise(periods), 1) if after < before]
    assert rises[1] - second >= 29
    assert third - rises[1] == pytest.approx(5, abs=1)


def test_a_host_that_tells_nothing_counts_as_active(tmp_path: Path) -> None:
    clock = FakeClock()
    frame = Frame((), Host({}, clock.monotonic_ns), 100, Identity("h", "s"))
    pace = Pace(frame, 500)
    for _ in range(60):
        clock.pass_ns(SECOND_NS)
        pace.look(clock.monotonic)
        assert pace.choose(clock.monotonic) == 100


def test_indicators_are_metrics_of_one_collector_each() -> None:
    for indicator in INDICATORS:
        assert {catalogue()[metric].kind == "counter" for metric in indicator.metrics} == {indicator.counter}
        owners = [collector for collector in COLLECTORS if set(indicator.metrics) & set(collector.metrics)]
        assert len(owners) == 1 or (not owners and indicator.metrics == ("gpu.util",))
        for owner in owners:
            assert set(indicator.metrics) <= set(owner.metrics)


@pytest.mark.parametrize("quiet_ms", [200, 1000])
def test_other_periods(tmp_path: Path, quiet_ms: int) -> None:
    host = Quiet(tmp_path, quiet_ms=quiet_ms)
    host.later(12, Busy(cores=1.0))
    periods = host.run(16)
    assert set(periods[8:11]) == {quiet_ms}
    assert [record.count for record in host.records[8:11]] == [1000 // quiet_ms] * 3
    assert periods[-1] == 100


def test_attention_lasts_a_minute_longer_than_the_episode() -> None:
    now = 0.0
    attention = Attention("a", lambda: now)
    assert not attention()
    attention.take(episode("opened", host="b"))
    assert not attention()
    attention.take(episode("opened"))
    attention.take(episode("opened", name="e2"))
    now = 500.0
    attention.take(episode("closed"))
    now += AFTER_S + 1
    attention.take(episode("updated", name="e2"))
    assert attention()
    attention.take(episode("closed", name="e2"))
    now += AFTER_S - 1
    assert attention()
    now += 2
    assert not attention()


def test_an_episode_without_an_end_is_forgotten() -> None:
    now = 0.0
    attention = Attention("a", lambda: now)
    attention.take(episode("opened"))
    now = FORGET_S - 1
    attention.take(episode("updated"))
    now += FORGET_S - 1
    assert attention()
    now += 2
    assert not attention()


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka(key: bytes, expected: int) -> None:
    """Values of Kafka's own test of its Utils.murmur2."""
    assert murmur2(key) == expected % 2**32
    assert partition_of(key, 7) == (expected & 0x7FFFFFFF) % 7


def test_keys_spread_over_partitions() -> None:
    counts = np.bincount([partition_of(f"host-{number}-{os.sep}".encode(), 8) for number in range(8000)], minlength=8)
    assert counts.min() > 800
