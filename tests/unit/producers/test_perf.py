"""Counters by perf_event_open: a small kernel that counts as the real one does, and everything that it may refuse."""

from __future__ import annotations

import errno
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from producers.collector import ParseError
from producers.collectors.perf import MADE, PERF, derive
from producers.frame import Frame, Identity
from producers.perf.events import APERF, MPERF, TSC, groups
from producers.perf.kernel import Event, explain
from producers.perf.pmu import cpu_list, encode, field_bits, read_pmu
from producers.perf.source import PerfSource
from producers.reading import Host
from schemas.catalogue import catalogue
from tests.unit.producers.tree import FakeClock

MS = 1_000_000
SPR = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: fpu\n\nprocessor\t: 1\nmodel\t: 1\n"
# Events a second of running time, by (type, config).
CORE_RATES = {
    (0, 0): 3e9,
    (0, 1): 6e9,
    (0, 9): 2e9,
    (0, 8): 3e8,
    (4, 0x060006A3): 6e8,
    (0, 2): 1e6,
    (0, 3): 2.5e5,
    (0, 4): 1e9,
    (0, 5): 1e7,
    (3, 0x10002): 2e5,
    (3, 0x10006): 1e4,
    (3, 0x10003): 3e5,
    (3, 0x10000): 5e6,
}
SOFTWARE_RATES = {(1, 3): 1000.0, (1, 4): 10.0, (1, 5): 500.0, (1, 6): 0.0}


@dataclass
class Counter:
    """What a descriptor stands for."""

    event: Event
    cpu: int
    leader: int
    enabled: int = 1000
    running: int = 1000
    count: float = 0.0
    dead: bool = False


@dataclass
class FakeKernel:
    """Counts by `rates`; refuses as told: an error number by (type, config), or what `refuse` says of an open.

    Events of the types `starved` have not run when they are read for the first time.
    """

    rates: dict[tuple[int, int], float] = field(default_factory=lambda: CORE_RATES | SOFTWARE_RATES)
    errors: dict[tuple[int, int], int] = field(default_factory=dict)
    refuse: Callable[[Event, int, int], int] = lambda event, cpu, leader: 0
    starved: frozenset[int] = frozenset()
    descriptors: int = 1024
    opens: int = 0
    counters: dict[int, Counter] = field(default_factory=dict)
    broken: dict[int, bytes | OSError] = field(default_factory=dict)
    highest: int = 100

    def open(self, event: Event, cpu: int, leader: int) -> int:
        """As in Kernel."""
        self.opens += 1
        key = event.type, event.config
        number = self.errors.get(key, 0) or self.refuse(event, cpu, leader)
        if not number and key not in self.rates:
            number = errno.ENOENT
        if number:
            raise OSError(number, "refused")
        self.highest += 1
        self.counters[self.highest] = Counter(event, cpu, leader, running=0 if event.type in self.starved else 1000)
        return self.highest

    def read(self, descriptor: int, size: int) -> bytes:
        """As in Kernel."""
        if descriptor in self.broken:
            answer = self.broken[descriptor]
            if isinstance(answer, OSError):
                raise answer
            return answer
        head = self.counters[descriptor]
        group = [head, *(counter for counter in self.counters.values() if counter.leader == descriptor)]
        text = struct.pack(f"{3 + len(group)}Q", len(group), head.enabled, head.running, *(int(c.count) for c in group))
        if len(text) > size:
            raise OSError(errno.ENOSPC, "no space")
        return text

    def close(self, descriptor: int) -> None:
        """As in Kernel."""
        del self.counters[descriptor]

    def limit(self) -> int:
        """As in Kernel."""
        return self.descriptors

    def advance(self, enabled_ns: int, running: Callable[[Event], float] = lambda event: 1.0) -> None:
        """Let time pass; each event runs its share of it."""
        for counter in self.counters.values():
            if not counter.dead:
                share = running(counter.event)
                counter.enabled += enabled_ns
                counter.running += round(enabled_ns * share)
                counter.count += self.rates[counter.event.type, counter.event.config] * enabled_ns * share * 1e-9

    def leader(self, metric: str, cpu: int = 0) -> int:
        """Descriptor of the counter of `metric` on `cpu`."""
        return next(fd for fd, it in self.counters.items() if it.event.metric == metric and it.cpu == cpu)


