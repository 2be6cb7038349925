"""The table of causes is sound, its sentences mean what they say, and wrong ones are refused with their line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from schemas.catalogue import SUBSYSTEMS, catalogue
from schemas.records import Event
from stream_processors.causes import NAMED, causes, fill, fits, happened, parse_causes, ranked
from stream_processors.document import page
from stream_processors.families import PREFIXES, family
from stream_processors.moves import Moves, metric_index
from stream_processors.signs import LOUD, CauseError, parse_sign

CASE_STUDIES = ("numa_placement", "single_queue_pair", "irq_imbalance", "huge_pages", "packet_loss")
OTHERS = (
    *(
        "workload_retransmits",
        "gpu_thermal_throttling",
        "cpu_thermal_throttling",
        "gpu_power_cap",
        "cpu_power_throttling",
    ),
    *(
        "gpu_ecc",
        "host_memory_ecc",
        "gpu_lost",
        "pcie_degraded",
        "nvlink_errors",
        "ib_link_errors",
        "fabric_congestion",
    ),
    *("disk_latency", "writeback_storm", "memory_pressure", "cpu_contention", "noisy_neighbour", "softirq_overload"),
    *("cpu_clock_cap", "gpu_clock_cap", "stalled", "workload_change"),
)
GOOD = """
[odd]
title = "odd"
subsystem = "cpu"
requires = [
  "cpu.busy_pct rises",
]
explanation = ["{cpu.busy_pct}"]
checks = ["top"]
remedy = "none"
"""


def still(*, there: bool = True) -> Moves:
    """A host on which nothing moves; without `there`, one that has no metric."""
    count = len(metric_index())
    zeros = np.full(count, 0.0 if there else np.nan, np.float32)
    return Moves(
        rise=zeros,
        fall=zeros,
        apart=zeros,
        swing=zeros,
        level=zeros,
        usual=zeros,
        high=zeros,
        low=zeros,
        few=np.ones(count, bool),
        many=np.ones(count, bool),
        strongest=("",) * count,
        seen=zeros,
        used=zeros,
    )


def moved(moves: Moves, **values: dict[str, float]) -> Moves:
    """`moves` with, by field, other values of some metrics."""
    changed = {}
    for name, of in values.items():
        array = getattr(moves, name).copy()
        for metric, value in of.items():
            array[metric_index()[metric]] = value
        changed[name] = array
    return replace(moves, **changed)


def degree(sentence: str, moves: Moves, *events: tuple[str, int | None]) -> float:
    return parse_sign(sentence).degree(moves, frozenset(events))


def test_all_causes_are_there_and_whole() -> None:
    table = causes()
    assert {*CASE_STUDIES, *OTHERS} <= set(table)
    for cause in table.values():
        assert re.fullmatch(r"[a-z][a-z_]+", cause.name)
        assert cause.title
        assert cause.explanation
        assert cause.checks
        assert cause.remedy.endswith(".")
        assert set(cause.subsystems) <= set(SUBSYSTEMS)
        # A cause whose every required metric is another one's as well must be told apart by something.
        assert cause.supports or cause.alone >= 0.8


def test_nothing_fits_a_host_on_which_nothing_moves() -> None:
    assert fits(still(), frozenset()) == {}
    assert fits(still(there=False), frozenset()) == {}


@pytest.mark.parametrize("name", list(causes()))
def test_what_a_cause_requires_is_enough_to_consider_it(name: str) -> None:
    """Everything in its signature moves as it says, and nothing else: then it is named, before all others."""
    moves = still()
    events: set[tuple[str, int | None]] = set()
    for number, sign in enumerate((*causes()[name].requires, *causes()[name].supports)):
        sentence = sign.text.partition(" * ")[2] or sign.text
        first, _, rest = sentence.partition(" or ")
        words = first.split()
        if len(words) == 1:
            words += next(part.split()[1:] for part in rest.split(" or ") if len(part.split()) > 1)
        if words[0] == "event":
            events.add((words[1], int(words[2]) if len(words) > 2 else None))
        elif words[1] in ("rises", "moves"):
            level = 100 * 0.5**number
            moves = moved(moves, rise={words[0]: LOUD}, level={words[0]: level}, usual={words[0]: level / 2})
        elif words[1] == "multiplies":
            moves = moved(moves, rise={words[0]: LOUD}, level={words[0]: 100.0}, usual={words[0]: 1.0})
        elif words[1] == "vanishes":
            moves = moved(moves, fall={words[0]: LOUD}, level={words[0]: 1.0}, usual={words[0]: 100.0})
        elif words[1] == "falls":
            moves = moved(moves, fall={words[0]: LOUD})
        elif words[1] == "spreads":
            moves = moved(moves, apart={words[0]: LOUD})
        elif words[1] == "steady":
            continue
        elif words[1] == "above":
            moves = moved(moves, high={words[0]: float(words[2]) + 1})
        elif words[1] == "per":
            share = {words[0]: max(80.0, 110 * float(words[4])), words[2]: 100.0}
            moves = moved(moves, level=share, usual=dict.fromkeys(share, 0.0), rise=dict.fromkeys(share, LOUD))
    fit = fits(moves, frozenset(events))
    assert fit[name] >= NAMED
    best = ranked(
        {other: each for other, each in fit.items() if not causes()[name].fallback or causes()[other].fallback}
    )
    assert best[0] == name


def test_a_sign_is_as_strong_as_what_it_names() -> None:
    moves = moved(still(), rise={"cpu.busy_pct": 6.0, "cpu.load1": 100.0}, fall={"mem.free": 9.0})
    assert 0 < degree("cpu.busy_pct rises", moves) < 1
    assert degree("cpu.load1 rises", moves) == 1
    assert degree("cpu.busy_pct or cpu.load1 rises", moves) == 1
    assert degree("cpu.busy_pct falls", moves) == 0
    assert degree("mem.free falls", moves) == degree("mem.free moves", moves)
    assert degree("cpu.busy_pct rises or mem.free falls", moves) == degree("mem.free falls", moves)
    assert degree("cpu.load1 steady", moves) == 0
    assert degree("cpu.load5 steady", moves) == 1


def test_what_multiplies_and_what_vanishes() -> None:
    def at(times: float, **more: float) -> Moves:
        much = {"rise": {"vm.pgfault": more.get("by", LOUD)}, "fall": {"net.tx_bytes": more.get("by", LOUD)}}
        level = {"level": {"vm.pgfault": 100 * times, "net.tx_bytes": 100.0}}
        return moved(still(), **much, **level, usual={"vm.pgfault": 100.0, "net.tx_bytes": 100 * times})

    for sentence in ("vm.pgfault multiplies", "net.tx_bytes vanishes"):
        assert degree(sentence, at(2.9)) == 0
        assert degree(sentence, at(math.sqrt(90))) == pytest.approx(0.5)
        assert degree(sentence, at(31)) == degree(sentence, at(1000)) == 1
        assert degree(sentence, at(1000, by=2.0)) == 0, "a few of what is hardly ever there are nothing"
        assert degree(sentence, still()) == 0
    assert degree("vm.pgfault vanishes", at(1000)) == degree("net.tx_bytes multiplies", at(1000)) == 0
    # One of several that is still there in the mean.
    one = moved(at(2.9), level={"net.tx_bytes": 100.0}, seen={"net.tx_bytes": 0.0}, used={"net.tx_bytes": 90.0})
    one = replace(one, strongest=tuple("eth1" for _ in one.strongest))
    assert degree("net.tx_bytes vanishes", one) == 0
    assert degree("net.tx_bytes vanishes on one", one) == 1
    # From nothing, and to nothing.
    assert degree("vm.pgfault multiplies", moved(at(9), usual={"vm.pgfault": 0.0})) == 1
    assert degree("net.tx_bytes vanishes", moved(at(9), level={"net.tx_bytes": 0.0})) == 1


def test_a_metric_that_both_rises_and_falls_does_what_it_does_more() -> None:
    moves = moved(still(), rise={"gpu.clock_sm": 5.0}, fall={"gpu.clock_sm": 9.0})
    assert degree("gpu.clock_sm rises", moves) == 0
    assert degree("gpu.clock_sm falls", moves) > 0


def test_on_one_and_on_many() -> None:
    moves = moved(still(), rise={"cpu.irq.nic": 20.0}, few={"cpu.irq.nic": True}, many={"cpu.irq.nic": False})
    assert degree("cpu.irq.nic rises on one", moves) == 1
    assert degree("cpu.irq.nic rises on many", moves) == 0


def test_bounds_ratios_and_events() -> None:
    moves = moved(
        still(),
        low={"gpu.temp_margin": 1.0},
        high={"gpu.temp_margin": 40.0, "fs.used_pct": 99.0},
        level={"tcp.syn_retrans": 50.0, "tcp.retrans_segs": 70.0},
        usual={"tcp.syn_retrans": 1.0, "tcp.retrans_segs": 10.0},
    )
    assert degree("gpu.temp_margin below 3", moves) == 1
    assert degree("fs.used_pct above 99.5", moves) == 0
    assert degree("tcp.syn_retrans per tcp.retrans_segs above 0.8", moves) == 1
    assert degree("tcp.syn_retrans exceeds 48", moves) == 1
    assert degree("tcp.syn_retrans exceeds 49", moves) == 0
    assert math.isnan(degree("tcp.syn_retrans exceeds 1", still(there=False)))
    assert degree("tcp.syn_retrans per tcp.retrans_segs above 0.9", moves) == 0
    assert degree("event xid 63 64", moves, ("xid", 64)) == 1
    assert math.isnan(degree("event xid 63 64", moves, ("xid", 79)))
    assert degree("event xid", moves, ("xid", 79)) == 1


def test_what_a_host_lacks_counts_neither_way() -> None:
    nowhere = still(there=False)
    assert math.isnan(degree("cpu.busy_pct rises", nowhere))
    assert math.isnan(degree("cpu.busy_pct steady", nowhere))
    with_ports = moved(still(), rise={"ib.hw.rnr_nak": 20.0}, fall={"ib.qp_count": 20.0})
    lacking = moved(with_ports, **{name: {"ib.qp_count": math.nan} for name in ("rise", "fall")})
    [cause] = [cause for cause in causes().values() if cause.name == "single_queue_pair"]
    assert 0 < cause.fit(lacking, frozenset()) < cause.fit(with_ports, frozenset())


def test_loss_on_the_path_is_told_apart_from_retransmits_of_the_workloads_own() -> None:
    lost = moved(
        still(),
        rise=dict.fromkeys(("tcp.retrans_segs", "tcp.fast_retrans", "tcp.ofo_queue", "tcp.timeouts"), 20.0),
        level={"tcp.retrans_segs": 900.0, "tcp.fast_retrans": 700.0, "tcp.timeouts": 30.0, "tcp.syn_retrans": 2.0},
    )
    assert ranked(fits(lost, frozenset()))[0] == "packet_loss"
    assert fits(lost, frozenset())["packet_loss"] >= NAMED
    assert fits(lost, frozenset()).get("workload_retransmits", 0.0) < NAMED
    # Few segments at a time: timeouts instead of duplicate acknowledgements, but receivers see the gaps.
    thin = moved(
        still(),
        rise=dict.fromkeys(("tcp.retrans_segs", "tcp.lost_retransmit", "tcp.ofo_queue", "tcp.timeouts"), 20.0),
        fall={"ip.out_octets": 12.0},
        level={"tcp.retrans_segs": 100.0, "tcp.fast_retrans": 5.0, "tcp.timeouts": 70.0},
    )
    assert fits(thin, frozenset()).get("workload_retransmits", 0.0) < NAMED
    assert fits(thin, frozenset())["packet_loss"] > fits(thin, frozenset()).get("workload_retransmits", 0.0)
    unanswered = moved(
        still(),
        rise=dict.fromkeys(("tcp.retrans_segs", "tcp.syn_retrans", "tcp.timeouts"), 20.0),
        level={"tcp.retrans_segs": 300.0, "tcp.syn_retrans": 290.0, "tcp.timeouts": 300.0},
    )
    # Linux counts a segment that is sent a third time as one whose retransmission was lost.
    dead_peer = moved(
        still(),
        rise=dict.fromkeys(("tcp.retrans_segs", "tcp.timeouts", "tcp.lost_retransmit", "tcp.abort_on_timeout"), 20.0),
        level={"tcp.retrans_segs": 300.0, "tcp.timeouts": 290.0, "tcp.fast_retrans": 5.0},
    )
    unread = moved(
        still(),
        rise=dict.fromkeys(("tcp.retrans_segs", "tcp.rcvq_drop", "tcp.fast_retrans"), 20.0),
        level={"tcp.retrans_segs": 300.0, "tcp.fast_retrans": 60.0},
    )
    for own in (unanswered, dead_peer, unread):
        found = fits(own, frozenset())
        assert found["workload_retransmits"] >= NAMED
        assert found.get("packet_loss", 0.0) < NAMED
        assert ranked(found)[0] == "workload_retransmits"


FAULTS_SEEN: Mapping[str, tuple[str, Mapping[str, float], Mapping[str, tuple[float, float]]]] = {
    # What metrics did in real faults: name of the cause; deviations, those that fall below 0; level and usual level.
    "all processes of a job are stopped, on a host that has more to do than the job": (
        "stalled",
        {"net.tx_packets": -15, "net.rx_packets": -15, "net.tx_bytes": -8, "tcp.out_segs": -15, "ip.out_octets": -8}
        | {"vm.pgfault": -25, "softnet.processed": -30, "cpu.softirq.net_rx": -12, "cpu.busy_pct": -2.5},
        {"net.tx_packets": (0, 756), "net.tx_bytes": (0, 1.04e6), "net.rx_packets": (0, 739)},
    ),
    "packets take 80 ms longer": (
        "network_slow",
        {"net.tx_packets": -6, "net.rx_packets": -6, "tcp.out_segs": -6, "ip.out_octets": -4, "tcp.dsack_recv": 0},
        {"net.tx_packets": (450, 750), "tcp.out_segs": (1100, 1697)},
    ),
    "writes past the page cache, behind which the pages of others stay dirty": (
        "disk_latency",
        {"disk.write_ms": 360, "disk.writes": 41, "disk.write_sectors": 222, "io.pgpgout": 225, "disk.io_ms": 6}
        | {"mem.dirty": 12, "mem.writeback": 9, "io.psi.some": 5, "cpu.softirq.block": 6, "cpu.irq.device": 6},
        {"disk.write_ms": (1.8e4, 4.7), "disk.queue_ms": (1.8e4, 9.4), "cpu.irq.device": (420, 12)},
    ),
    "a disk that answers late, so that less is read and written": (
        "disk_latency",
        {"disk.await_read": 20, "disk.await_write": 18, "disk.queue_ms": 12, "disk.reads": -5, "disk.write_sectors": -4}
        | {"io.psi.some": 12, "cpu.time.iowait": 9},
        {},
    ),
    "a process that flushes after every write of 4 kB": (
        "flush_storm",
        {"disk.flushes": 13, "disk.writes": 51, "io.psi.some": 6, "cpu.irq.device": 5, "cpu.softirq.block": 5},
        {"disk.flushes": (262, 11), "disk.writes": (1032, 20)},
    ),
    "pages get dirty faster than the disk takes them": (
        "writeback_storm",
        {"disk.write_ms": 200, "disk.writes": 30, "disk.write_sectors": 150, "io.pgpgout": 150, "disk.io_ms": 6}
        | {"mem.dirty": 20, "mem.writeback": 15, "vm.dirtied": 40, "vm.written": 40, "io.psi.some": 5},
        {},
    ),
    "processes that wake each other through pipes": (
        "context_switch_storm",
        {"cpu.context_switches_total": 146, "cpu.perf.context_switches": 346, "cpu.time.system": 13}
        | {"cpu.psi.some": 5, "cpu.procs_running": 3.5},
        {"cpu.context_switches_total": (7.3e5, 4200), "cpu.perf.context_switches": (3.7e5, 2100)},
    ),
    "memory that is mapped and given back, while a change of the work hides what processors do": (
        "page_fault_storm",
        {"vm.pgfault": 153, "cpu.perf.minor_faults": 272, "cpu.psi.some": 15.6, "numa.hit": 95},
        {"vm.pgfault": (342510, 36625), "cpu.perf.minor_faults": (176368, 18344), "cpu.psi.some": (431150, 119375)},
    ),
    "a process that forks over and over": (
        "fork_storm",
        {"cpu.forks_total": 515, "vm.pgfault": 28, "cpu.time.system": 16, "vm.pgfree": 13, "cpu.run_delay": 8}
        | {"cpu.softirq.rcu": 17, "cpu.context_switches_total": 3},
        {"cpu.forks_total": (4080, 1.4), "vm.pgfault": (3e5, 5.7e4)},
    ),
    "a timer that is due ten thousand times a second": (
        "interrupt_storm",
        {"cpu.irq.local_timer": 60, "cpu.interrupts_total": 32, "cpu.context_switches_total": 4}
        | {"cpu.perf.context_switches": 10, "cpu.time.system": 3.5},
        {"cpu.irq.local_timer": (1.02e4, 1640), "cpu.perf.context_switches": (1.25e4, 2125)},
    ),
    "one packet in five comes 12 ms late": (
        "packet_reordering",
        {"tcp.dsack_recv": 13, "tcp.ofo_queue": 11, "tcp.retrans_segs": 46, "tcp.fast_retrans": 45}
        | {"net.tx_packets": 15, "net.rx_packets": 15},
        {"tcp.dsack_recv": (272, 2.5), "tcp.ofo_queue": (1134, 0), "tcp.retrans_segs": (92, 0)}
        | {"tcp.fast_retrans": (90, 0)},
    ),
    "datagrams over the loopback interface, faster than they are read": (
        "packet_flood",
        {"udp.in_datagrams": 1327, "udp.in_errors": 1e5, "udp.rcvbuf_errors": 1e5, "softnet.processed": 400}
        | {"cpu.softirq.net_rx": 380, "cpu.softirqs_total": 210, "cpu.time.softirq": 3},
        {"udp.in_datagrams": (1.3e5, 0)},
    ),
    "a quota of the job's cgroup": (
        "cpu_quota",
        {"cpu.run_delay": 9, "cpu.psi.some": 8, "cpu.time.idle": 6, "cpu.busy_pct": -5, "cpu.time.user": -6},
        {},
    ),
    "a process in a busy loop on the job's core": (
        "cpu_contention",
        {"cpu.run_delay": 9, "cpu.psi.some": 8, "cpu.time.idle": -9, "cpu.busy_pct": 9, "cpu.time.user": 9},
        {},
    ),
    "segments whose checksum is wrong": (
        "packet_corruption",
        {"tcp.in_errs": 200, "tcp.retrans_segs": 20, "tcp.fast_retrans": 18, "tcp.ofo_queue": 5},
        {"tcp.in_errs": (25, 0), "tcp.retrans_segs": (30, 0), "tcp.fast_retrans": (25, 0)},
    ),
}


@pytest.mark.parametrize("story", list(FAULTS_SEEN))
def test_what_a_real_fault_does_names_it(story: str) -> None:
    cause, deviations, levels = FAULTS_SEEN[story]
    moves = moved(
        still(),
        rise={name: by for name, by in deviations.items() if by > 0},
        fall={name: -by for name, by in deviations.items() if by < 0},
        level={name: level for name, (level, _) in levels.items()},
        usual={name: usual for name, (_, usual) in levels.items()},
        high={name: level for name, (level, _) in levels.items()},
    )
    found = fits(moves, frozenset())
    assert found[cause] >= NAMED
    assert ranked(found)[0] == cause, found


ORDINARY: Mapping[str, Mapping[str, float]] = {
    "data is loaded": {"net.rx_bytes": 12, "disk.reads": 12, "io.pgpgin": 12, "cpu.time.user": 5, "mem.cached": 9},
    "a backup reads files": {
        "disk.read_ms": 20,
        "disk.queue_ms": 23,
        "disk.await_read": 9,
        "io.psi.some": 7,
        "disk.reads": 20,
        "disk.read_sectors": 40,
        "io.pgpgin": 40,
        "mem.cached": 9,
        "disk.io_ms": 4,
    },
    "a job starts": {
        "mem.anon": 30,
        "mem.available": -8,
        "cpu.forks_total": 30,
        "cpu.time.user": 12,
        "cpu.busy_pct": 12,
    }
    | {"gpu.mem_used": 30, "gpu.power_avg": 20, "fs.open_files": 9},
    "traffic grows": {
        "net.tx_bytes": 15,
        "net.tx_packets": 15,
        "ip.out_octets": 15,
        "tcp.out_segs": 15,
        "tcp.in_segs": 15,
    },
}


@pytest.mark.parametrize("work", list(ORDINARY))
def test_ordinary_work_has_no_fault_for_its_cause(work: str) -> None:
    rises = {name: by for name, by in ORDINARY[work].items() if by > 0}
    falls = {name: -by for name, by in ORDINARY[work].items() if by < 0}
    found = fits(moved(still(), rise=rises, fall=falls, level=dict.fromkeys(rises, 40.0)), frozenset())
    named = {name for name, fit in found.items() if fit >= NAMED and not causes()[name].fallback}
    assert named == set()


def test_a_symptom_gives_way_to_a_cause() -> None:
    assert ranked({"stalled": 0.9, "packet_loss": 0.6}) == ["packet_loss", "stalled"]
    assert ranked({"stalled": 0.9, "packet_loss": 0.4})[0] == "stalled"


def test_events_count_from_when_they_may_explain() -> None:
    at = Event("h", "s", 0, 50, "xid", "gpu", "critical", "m", "kernel log", code=79)
    assert happened([at], 40, 60) == {("xid", 79)}
    assert happened([at], 51, 60) == happened([at], 40, 49) == frozenset()


def test_a_sentence_without_its_figures_is_left_out() -> None:
    assert fill(["all {a.b}.", "none {c.d}.", "plain"], {"a.b": "9 W"}) == ["all 9 W.", "plain"]


@pytest.mark.parametrize(
    ("wrong", "line", "says"),
    [
        (GOOD.replace('"cpu.busy_pct rises"', '"cpu.busy_pc rises"'), 6, "there is no metric cpu.busy_pc"),
        (GOOD.replace("busy_pct rises", "busy_pct jumps"), 6, "'jumps' is not what a metric can do"),
        (GOOD.replace("busy_pct rises", "busy_pct above much"), 6, "much is no number"),
        (GOOD.replace("cpu.busy_pct rises", "cpu.load1 rises on one"), 6, "cpu.load1 has no instances"),
        (GOOD.replace("cpu.busy_pct rises", "event xids"), 6, "there is no event xids"),
        (GOOD.replace("cpu.busy_pct rises", "gpu.clock_reasons rises"), 6, "gpu.clock_reasons that detectors look at"),
        (GOOD.replace('  "cpu.busy_pct rises",\n', ""), 2, "requires nothing"),
        (GOOD.replace('"cpu"', '"processor"'), 4, "there is no subsystem processor"),
        (GOOD.replace("{cpu.busy_pct}", "{cpu.busy}"), 8, "there is no metric cpu.busy "),
        (GOOD.replace('["top"]', '["top {pid}"]'), 9, "a check knows {instance}, not pid"),
        (GOOD.replace("remedy", "cure"), 10, "odd has no cure"),
        (GOOD.replace('remedy = "none"', ""), 2, "odd lacks remedy"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(wrong: str, line: int, says: str) -> None:
    assert list(parse_causes(GOOD)) == ["odd"]
    with pytest.raises(CauseError, match=f"^line {line}: .*{re.escape(says)}"):
        parse_causes(wrong)


def test_families_are_made_of_metrics() -> None:
    strangers = [p for each in PREFIXES.values() for p in each if not any(name.startswith(p) for name in catalogue())]
    assert strangers == []
    assert family("disk.read_sectors") == family("disk.reads") == family("io.pgpgin") != family("disk.writes")
    assert family("cpu.smi") == "cpu.smi"


def test_the_page_of_causes_is_up_to_date() -> None:
    path = Path(__file__).parents[3] / "docs" / "causes.md"
    assert path.read_text(encoding="utf-8") == page(), "run `python -m stream_processors.document`"
