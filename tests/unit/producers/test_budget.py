"""The budget: what is given up, in which order, and when it comes back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from producers.budget import ESSENTIAL, Budget
from producers.collector import Collector, Layout, Parser, Reading, plain
from producers.collectors import COLLECTORS
from producers.feed import NORMAL, SHED, SLOWED
from producers.frame import Frame, Identity
from producers.reading import Host, Texts
from producers.usage import Usage
from tests.unit.producers.tree import SECOND_NS, FakeClock, rewrite


@dataclass
class Spender:
    """A collector whose parser takes `cost_ms` of the fake processor for each reading of a text of its own."""

    name: str
    cost_ms: float
    values: int = 1
    every_ms: int = 0


@dataclass
class Run:
    """A frame of spenders at 100 ms, and its budget, on fake clocks; `other_ms` is spent a second by nobody's fault."""

    root: Path
    spenders: list[Spender]
    pct: float = 5.0
    mb: float = 0.0
    other_ms: float = 0.0
    memory_mb: float = 50.0
    cpu_ns: int = 0
    seconds: int = 0
    levels: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        host = Host({"proc": str(self.root)}, self.clock.monotonic_ns)
        collectors = [self.collector(spender) for spender in self.spenders]
        self.frame = Frame(collectors, host, 100, Identity("h", "s"), cpu_clock=lambda: self.cpu_ns)
        self.budget = Budget(self.frame, self.pct, self.mb, lambda: (self.cpu_ns / 1e9, self.memory_mb * 1e6 / 1024))

    def collector(self, spender: Spender) -> Collector:
        channels = Layout(tuple(("disk.reads", f"d{index}") for index in range(spender.values)))

        def parse(texts: Texts) -> Reading:
            self.cpu_ns += round(spender.cost_ms * 1e6)
            return channels, [float(self.seconds)] * spender.values

        def make() -> Parser:
            return parse

        path = self.root / spender.name
        path.write_text("x")
        return Collector(
            spender.name, (f"proc/{spender.name}",), plain(make), ("disk.reads",), every_ms=spender.every_ms
        )

    def run(self, seconds: int) -> None:
        """Go on for so long; levels are noted when they change."""
        for _ in range(seconds):
            for row in range(10):
                # Texts that differ are parsed, each anew.
                for spender in self.spenders:
                    rewrite(self.root / spender.name, f"{self.seconds} {row}")
                self.frame.sample(10 * self.seconds + row, row)
                self.clock.pass_ns(SECOND_NS // 10)
            self.cpu_ns += round(self.other_ms * 1e6)
            self.frame.prime(10)
            self.seconds += 1
            self.budget.look(self.clock.monotonic)
            levels = self.frame.levels()
            if not self.levels or levels != self.levels[-1]:
                self.levels.append(levels)

    def until(self, done: Callable[[], bool], seconds: int) -> int:
        """Go on until `done`; how long it took."""
        began = self.seconds
        while not done():
            assert self.seconds - began < seconds, self.frame.levels()
            self.run(1)
        return self.seconds - began

    def level(self, name: str) -> int:
        return self.frame.levels()[name]


def test_within_the_budget_nothing_happens(tmp_path: Path) -> None:
    run = Run(tmp_path, [Spender("a", 1.0), Spender("b", 3.0)])
    run.run(150)
    assert run.levels == [{"a": NORMAL, "b": NORMAL}]
    assert not run.frame.host.notices.drain("h", "s", "")


def test_the_dearest_is_slowed_down_then_shed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path, [Spender("wild", 60.0), Spender("fair", 0.2), Spender("stat", 5.0)])
    # 65 % of a core: what the budget allows in a minute is spent in 5 s.
    assert run.until(lambda: run.level("wild") == SLOWED, 30) <= 10
    # Read once a second it takes 6 %, together 11 %: still too much.
    assert run.until(lambda: run.level("wild") != SLOWED, 60) >= 20
    assert run.level("wild") == SHED
    assert run.frame.host.vitals.shed == 1
    events = run.frame.host.notices.drain("h", "s", "")
    assert [(event.kind, event.instance, event.subsystem) for event in events] == [
        ("collector_shed", "wild", "storage")
    ] * 2
    assert "wild: slowed down, read every 1000 ms: 6" in events[0].message
    assert "the budget is 5 %; it took 60" in events[0].message
    assert "wild: switched off: " in caplog.text


def test_those_that_matter_are_all_slowed_before_one_is_shed(tmp_path: Path) -> None:
    run = Run(tmp_path, [Spender("dear", 20.0), Spender("rich", 30.0, values=100), Spender("cheap", 0.1)], pct=1.0)
    run.until(lambda: SHED in run.frame.levels().values(), 600)
    order = [levels for levels in run.levels if SHED not in levels.values()]
    # The value of `dear` costs seventy times that of `rich`, though `rich` takes more; `cheap` saves nothing.
    assert order == [
        {"dear": NORMAL, "rich": NORMAL, "cheap": NORMAL},
        {"dear": SLOWED, "rich": NORMAL, "cheap": NORMAL},
        {"dear": SLOWED, "rich": SLOWED, "cheap": NORMAL},
    ]
    assert run.levels[-1] == {"dear": SHED, "rich": SLOWED, "cheap": NORMAL}