class Bench:
    """The collector in a frame, over a fake kernel and a made-up /proc and /sys."""

    def __init__(self, root: Path, kernel: FakeKernel | None = None, *, cpus: str = "0-1", cpuinfo: str = SPR) -> None:
        self.root = root
        self.kernel = kernel or FakeKernel()
        self.clock = FakeClock()
        self.write("proc/cpuinfo", cpuinfo)
        self.write("proc/sys/kernel/perf_event_paranoid", "2\n")
        self.online(cpus)
        roots = {"proc": str(root / "proc"), "sys": str(root / "sys")}
        self.host = Host(roots, self.clock.monotonic_ns)
        self.source = PerfSource(PERF, self.host, self.kernel)
        collector = replace(PERF, source=lambda collector, host: self.source)
        self.frame = Frame((collector,), self.host, 100, Identity("host-1", "session-1"))
        self.tick = 0

    def write(self, path: str, text: str) -> None:
        """Put a file there."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def online(self, cpus: str) -> None:
        """Say which CPUs are online."""
        self.write("sys/devices/system/cpu/online", f"{cpus}\n")

    def pmu(self, name: str, number: int, events: dict[str, str], fields: dict[str, str], cpumask: str = "") -> None:
        """Add a unit."""
        folder = f"sys/bus/event_source/devices/{name}"
        self.write(f"{folder}/type", f"{number}\n")
        for kind, files in (("events", events), ("format", fields)):
            for file, text in files.items():
                self.write(f"{folder}/{kind}/{file}", f"{text}\n")
        if cpumask:
            self.write(f"{folder}/cpumask", f"{cpumask}\n")

    def sample(
        self, ms: int = 1000, running: Callable[[Event], float] = lambda event: 1.0
    ) -> dict[tuple[str, str], float]:
        """What is published of a sample taken after `ms`: channels with a value."""
        self.kernel.advance(ms * MS, running)
        self.clock.pass_ns(ms * MS)
        self.tick += ms // 100
        self.frame.sample(self.tick, 0)
        return {
            (metric, instance): value
            for record in self.frame.cut(self.clock.wall_ns(), 1)
            for metric, matrix in record.metrics.items()
            for instance, value in zip(record.instances[catalogue()[metric].dimension], matrix[0].tolist(), strict=True)
            if not math.isnan(value)
        }


def near(value: float) -> object:
    """Rates are published with 12 bits of mantissa."""
    return pytest.approx(value, rel=3e-4)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Two CPUs with every counter."""
    return Bench(tmp_path)


def test_attributes_are_what_the_kernel_reads() -> None:
    event = Event("m", 4, 0x060006A3, 7, 8)
    assert len(event.attributes()) == 72
    assert struct.unpack("=IIQQQQQIIQQ", event.attributes()) == (4, 72, 0x060006A3, 0, 0, 11, 0, 0, 0, 7, 8)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [(b"0\n", (0,)), (b"0-3,8\n", (0, 1, 2, 3, 8)), (b"0,24\n", (0, 24)), (b"\n", ()), (b"2-1", ())],
)
def test_cpu_lists(text: bytes, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus


@pytest.mark.parametrize("text", [b"a", b"0-", b"0x3", b"0 1"])
def test_wrong_cpu_lists_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        cpu_list(text)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        (b"config:0-7\n", ("config", ((0, 7),))),
        (b"config:23\n", ("config", ((23, 23),))),
        (b"config:0-7,32-35\n", ("config", ((0, 7), (32, 35)))),
        (b"config1:0-63", ("config1", ((0, 63),))),
        (b"config2:1", ("config2", ((1, 1),))),
    ],
)
def test_formats(text: bytes, bits: tuple[str, tuple[tuple[int, int], ...]]) -> None:
    assert field_bits(text) == bits


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"config", b"config:", b"config:a-b", b"config:8-3", b"config:0-64", b"config9:0", b"\xff:0"]
)
def test_wrong_formats_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        field_bits(text)


INTEL = {
    "event": b"config:0-7",
    "umask": b"config:8-15",
    "edge": b"config:18",
    "cmask": b"config:24-31",
    "offcore_rsp": b"config1:0-63",
}
AMD = {"event": b"config:0-7,32-35", "umask": b"config:8-15"}
ARM = {"event": b"config:0-15", "long": b"config1:0", "threshold": b"config1:5-16"}


@pytest.mark.parametrize(
    ("text", "fields", "config", "config1"),
    [
        (b"event=0x3c,umask=0x0\n", INTEL, 0x3C, 0),
        (b"event=0xa3,umask=0x06,cmask=6", INTEL, 0x060006A3, 0),
        (b"event=0x3c,edge", INTEL, 0x4003C, 0),
        (b"event=0xb7,umask=1,offcore_rsp=0x3fbfc00001", INTEL, 0x1B7, 0x3FBFC00001),
        (b"event=0x187,umask=0x2", AMD, 0x1_0000_0287, 0),
        (b"event=0x0011", ARM, 0x11, 0),
        (b"event=0x8,threshold=5", ARM, 8, 5 << 5),
        (b"config=0x1234,config1=0x5", {}, 0x1234, 5),
    ],
)
def test_codes_of_events(text: bytes, fields: dict[str, bytes], config: int, config1: int) -> None:
    words = encode(text, {name: field_bits(bits) for name, bits in fields.items()})
    assert (words["config"], words["config1"], words["config2"]) == (config, config1, 0)


@pytest.mark.parametrize(
    "text",
    [b"", b"\n", b"event=", b"event=0xzz", b"event=0x100", b"event=?", b"event=-1", b"ldlat=3", b"event=1,", b"\xff=1"],
)
def test_wrong_events_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(text, {"event": field_bits(b"config:0-7")})


def test_every_counter_has_its_rate_and_ratios_are_made(bench: Bench) -> None:
    bench.sample()
    found = bench.sample()
    for cpu in ("cpu0", "cpu1"):
        assert found["cpu.perf.cycles", cpu] == near(3e9)
        assert found["cpu.perf.node_load_misses", cpu] == near(1e4)
        assert found["cpu.perf.context_switches", cpu] == near(1000)
        assert found["cpu.perf.major_faults", cpu] == 0
        assert found["cpu.perf.ipc", cpu] == near(2)
        assert found["cpu.perf.cache_miss_pct", cpu] == near(25)
        assert found["cpu.perf.branch_miss_pct", cpu] == near(1)
        assert found["cpu.perf.l3_stall_pct", cpu] == near(20)
        assert found["cpu.perf.running_pct", cpu] == 100
    assert {metric for metric, _ in found} == {name for name in PERF.metrics if name.startswith("cpu.perf.")}
    assert not bench.frame.notes()
    assert not bench.frame.problems()


def test_the_collector_fills_all_its_metrics_of_the_catalogue() -> None:
    metrics = catalogue()
    assert set(PERF.metrics) <= set(metrics)
    assert {name for name in metrics if name.startswith(("cpu.perf.", "mem.bw."))} < set(PERF.metrics)


def test_one_event_that_the_processor_lacks_drops_only_itself(bench: Bench) -> None:
    bench.kernel.errors = {(0, 9): errno.ENOENT, (0, 8): errno.EOPNOTSUPP}
    bench.sample()
    found = bench.sample()
    assert found["cpu.perf.cycles", "cpu1"] == near(3e9)
    assert found["cpu.perf.l3_miss_stall_cycles", "cpu1"] == near(6e8)
    assert "cpu.perf.ref_cycles" not in {metric for metric, _ in found}
    assert bench.frame.notes() == [
        "perf: this machine has no such counter: no cpu.perf.ref_cycles, cpu.perf.stalled_cycles_backend"
    ]
    assert not bench.frame.errors()


def test_an_event_that_one_cpu_lacks_is_absent_there(bench: Bench) -> None:
    bench.kernel.refuse = lambda event, cpu, leader: errno.ENOENT if (event.config, cpu) == (0, 1) else 0
    bench.sample()
    found = bench.sample()
    assert found["cpu.perf.ipc", "cpu0"] == near(2)
    assert ("cpu.perf.ipc", "cpu1") not in found
    assert found["cpu.perf.instructions", "cpu1"] == near(6e9)
    assert "on some CPUs" in bench.frame.notes()[0]


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_machine_without_a_pmu_is_normal(bench: Bench, number: int) -> None:
    bench.kernel.errors = dict.fromkeys(CORE_RATES, number)
    bench.sample()
    opens = bench.kernel.opens
    found = bench.sample()
    bench.sample()
    assert {metric for metric, _ in found} == {
        f"cpu.perf.{name}" for name in ("context_switches", "migrations", "minor_faults", "major_faults")
    }
    (note,) = bench.frame.notes()
    assert "usual in a virtual machine: no cpu.perf.cycles, cpu.perf.instructions" in note
    assert not bench.frame.errors()
    assert not bench.frame.problems()
    # Asked once, and again only after a while.
    assert bench.kernel.opens == opens