def test_essentials_are_never_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path, [Spender(name, 10.0) for name in sorted(ESSENTIAL)])
    run.run(200)
    assert run.levels == [dict.fromkeys(sorted(ESSENTIAL), NORMAL)]
    # Said once, not every minute.
    assert caplog.text.count("no collector is worth giving up") == 1


def test_essentials_are_collectors() -> None:
    assert {collector.name for collector in COLLECTORS} >= ESSENTIAL


def test_what_has_no_room_stays_away(tmp_path: Path) -> None:
    run = Run(tmp_path, [Spender("wild", 60.0), Spender("stat", 0.1)])
    run.until(lambda: run.level("wild") == SHED, 100)
    run.run(400)
    assert run.level("wild") == SHED


def test_what_was_shed_comes_back_by_steps(tmp_path: Path) -> None:
    run = Run(tmp_path, [Spender("wild", 3.0), Spender("stat", 0.1)], other_ms=60.0)
    run.until(lambda: run.level("wild") == SHED, 200)
    run.other_ms = 0.0
    run.until(lambda: run.level("wild") == NORMAL, 1000)
    assert [levels["wild"] for levels in run.levels] == [NORMAL, SLOWED, SHED, SLOWED, NORMAL]


def test_calm_brings_back_and_back_off_doubles(tmp_path: Path) -> None:
    run = Run(tmp_path, [Spender("wild", 5.0), Spender("stat", 0.1)], pct=8.0)
    run.other_ms = 60.0  # a flush of the spool, say
    run.until(lambda: run.level("wild") == SLOWED, 120)
    run.other_ms = 0.0
    first = run.until(lambda: run.level("wild") == NORMAL, 400)
    assert 295 <= first <= 330
    run.other_ms = 60.0
    run.until(lambda: run.level("wild") == SLOWED, 120)
    run.other_ms = 0.0
    second = run.until(lambda: run.level("wild") == NORMAL, 700)
    assert 595 <= second <= 630
    kinds = [event.kind for event in run.frame.host.notices.drain("h", "s", "")]
    assert kinds == ["collector_shed", "collector_back"] * 2


def test_memory_sheds_the_widest(tmp_path: Path) -> None:
    run = Run(tmp_path, [Spender("few", 0.5), Spender("many", 0.2, values=50), Spender("stat", 0.1, values=99)])
    run.budget = Budget(run.frame, 0.0, 100.0, lambda: (run.cpu_ns / 1e9, run.memory_mb * 1e6 / 1024))
    run.run(100)
    assert SHED not in run.levels[-1].values()
    run.memory_mb = 120.0
    run.until(lambda: run.level("many") == SHED, 70)
    assert run.levels[-1] == {"few": NORMAL, "many": SHED, "stat": NORMAL}
    run.memory_mb = 60.0
    run.until(lambda: run.level("many") == NORMAL, 700)


def test_no_limit_is_none(tmp_path: Path) -> None:
    run = Run(tmp_path, [Spender("wild", 90.0)], pct=0.0)
    run.run(130)
    assert run.levels == [{"wild": NORMAL}]


def test_a_collector_that_burns_is_given_up_in_earnest(caplog: pytest.LogCaptureFixture) -> None:
    """Real clocks: a parser that spins for 20 ms, beside /proc/stat."""

    def spin(texts: Texts) -> Reading:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return Layout((("mem.swap_free", ""),)), [1.0]

    caplog.set_level(logging.WARNING)
    burns = Collector("burns", ("proc/uptime",), plain(lambda: spin), ("mem.swap_free",))
    stat = next(collector for collector in COLLECTORS if collector.name == "stat")
    frame = Frame((stat, burns), Host({"proc": "/proc"}, time.monotonic_ns), 50, Identity("h", "s"))
    budget = Budget(frame, 10.0, 0.0, Usage("/proc"), look_s=0.2, window_s=2.0)
    deadline = time.monotonic() + 30
    tick = 0
    while frame.levels()["burns"] == NORMAL and time.monotonic() < deadline:
        frame.sample(tick, tick % 20)
        frame.prime(20)
        budget.look(time.monotonic_ns())
        time.sleep(0.01)
        tick += 1
    assert frame.levels() == {"stat": NORMAL, "burns": SLOWED}
    assert frame.costs()["burns"] > 10 * frame.costs()["stat"]
    assert "burns: slowed down, read every 500 ms" in caplog.text
    frame.close()