def test_a_group_that_is_too_much_for_the_processor_is_split(bench: Bench) -> None:
    def two_at_most(event: Event, cpu: int, leader: int) -> int:
        others = sum(counter.leader == leader for counter in bench.kernel.counters.values())
        return errno.EINVAL if event.type != 1 and leader >= 0 and others >= 1 else 0

    bench.kernel.refuse = two_at_most
    bench.sample()
    found = bench.sample()
    assert {metric for metric, _ in found} == {name for name in PERF.metrics if name.startswith("cpu.perf.")}
    assert found["cpu.perf.ipc", "cpu0"] == near(2)
    assert not bench.frame.notes()


def test_multiplexed_counts_are_scaled_by_the_interval(bench: Bench) -> None:
    def third(event: Event) -> float:
        return 0.3 if event.type != 1 else 1.0

    bench.kernel.rates[0, 0] = 1000 / 0.03
    bench.sample(500)
    # 1000 counted in 30 of each 100 ms: 3333 in 100 ms.
    found = bench.sample(500, third)
    assert found["cpu.perf.running_pct", "cpu0"] == near(30)
    assert found["cpu.perf.cycles", "cpu0"] == near(1000 * 100 / 30 / 0.1)
    # Software events never have to wait.
    assert found["cpu.perf.context_switches", "cpu0"] == near(1000)


def test_the_past_does_not_bend_the_scaling(bench: Bench) -> None:
    bench.sample(500)
    for _ in range(10):
        bench.sample(500)
    found = bench.sample(500, lambda event: 0.5)
    assert found["cpu.perf.cycles", "cpu0"] == near(3e9)
    found = bench.sample(500)
    assert found["cpu.perf.cycles", "cpu0"] == near(3e9)


def test_a_group_that_did_not_run_is_absent_and_not_zero(bench: Bench) -> None:
    def waits(event: Event) -> float:
        return 0.0 if event.type in (0, 4) and event.config in (0, 1, 8, 9, 0x060006A3) else 1.0

    bench.sample()
    bench.sample()
    found = bench.sample(running=waits)
    assert ("cpu.perf.cycles", "cpu0") not in found
    assert ("cpu.perf.ipc", "cpu0") not in found
    assert found["cpu.perf.running_pct", "cpu0"] == 0
    assert found["cpu.perf.branches", "cpu0"] == near(1e9)
    # The next rate spans both seconds, half of which was counted.
    found = bench.sample()
    assert found["cpu.perf.cycles", "cpu0"] == near(3e9)


def test_a_group_that_never_gets_a_counter_is_explained(bench: Bench) -> None:
    bench.kernel.starved = frozenset({3})
    first = bench.source.read(bench.clock.monotonic_ns())
    assert first is not None
    layout, values = PERF.parser()(first[1])
    absent = {channel for channel, value in zip(layout.channels, values, strict=True) if math.isnan(value)}
    assert ("cpu.perf.llc_load_misses", "cpu0") in absent
    assert ("cpu.perf.cycles", "cpu0") not in absent
    for _ in range(62):
        found = bench.sample(running=lambda event: 0.0 if event.type == 3 else 1.0)
    assert "cpu.perf.llc_load_misses" not in {metric for metric, _ in found}
    (note,) = bench.frame.notes()
    assert "kernel.nmi_watchdog" in note
    assert note.endswith(
        "no cpu.perf.llc_load_misses, cpu.perf.node_load_misses, cpu.perf.dtlb_load_misses, cpu.perf.l1d_load_misses"
    )


def test_cpus_go_and_come_back_without_a_spike(bench: Bench) -> None:
    for _ in range(3):
        bench.sample()
    bench.online("0")
    gone = bench.sample()
    assert {instance for _, instance in gone} == {"cpu0"}
    assert {counter.cpu for counter in bench.kernel.counters.values()} == {0}
    assert gone["cpu.perf.cycles", "cpu0"] == near(3e9)
    bench.online("0-1")
    samples = [bench.sample() for _ in range(5)]
    for found in samples:
        assert found["cpu.perf.cycles", "cpu0"] == near(3e9)
        assert found.get(("cpu.perf.cycles", "cpu1"), 3e9) == near(3e9)
    assert samples[-1]["cpu.perf.cycles", "cpu1"] == near(3e9)
    assert not bench.frame.errors()


def test_cpus_that_come_and_go_all_day_use_up_nothing(bench: Bench) -> None:
    bench.kernel.descriptors = 80
    for _ in range(10):
        bench.online("0")
        bench.sample()
        bench.online("0-1")
        bench.sample()
    bench.sample()
    assert bench.sample()["cpu.perf.l1d_load_misses", "cpu1"] == near(5e6)
    assert len(bench.kernel.counters) == 2 * len(bench.kernel.rates)
    assert not bench.frame.notes()


def test_a_new_cpu_is_counted(bench: Bench) -> None:
    bench.sample()
    bench.online("0-2")
    for _ in range(3):
        found = bench.sample()
    assert found["cpu.perf.instructions", "cpu2"] == near(6e9)


def test_a_cpu_that_went_and_came_back_unseen_is_opened_anew(bench: Bench) -> None:
    for _ in range(3):
        bench.sample()
    for counter in bench.kernel.counters.values():
        counter.dead = counter.cpu == 1
    values = [bench.sample().get(("cpu.perf.cycles", "cpu1")) for _ in range(14)]
    assert None in values
    assert [value for value in values if value is not None] == [near(3e9)] * sum(value is not None for value in values)
    assert values[-1] is not None
    # Groups that stood still are failures, once.
    assert bench.frame.errors() == {"perf": 4}


def test_a_counter_that_fell_gives_no_rate_for_that_interval(bench: Bench) -> None:
    for _ in range(3):
        bench.sample()
    bench.kernel.counters[bench.kernel.leader("cpu.perf.cycles")].count = 5.0
    # It counts 3e9 in the next second, less than it had before.
    found = bench.sample()
    assert ("cpu.perf.cycles", "cpu0") not in found
    assert ("cpu.perf.ipc", "cpu0") not in found
    assert found["cpu.perf.instructions", "cpu0"] == near(6e9)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.ENOSYS, errno.EMFILE, errno.ENFILE])
def test_refusals_are_explained_and_tried_again_after_a_minute(bench: Bench, number: int) -> None:
    bench.kernel.refuse = lambda event, cpu, leader: number
    assert not bench.sample()
    (problem,) = bench.frame.problems()
    assert problem.kind == "missing"
    assert explain(number, "2") in problem.reason
    opens = bench.kernel.opens
    for _ in range(58):
        assert not bench.sample()
    assert bench.kernel.opens == opens
    bench.kernel.refuse = lambda event, cpu, leader: 0
    for _ in range(4):
        found = bench.sample()
    assert found["cpu.perf.cycles", "cpu1"] == near(3e9)
    assert not bench.frame.problems()
    assert not bench.frame.notes()


def test_reasons_say_what_to_do() -> None:
    assert "kernel.perf_event_paranoid is 4" in explain(errno.EACCES, "4")
    assert "CAP_PERFMON" in explain(errno.EACCES, "")
    assert "seccomp" in explain(errno.EPERM, "2")
    assert "LimitNOFILE" in explain(errno.EMFILE, "2")
    assert explain(errno.EIO, "2") == "Input/output error"


def test_descriptors_are_left_for_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeKernel(descriptors=50), cpus="0-3")
    bench.sample()
    found = bench.sample()
    assert len(bench.kernel.counters) == 25
    assert found["cpu.perf.cycles", "cpu0"] == near(3e9)
    assert ("cpu.perf.cycles", "cpu3") not in found
    (note,) = bench.frame.notes()
    assert note.startswith("perf: on some CPUs too few file descriptors: raise LimitNOFILE")


def test_descriptors_that_ran_out_stop_the_opening_at_once(bench: Bench) -> None:
    bench.kernel.refuse = lambda event, cpu, leader: errno.EMFILE if len(bench.kernel.counters) >= 6 else 0
    bench.sample()
    assert bench.kernel.opens == 7
    assert len(bench.kernel.counters) == 6
    found = bench.sample()
    assert found["cpu.perf.context_switches", "cpu0"] == near(1000)


@pytest.mark.parametrize(
    "answer", [OSError(errno.ENOSPC, "no space"), OSError(errno.ENODEV, "gone"), b"", b"\0" * 24, b"\0" * 31]
)
def test_a_group_that_cannot_be_read_does_not_hide_the_others(bench: Bench, answer: bytes | OSError) -> None:
    for _ in range(3):
        bench.sample()
    bench.kernel.broken[bench.kernel.leader("cpu.perf.cycles", 1)] = answer
    found = bench.sample()
    assert ("cpu.perf.cycles", "cpu1") not in found
    assert found["cpu.perf.cycles", "cpu0"] == near(3e9)
    assert found["cpu.perf.branches", "cpu1"] == near(1e9)
    assert bench.frame.errors() == {"perf": 1}
    for _ in range(13):
        found = bench.sample()
    assert found["cpu.perf.cycles", "cpu1"] == near(3e9)
    assert bench.frame.errors() == {"perf": 1}


def test_all_descriptors_are_given_back(bench: Bench) -> None:
    bench.sample()
    assert bench.kernel.counters
    bench.frame.close()
    assert not bench.kernel.counters


def test_cpus_that_cannot_be_known_are_a_problem_until_they_can(bench: Bench) -> None:
    bench.write("sys/devices/system/cpu/online", "what?\n")
    assert not bench.sample()
    (problem,) = bench.frame.problems()
    assert "which CPUs are online cannot be read" in problem.reason
    bench.online("0-1")
    # What has nothing to read is looked at again every 10 s.
    bench.sample(11_000)
    for _ in range(3):
        found = bench.sample()
    assert found["cpu.perf.cycles", "cpu1"] == near(3e9)
    assert not bench.frame.problems()
    # Afterwards the counters that are open go on.
    bench.write("sys/devices/system/cpu/online", "")
    assert bench.sample()["cpu.perf.cycles", "cpu1"] == near(3e9)


@pytest.mark.parametrize(
    ("cpuinfo", "there"),
    [
        (SPR, True),
        (SPR.replace("143", "85"), True),
        (SPR.replace("143", "79"), False),
        (SPR.replace("GenuineIntel", "AuthenticAMD"), False),
        (SPR.replace("family\t: 6", "family\t: 15"), False),
        ("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\n", False),
        ("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t: x\n", False),
        ("", False),
    ],
)
def test_the_code_of_l3_stalls_is_used_only_where_it_is_known(tmp_path: Path, cpuinfo: str, there: bool) -> None:
    bench = Bench(tmp_path, cpuinfo=cpuinfo)
    bench.sample()
    metrics = {metric for metric, _ in bench.sample()}
    assert ("cpu.perf.l3_stall_pct" in metrics) is there
    assert "cpu.perf.cycles" in metrics


def test_clock_rates_are_made_from_aperf_and_mperf(bench: Bench) -> None:
    names = {"tsc": "event=0x00", "aperf": "event=0x01", "mperf": "event=0x02", "smi": "event=0x04"}
    bench.pmu("msr", 10, names, {"event": "config:0-63"})
    bench.kernel.rates |= {(10, 0): 2.4e9, (10, 1): 8e8, (10, 2): 6e8, (10, 4): 2.0}
    bench.sample()
    found = bench.sample()
    assert found["cpu.freq.busy_mhz", "cpu1"] == near(3200)
    assert found["cpu.freq.busy_tsc_pct", "cpu1"] == near(25)
    assert found["cpu.smi", "cpu1"] == near(2)
    assert not {TSC, APERF, MPERF} & {metric for metric, _ in found}
    # A CPU that slept all the time has no clock rate, but is known not to have been busy.
    bench.kernel.rates |= {(10, 1): 0.0, (10, 2): 0.0}
    found = bench.sample()
    assert ("cpu.freq.busy_mhz", "cpu1") not in found
    assert found["cpu.freq.busy_tsc_pct", "cpu1"] == 0
    # All of them and the software events are read at once.
    leaders = [counter for counter in bench.kernel.counters.values() if counter.cpu == 0 and counter.leader == -1]
    assert len(leaders) == 4


def test_a_virtual_machine_has_a_tsc_and_no_aperf(bench: Bench) -> None:
    bench.pmu("msr", 10, {"tsc": "event=0x00", "smi": "event=0x04"}, {"event": "config:0-63"})
    bench.kernel.rates |= {(10, 0): 2.4e9, (10, 4): 0.0}
    bench.sample()
    found = bench.sample()
    assert found["cpu.smi", "cpu0"] == 0
    assert not [metric for metric, _ in found if metric.startswith("cpu.freq")]


def test_c6_is_counted_for_the_cpus_of_the_mask(bench: Bench) -> None:
    bench.pmu("cstate_core", 15, {"c6-residency": "event=0x02"}, {"event": "config:0-63"}, cpumask="0")
    bench.kernel.rates[15, 2] = 1e9
    bench.sample()
    found = bench.sample()
    assert found["cpu.cstate.core_c6", "cpu0"] == near(1e9)
    assert ("cpu.cstate.core_c6", "cpu1") not in found
    assert found["cpu.perf.ipc", "cpu1"] == near(2)


IMC = {"event": "config:0-7", "umask": "config:8-15"}


def imc(read: str = "cas_count_read", write: str = "cas_count_write", unit: str = "MiB") -> dict[str, str]:
    """Events of a memory controller of Intel's servers."""
    names = {read: "event=0x04,umask=0x03", write: "event=0x04,umask=0x0c"}
    more = {f"{name}.{kind}": text for name in names for kind, text in (("scale", "6.103515625e-5"), ("unit", unit))}
    return names | more | {"clockticks": "event=0x0"}


def test_memory_controllers_count_once_a_socket(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cpus="0-3")
    for cpu in range(4):
        bench.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{cpu // 2}\n")
    for box in (0, 1):
        bench.pmu(f"uncore_imc_{box}", 20 + box, imc(), IMC, cpumask="0,2")
        bench.kernel.rates |= {(20 + box, 0x304): 2**24, (20 + box, 0xC04): 2**23 * box}
    # Sees the same traffic once more.
    bench.pmu("uncore_imc_free_running_0", 30, imc("read", "write"), IMC, cpumask="0,2")
    bench.kernel.rates |= {(30, 0x304): 2**25, (30, 0xC04): 2**25}
    bench.sample()
    found = bench.sample()
    controllers = {instance for metric, instance in found if metric == "mem.bw.read"}
    assert controllers == {f"package{package}-imc_{box}" for package in (0, 1) for box in (0, 1)}
    assert found["mem.bw.read", "package1-imc_0"] == near(1024)
    assert found["mem.bw.write", "package1-imc_1"] == near(512)
    assert found["mem.bw.write", "package0-imc_0"] == 0
    # The kernel names another CPU of the socket when this one goes; counting goes on from there.
    bench.online("1-3")
    for box in (0, 1):
        bench.write(f"sys/bus/event_source/devices/uncore_imc_{box}/cpumask", "1-2\n")
    for _ in range(3):
        found = bench.sample()
    assert found["mem.bw.read", "package0-imc_0"] == near(1024)
    assert not bench.frame.errors()


SCHEDULERS = {
    name.replace("sch0", scheduler): text.replace("0x04", code)
    for scheduler, code in (("sch0", "0x04"), ("sch1", "0x05"))
    for name, text in imc("cas_count_read_sch0", "cas_count_write_sch0").items()
}


@pytest.mark.parametrize(
    ("name", "events", "codes", "mib"),
    [
        ("uncore_imc", imc("data_reads", "data_writes"), {0x304: 2**24, 0xC04: 2**24}, 1024),
        ("uncore_imc_free_running", imc("data_read", "data_write"), {0x304: 2**24, 0xC04: 2**24}, 1024),
        ("uncore_imc_0", imc(unit="Bytes"), {0x304: 2**24, 0xC04: 2**24}, 2**-10),
        ("uncore_imc_0", SCHEDULERS, {0x304: 2**24, 0xC04: 2**24, 0x305: 2**23, 0xC05: 2**23}, 1536),
        ("amd_umc_3", {}, {0x10A: 2**24, 0x20A: 2**24}, 1024),
    ],
)
def test_controllers_of_several_makers(
    bench: Bench, name: str, events: dict[str, str], codes: dict[int, int], mib: float
) -> None:
    fields = {"event": "config:0-7", "rdwrmask": "config:8-9"} if name.startswith("amd") else IMC
    bench.pmu(name, 40, events, fields, cpumask="0")
    bench.kernel.rates |= {(40, code): rate for code, rate in codes.items()}
    bench.sample()
    found = bench.sample()
    instance = f"cpu0-{name.removeprefix('uncore_')}"
    assert found["mem.bw.read", instance] == near(mib)
    assert found["mem.bw.write", instance] == near(mib)
    assert found["cpu.perf.ipc", "cpu1"] == near(2)


def test_descriptions_that_make_no_sense_are_named_and_the_rest_goes_on(bench: Bench) -> None:
    bench.pmu("uncore_imc_0", 20, imc(), IMC, cpumask="0")
    bench.pmu("uncore_imc_1", 21, imc(unit="furlongs"), IMC, cpumask="0")
    bench.pmu("uncore_imc_2", 22, imc() | {"cas_count_read": "event=0x04,ch_mask=?"}, IMC, cpumask="0")
    bench.pmu("uncore_imc_3", 23, imc() | {"cas_count_read.scale": "much"}, IMC, cpumask="0")
    bench.pmu("uncore_imc_4", 24, imc(), IMC, cpumask="first")
    bench.pmu("uncore_imc_5", 25, imc(), {"event": "config:0-7", "umask": "config3:8-15"}, cpumask="0")
    bench.write("sys/bus/event_source/devices/uncore_imc_6/events/cas_count_read", "event=0x04")
    bench.write("sys/bus/event_source/devices/msr/type", "")
    bench.kernel.rates |= {(20 + box, code): 2**24 for box in range(6) for code in (0x304, 0xC04)}
    bench.sample()
    found = bench.sample()
    assert {instance for metric, instance in found if metric == "mem.bw.read"} == {"cpu0-imc_0"}
    assert {instance for metric, instance in found if metric == "mem.bw.write"} == {
        f"cpu0-imc_{box}" for box in (0, 2, 3)
    }
    assert found["cpu.perf.ipc", "cpu1"] == near(2)
    notes = "\n".join(bench.frame.notes())
    for word in ("furlongs", "imc_2/cas_count_read", "imc_3/cas_count_read", "imc_4", "'umask'", "imc_6", "msr"):
        assert word in notes


def test_units_without_files_are_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        read_pmu(str(tmp_path), "msr")
    found, flaws = groups({"sys": str(tmp_path), "proc": str(tmp_path)}, [3])
    assert {group.cpu for group in found} == {3}
    assert not flaws


def test_ratios_of_nothing_are_absent() -> None:
    parts = {part for part, _, _ in MADE.values()}
    wholes = {whole for _, whole, _ in MADE.values()}
    made = derive(
        {name: np.array([[5.0, 0.0, np.nan]]) for name in parts} | {name: np.zeros((1, 3)) for name in wholes}
    )
    assert made.keys() == MADE.keys()
    assert all(np.isnan(matrix).all() for matrix in made.values())
    assert derive({"cpu.perf.cycles": np.ones((1, 3))}) == {}


def test_a_mask_that_names_an_offline_cpu_is_no_reason_to_ask_for_it(bench: Bench) -> None:
    asked: set[int] = set()

    def remember(event: Event, cpu: int, leader: int) -> int:
        asked.add(cpu)
        return 0

    bench.kernel.refuse = remember
    bench.pmu("uncore_imc_0", 20, imc(), IMC, cpumask="0,9")
    bench.kernel.rates |= {(20, 0x304): 1.0, (20, 0xC04): 1.0}
    bench.sample()
    assert asked == {0, 1}
    assert not bench.frame.notes()


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"counts": b""},
        {"channels": b"cpu.perf.cycles cpu0"},
        {"channels": b"cpu.perf.cycles cpu0", "counts": b""},
        {"channels": b"", "counts": struct.pack("d", 1.0)},
    ],
)
def test_texts_cut_short_are_refused(texts: dict[str, bytes]) -> None:
    with pytest.raises(ParseError):
        PERF.parser()(texts)


def test_a_parser_keeps_its_layout_while_the_channels_stay() -> None:
    parser = PERF.parser()
    texts = {"channels": b"cpu.smi cpu0", "counts": struct.pack("d", 1.0), "notes": b"one\ntwo"}
    layout, values = parser(texts)
    assert (layout.channels, layout.notes, values) == ((("cpu.smi", "cpu0"),), ("one", "two"), [1.0])
    assert parser(texts | {"counts": struct.pack("d", 2.0)})[0] is layout
    assert parser(texts | {"notes": b""})[0].notes == ()
