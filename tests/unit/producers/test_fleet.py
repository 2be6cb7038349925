"""The simulated fleet: complete, plausible, deterministic, and wrong in the right places when told to be."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from producers.collectors import COLLECTORS
from producers.fleet.faults import Fault, faults
from producers.fleet.jobs import Timeline, duty
from producers.fleet.knobs import KNOBS
from producers.fleet.noise import LARGEST, NoiseTable, Scatter, built_in, measure
from producers.fleet.profiles import Profile, profiles
from producers.fleet.schedule import (
    Request,
    Schedule,
    ScheduleError,
    make_hosts,
    parse_fault,
    parse_schedule,
    seconds,
)
from producers.fleet.simulation import SECOND_NS, Fleet
from schemas.catalogue import SUBSYSTEMS, catalogue
from schemas.codec import decode, encode
from schemas.records import EVENT_KINDS, Telemetry
from schemas.truth import Truth, last_states, read_truth
from tests.synthetic import run as synthetic_run

Matrix = NDArray[np.float32]
START_NS = 1_790_000_000 * SECOND_NS
PROFILES = tuple(profiles())
SEED = 4
ONSET_S, DURATION_S, END_S = 3.0, 30.0, 35
NOT_ALWAYS = frozenset({"disk.await_read", "disk.await_write"})  # no mean time without requests


def fleet_of(
    profile: str, hosts: int = 2, requests: Sequence[Request] = (), seed: int = SEED, rate: float = 0.0
) -> Fleet:
    members = make_hosts([(profile, hosts)])
    schedule = Schedule(members, seed, rate)
    schedule.add(requests)
    return Fleet(members, schedule, seed=seed, start_ns=START_NS)


def series(fleet: Fleet, count: int, host: int = 0) -> dict[str, Matrix]:
    """Samples of every metric of a host over the first `count` seconds, NaN where its source was not read."""
    found: dict[str, Matrix] = {}
    for index in range(count):
        for record in fleet.records(index):
            if record.host == fleet.hosts[host].name:
                for metric, matrix in record.metrics.items():
                    whole = found.setdefault(metric, np.full((count * 10, matrix.shape[1]), np.nan, np.float32))
                    whole[index * 10 : index * 10 + 10] = matrix
    return found


@cache
def healthy(profile: str) -> Mapping[str, Matrix]:
    return series(fleet_of(profile), END_S)


@cache
def faulty(profile: str, fault: str) -> Mapping[str, Matrix]:
    return series(fleet_of(profile, requests=[Request(faults()[fault], ONSET_S, DURATION_S, 0)]), END_S)


def read(*matrices: Matrix) -> tuple[NDArray[np.float64], ...]:
    """The samples in which all of them were read."""
    there = np.logical_and.reduce([~np.isnan(matrix).all(axis=1) for matrix in matrices])
    assert there.any()
    return tuple(matrix[there].astype(np.float64) for matrix in matrices)


def kinds_for(profile: str) -> list[str]:
    return [name for name, fault in faults().items() if profiles()[profile].can(fault.needs) and not fault.silent]


# Completeness


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_fills_its_metrics_and_survives_the_wire(name: str) -> None:
    profile = profiles()[name]
    fleet = fleet_of(name)
    records = list(fleet.records(0))
    assert {record.host for record in records} == {host.name for host in fleet.hosts}
    instances = profile.instances()
    filled: set[str] = set()
    for record in records:
        again = decode(encode(record))
        assert isinstance(again, Telemetry)
        assert not again.flaws
        assert (again.count, again.period_ms, again.start_ns) == (10, 100, START_NS)
        for metric, matrix in record.metrics.items():
            row = catalogue()[metric]
            assert again.instances[row.dimension] == instances[row.dimension]
            np.testing.assert_array_equal(again.metrics[metric], matrix)
            present = profile.present(row)
            if metric not in NOT_ALWAYS:
                assert not np.isnan(matrix[:, present]).all(axis=0).any(), metric
                assert np.isnan(matrix[:, ~present]).all(), metric
            assert not (matrix < 0).any(), metric
        filled |= set(record.metrics)
    wanted = {metric.name for subsystem in SUBSYSTEMS for metric in profile.metrics(subsystem)}
    assert filled <= wanted
    # What has come into the catalogue since may be missing; what is there must not become less.
    assert len(filled) >= 0.97 * len(wanted), sorted(wanted - filled)


def test_profiles_differ_as_their_hardware_does() -> None:
    have = {name: {m.name for s in SUBSYSTEMS for m in profile.metrics(s)} for name, profile in profiles().items()}
    assert not any(metric.startswith(("gpu.", "ib.")) for metric in have["epyc-cpu"] | have["small-vm"])
    assert {"gpu.gpm.sm_util", "gpu.remapped_rows", "ib.hw.cnp_sent"} <= have["hgx-h100"] - have["dgx-v100"]
    assert "gpu.retired_pages_pending" in have["dgx-v100"] - have["hgx-h100"]
    assert "cpu.perf.l3_stall_pct" in have["hgx-h100"] - have["epyc-cpu"]
    assert "cpu.perf.stalled_cycles_backend" in have["epyc-cpu"] - have["hgx-h100"]
    assert not any(
        metric.startswith("cpu.perf.c") and metric != "cpu.perf.context_switches" for metric in have["small-vm"]
    )
    assert [(p.cpus, p.gpu.count if p.gpu else 0) for p in profiles().values()] == [(80, 8), (112, 8), (128, 0), (2, 0)]


# Physics


@pytest.mark.parametrize("name", PROFILES)
def test_the_time_of_a_core_adds_up_to_a_second_a_second(name: str) -> None:
    got = healthy(name)
    parts = ("user", "nice", "system", "irq", "softirq", "steal", "iowait", "idle")
    total = sum(got[f"cpu.time.{part}"].astype(np.float64) for part in parts)
    np.testing.assert_allclose(total, 1.0, atol=2e-3)  # published to 12 bits
    busy = 1 - got["cpu.time.idle"] - got["cpu.time.iowait"]
    np.testing.assert_allclose(got["cpu.busy_pct"], 100 * busy, atol=0.2)


@pytest.mark.parametrize("name", PROFILES)
def test_memory_adds_up(name: str) -> None:
    got = healthy(name)
    parts = ("free", "anon", "cached", "buffers", "slab", "page_tables", "kernel_stack", "hugetlb")
    share = sum(got[f"mem.{part}"].astype(np.float64) for part in parts) / got["mem.total"]
    np.testing.assert_allclose(share, share.mean(), atol=1e-4)  # the rest is the kernel's own and constant
    assert 0.95 < share.mean() < 1
    of_nodes, used, free, total = read(got["numa.mem_free"], got["numa.mem_used"], got["mem.free"], got["mem.total"])
    np.testing.assert_allclose(of_nodes.sum(axis=1), free[:, 0], rtol=1e-4)
    np.testing.assert_allclose((of_nodes + used).sum(axis=1), total[:, 0], rtol=1e-4)
    blocks, free = read(got["mem.free_blocks"], got["mem.free"])
    np.testing.assert_allclose(blocks @ 2.0 ** np.arange(11) * 4, free[:, 0], rtol=1e-3)
    assert (got["mem.available"] <= got["mem.total"]).all()
    assert (got["mem.shmem"] <= got["mem.cached"]).all()


@pytest.mark.parametrize("name", PROFILES)
def test_counts_agree_with_each_other(name: str) -> None:
    got = healthy(name)
    ip = got["ip.in_octets"][:, 0]
    np.testing.assert_allclose(ip, 0.986 * got["net.rx_bytes"].sum(axis=1), rtol=2e-3)
    assert (got["tcp.in_segs"][:, 0] <= got["net.rx_packets"].sum(axis=1) * 1.001).all()
    size = got["net.rx_bytes"][:, 0] / got["net.rx_packets"][:, 0]
    assert ((size > 60) & (size < 9100)).all()
    np.testing.assert_allclose(got["io.pgpgin"][:, 0], got["disk.read_sectors"].sum(axis=1) / 2, rtol=2e-3)
    asked = got["disk.reads"] > 0
    mean = got["disk.read_ms"][asked] / got["disk.reads"][asked]
    np.testing.assert_allclose(got["disk.await_read"][asked], mean, rtol=2e-3)
    assert (got["disk.io_ms"] <= 1000).all()
    switches = got["cpu.timeslices"].sum(axis=1)
    np.testing.assert_allclose(got["cpu.context_switches_total"][:, 0], switches, rtol=2e-3)
    assert (got["cpu.interrupts_total"][:, 0] >= got["cpu.irq.local_timer"].sum(axis=1) * 0.999).all()


@pytest.mark.parametrize("name", PROFILES)
def test_values_stay_in_their_ranges(name: str) -> None:
    profile = profiles()[name]
    for metric, matrix in healthy(name).items():
        unit, top = catalogue()[metric].unit, np.nanmax(matrix)
        limit = {"%": 100.0, "us/s": 1e6 * 1.001, "s/s": 1.001, "C": 110.0, "mC": 110_000.0, "bool": 1.0}.get(unit)
        assert limit is None or top <= limit, metric
    got = healthy(name)
    assert got["net.rx_bytes"].max() < profile.mbit * 125_000 * 1.3
    if "cpu.perf.ipc" in got:
        ipc, work, cycles = read(*(got[f"cpu.perf.{name}"] for name in ("ipc", "instructions", "cycles")))
        assert 0.3 < ipc.min() < ipc.max() < 5
        np.testing.assert_allclose(ipc, work / cycles, rtol=5e-3)
        assert read(got["cpu.freq.busy_mhz"])[0].max() <= profile.max_mhz * 1.03
    if profile.gpu:
        assert got["gpu.power_avg"].max() <= 1000 * profile.gpu.tdp_w * 1.1
        assert got["gpu.power_avg"].min() >= 1000 * profile.gpu.idle_w * 0.9
        assert got["gpu.clock_sm"].max() <= profile.gpu.sm_mhz
        total = got["gpu.mem_used"].astype(np.float64) + got["gpu.mem_free"] + got["gpu.mem_reserved"]
        np.testing.assert_allclose(total, profile.gpu.memory_gb * 2.0**30, rtol=1e-6)


def test_counters_count_whole_events() -> None:
    got = healthy("hgx-h100")
    for metric in ("tcp.retrans_segs", "cpu.irq.mce", "cpu.softirq.timer", "vm.thp_split", "udp.in_datagrams"):
        events = got[metric].astype(np.float64) * 0.1
        np.testing.assert_allclose(events, np.rint(events), atol=1e-3 * max(1.0, float(events.max())))
    # Rare ones happen at times, not a little in every sample.
    assert 0 < np.count_nonzero(got["udp.in_datagrams"]) < got["udp.in_datagrams"].size


def correlation(one: Matrix, other: Matrix) -> float:
    return float(np.corrcoef(one.mean(axis=1), other.mean(axis=1))[0, 1])


def test_metrics_move_together_as_the_hardware_does() -> None:
    got = healthy("hgx-h100")
    # In a step, power is high while the GPU computes and NVLink while gradients are exchanged.
    assert correlation(got["gpu.power_instant"], got["gpu.gpm.sm_util"]) > 0.9
    assert correlation(got["gpu.nvlink_tx"], got["ib.tx_data"]) > 0.95
    assert correlation(got["gpu.nvlink_tx"], got["gpu.gpm.sm_util"]) < -0.7
    assert correlation(got["cpu.irq.nic"], got["net.rx_packets"]) > 0.7
    assert correlation(got["cpu.context_switches_total"], got["net.rx_bytes"]) > 0.5


def test_steps_are_visible_at_ten_hertz() -> None:
    fleet = fleet_of("hgx-h100")
    timeline = fleet.timeline(fleet.hosts[0])
    segment = timeline.segment(0.0)
    assert segment.phase == "train"
    assert 0.3 <= segment.step_s <= 2.0
    power = healthy("hgx-h100")["gpu.power_instant"].mean(axis=1)
    power = power - power.mean()
    spectrum = np.abs(np.fft.rfft(power * np.hanning(len(power)))) ** 2
    peak = np.fft.rfftfreq(len(power), 0.1)[1 + np.argmax(spectrum[1:])]
    assert peak == pytest.approx(1 / segment.step_s, abs=2 / END_S)


def test_temperature_follows_power_slowly() -> None:
    got = faulty("hgx-h100", "power-cap")
    power, temp = got["gpu.power_instant"].mean(axis=1), got["gpu.temp"].mean(axis=1)
    onset = int(ONSET_S * 10)
    assert power[onset : onset + 10].mean() < 0.9 * power[:onset].mean()
    assert abs(temp[onset + 2] - temp[onset - 1]) < 2
    assert temp[onset + 250] < temp[onset - 1] - 2


def test_phases_change_what_is_done() -> None:
    timeline = Timeline(SEED, 1)
    timeline.until(20_000)
    assert {segment.phase for segment in timeline.segments} == {"idle", "start", "train", "evaluate", "checkpoint"}
    assert {"job-end", "job-start", "other-model", "checkpoint", "evaluation"} >= {
        segment.change for segment in timeline.segments if segment.change
    }
    assert all(a.start < b.start for a, b in pairwise(timeline.segments))
    first = timeline.changes(0.0, 1000.0)[0]
    assert first.change in {"checkpoint", "evaluation"}
    demand = timeline.demand(first.start, 10, 0.1)
    assert demand.levels["write"].mean() > 0.5 or first.change == "evaluation"
    idle = next(segment for segment in timeline.segments if segment.phase == "idle")
    assert timeline.demand(idle.start, 10, 0.1).levels["compute"].max() == 0


def test_duty_is_the_share_of_the_interval() -> None:
    turns = np.array([0.0, 0.5, 0.9, 2.25])
    np.testing.assert_allclose(duty(turns, 0.2, 0.0, 0.6), [1.0, 0.5, 0.5, 1.0])
    np.testing.assert_allclose(duty(turns, 1.0, 0.2, 0.5), 0.3)


def test_slow_sources_are_read_as_often_as_the_agent_reads_them() -> None:
    got = healthy("hgx-h100")
    there = {name: np.flatnonzero(~np.isnan(got[name]).all(axis=1)) for name in got}
    assert len(there["cpu.time.user"]) == 10 * END_S
    for collector in COLLECTORS:
        for name in set(collector.metrics) & there.keys() - NOT_ALWAYS:
            gaps = set(np.diff(there[name]).tolist())
            assert gaps <= {max(1, min(collector.every_ms, 1000) // 100)}, name
    # The rate between two readings is that of all samples between them.
    cores, at = there["cpu.perf.context_switches"], got["cpu.timeslices"]
    mean = np.array([at[row - 9 : row + 1].mean(axis=0) for row in cores])
    np.testing.assert_allclose(got["cpu.perf.context_switches"][cores], mean, rtol=2e-3, atol=0.1)


# Determinism


def test_the_same_seed_makes_the_same_fleet() -> None:
    one, same, other = (
        [encode(record) for index in range(2) for record in fleet_of("small-vm", seed=seed).records(index)]
        for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other


def test_a_host_does_not_depend_on_those_after_it() -> None:
    alone = series(fleet_of("hgx-h100", 1), 3)
    among = series(fleet_of("hgx-h100", 20), 3)
    for metric, matrix in alone.items():
        np.testing.assert_array_equal(matrix, among[metric], err_msg=metric)


def test_twins_do_the_same_job_with_noise_of_their_own() -> None:
    fleet = fleet_of("hgx-h100", 4)
    rows = [series(fleet_of("hgx-h100", 4), 20, host)["gpu.power_instant"].mean(axis=1) for host in range(4)]
    assert [host.twin for host in fleet.hosts] == [1, 0, 3, 2]
    assert np.corrcoef(rows[0], rows[1])[0, 1] > 0.95
    assert not np.array_equal(rows[0], rows[1])
    assert abs(np.corrcoef(rows[0], rows[2])[0, 1]) < 0.9
    assert make_hosts([("small-vm", 3)])[2].twin is None


# Faults


@pytest.mark.parametrize(("profile", "name"), [(profile, name) for profile in PROFILES for name in kinds_for(profile)])
def test_a_fault_moves_its_metrics_and_none_before_its_onset(profile: str, name: str) -> None:
    fault = faults()[name]
    before, after = healthy(profile), faulty(profile, name)
    assert before.keys() == after.keys()
    onset = int(ONSET_S * 10)
    for metric, matrix in before.items():
        np.testing.assert_array_equal(matrix[:onset], after[metric][:onset], err_msg=metric)
    settled = slice(int((ONSET_S + fault.settles_s + 2) * 10), int((ONSET_S + DURATION_S) * 10))
    touched = fault.touched(profiles()[profile])
    assert touched
    for sign in touched:
        change = difference((before, after), sign[1:], settled, fault, profile)
        assert change > 0 if sign[0] == "+" else change < 0, sign


def difference(
    runs: tuple[Mapping[str, Matrix], Mapping[str, Matrix]], metric: str, when: slice, fault: Fault, profile: str
) -> float:
    """Change of the mean of a metric: on the instance that the fault strikes, else where it is largest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # instances without the metric
        before, after = (np.nanmean(run[metric][when], axis=0) for run in runs)
        change = after - before
    names = profiles()[profile].instances()[catalogue()[metric].dimension]
    if catalogue()[metric].dimension == fault.dimension != "host":
        fleet = fleet_of(profile, requests=[Request(fault, ONSET_S, DURATION_S, 0)])
        struck = change[names.index(fleet.schedule.injections[0].instance)]
        return float(struck) if not np.isnan(struck) else float(np.nanmean(change))
    return float(change[np.nanargmax(np.abs(change))])


def test_effects_come_in_causal_order() -> None:
    before, after = healthy("hgx-h100"), faulty("hgx-h100", "packet-loss")

    def first(metric: str, ratio: float, per: str = "") -> float:
        """When a metric, perhaps over another one, is so far from what it would have been, s."""
        one, other = (
            got[metric].sum(axis=1) / (got[per].sum(axis=1) if per else np.ones(1)) for got in (before, after)
        )
        return float(np.argmax(np.abs(other - one) > ratio * np.maximum(np.abs(one), 1e-3))) / 10

    transport = first("tcp.retrans_segs", 2)
    interrupts = first("cpu.irq.nic", 0.3, per="net.rx_packets")
    stall = first("gpu.gpm.sm_util", 0.1)
    assert ONSET_S <= transport < ONSET_S + 0.3
    assert transport < interrupts < stall
    assert stall >= ONSET_S + 2.5


def test_a_fault_is_over_after_its_end() -> None:
    request = Request(faults()["packet-loss"], 2.0, 3.0, 0)
    before, after = series(fleet_of("epyc-cpu"), 15), series(fleet_of("epyc-cpu", requests=[request]), 15)
    assert after["tcp.retrans_segs"][20:50].sum() > 100 * before["tcp.retrans_segs"][20:50].sum()
    np.testing.assert_array_equal(after["tcp.retrans_segs"][110:], before["tcp.retrans_segs"][110:])
    np.testing.assert_array_equal(after["net.rx_missed"][50:], before["net.rx_missed"][50:])


def test_a_weaker_fault_moves_less() -> None:
    whole = Request(faults()["packet-loss"], 1.0, 5.0, 0)
    totals = [
        float(series(fleet_of("epyc-cpu", requests=[request]), 6)["tcp.retrans_segs"].sum())
        for request in (replace(whole, intensity=0.3), whole)
    ]
    assert 0 < totals[0] < totals[1]


def test_a_gpu_that_fell_off_the_bus_is_absent_and_told() -> None:
    fleet = fleet_of("hgx-h100", requests=[Request(faults()["fallen-off-the-bus"], 1.0, 3.0, 0, instance="gpu3")])
    records = [[record for record in fleet.records(index) if record.host == "sim-h100-0001"] for index in range(6)]
    events = [event for index in range(6) for event in fleet.events(index)]
    gone = next(record for record in records[2] if record.subsystem == "gpu").metrics
    assert np.isnan(gone["gpu.power_avg"][:, 3]).all()
    assert not np.isnan(np.delete(gone["gpu.power_avg"], 3, axis=1)).any()
    links = profiles()["hgx-h100"].gpu
    assert links is not None
    assert np.isnan(gone["gpu.nvlink_tx"]).sum() == 10 * links.links
    np.testing.assert_array_equal(gone["gpu.lost"][0], np.eye(8)[3])
    assert (gone["gpu.missing"] == 1).all()
    back = next(record for record in records[5] if record.subsystem == "gpu").metrics
    assert not np.isnan(back["gpu.power_avg"]).any()
    assert [(event.kind, event.code, event.instance) for event in events] == [
        ("xid", 79, "gpu3"),
        ("gpu_lost", None, "gpu3"),
        ("gpu_back", None, "gpu3"),
    ]
    assert [event.sequence for event in events] == [0, 1, 2]
    assert events[0].time_ns == START_NS + SECOND_NS
    assert all(decode(encode(event)) == event for event in events)


def test_a_silent_host_sends_nothing_and_comes_back_as_a_new_session() -> None:
    fleet = fleet_of("small-vm", requests=[Request(faults()["silent-host"], 2.0, 2.0, 0)])
    heard = [
        [record for record in fleet.records(index) if record.host == "sim-vm-0001" and record.subsystem == "cpu"]
        for index in range(6)
    ]
    assert [len(rows) for rows in heard] == [1, 1, 0, 0, 1, 1]
    assert heard[1][0].session == heard[0][0].session != heard[4][0].session
    assert [rows[0].sequence for rows in heard if rows] == [0, 1, 0, 1]


def test_the_table_of_faults_is_sound() -> None:
    causes = {fault.cause for fault in faults().values()}
    assert {"numa_placement", "single_queue_pair", "irq_imbalance", "huge_pages", "packet_loss"} <= causes
    for fault in faults().values():
        assert fault.subsystem in SUBSYSTEMS
        assert {sign[0] for sign in fault.shows} <= {"+", "-"}
        assert {sign[1:] for sign in fault.shows} <= set(catalogue())
        assert {event.kind for event in (*fault.events, *fault.ends)} <= set(EVENT_KINDS)
        assert any(profile.can(fault.needs) for profile in profiles().values())
        assert all(effect.to != KNOBS[effect.knob].neutral for effect in fault.effects)


# Truth and schedule


def test_truth_says_what_was_done() -> None:
    requests = [Request(faults()["ecc-burst"], 2.5, 2.0), Request(faults()["packet-loss"], 3.0, 100.0)]
    fleet = fleet_of("hgx-h100", 4, requests)
    told: list[Truth] = []
    for index in range(6):
        list(fleet.records(index))
        told += fleet.truths(index)
    told += fleet.cut_off(6.0)
    found = [truth for truth in told if truth.kind == "fault"]
    assert [(truth.name, truth.state) for truth in found] == [
        ("ecc-burst", "begun"),
        ("packet-loss", "begun"),
        ("ecc-burst", "ended"),
        ("packet-loss", "cut off"),
    ]
    begun, ended = found[0], found[2]
    assert replace(begun, state="ended") == ended
    assert (begun.onset_ns, begun.end_ns) == (START_NS + 2_500_000_000, START_NS + 4_500_000_000)
    assert (begun.host, begun.twin, begun.subsystem, begun.cause) == (
        "sim-h100-0001",
        "sim-h100-0002",
        "gpu",
        "gpu_ecc",
    )
    assert begun.instance in profiles()["hgx-h100"].instances()["gpu"]
    assert begun.metrics == faults()["ecc-burst"].shows
    assert found[1].host == "sim-h100-0003"
    assert found[3].end_ns == START_NS + 6 * SECOND_NS
    lines = [truth.line() for truth in told]
    assert list(read_truth(lines)) == told
    assert [truth.state for truth in last_states(told) if truth.kind == "fault"] == ["ended", "cut off"]
    assert json.loads(lines[0])["onset_ns"] > 0
    with pytest.raises(ValueError, match="line 1 is no ground truth"):
        list(read_truth(['{"id": 1}']))


def test_truth_tells_of_changes_that_are_no_faults() -> None:
    fleet = fleet_of("small-vm")
    changes = [truth for index in range(400) for truth in fleet.truths(index)]
    assert {truth.kind for truth in changes} == {"change"}
    ended = [truth for truth in last_states(changes) if truth.state == "ended"]
    assert {truth.host for truth in ended} == {"sim-vm-0001", "sim-vm-0002"}
    assert all(truth.onset_ns < truth.end_ns for truth in ended)
    assert all(not truth.subsystem and not truth.metrics for truth in ended)


def test_random_faults_come_at_their_rate_and_leave_the_twins_alone() -> None:
    members = make_hosts([("hgx-h100", 40)])
    schedule = Schedule(members, 3, rate=2.0)
    schedule.until(4 * 3600.0)
    again = Schedule(members, 3, rate=2.0)
    for time_s in range(0, 4 * 3600 + 1, 600):
        again.until(float(time_s))
    assert {(i.fault.name, i.host.number, i.onset_s) for i in schedule.injections} == {
        (i.fault.name, i.host.number, i.onset_s) for i in again.injections
    }
    # 20 hosts over 4 h, less what a fault and its rest take: some 140.
    assert 90 < len(schedule.injections) < 190
    assert all(injection.host.number % 2 == 0 for injection in schedule.injections)
    assert all(schedule.twin(injection) for injection in schedule.injections)
    for host in range(0, 40, 2):
        mine = sorted((i.onset_s, i.end_s) for i in schedule.injections if i.host.number == host)
        assert all(end < onset for (_, end), (onset, _) in pairwise(mine))


def test_requests_are_read_from_words() -> None:
    assert parse_fault("slow-disk") == Request(faults()["slow-disk"], 180.0, 60.0, None)
    assert parse_fault("slow-disk=5m+1.5m@7") == Request(faults()["slow-disk"], 300.0, 90.0, 7)
    assert parse_fault("slow-disk@0").host == 0
    assert seconds("1h") == 3600
    table = {
        "fault": [
            {"name": "ecc-burst", "start": "2m", "duration": 30, "hosts": [0, 2], "intensity": 0.5, "instance": "gpu1"},
            {"name": "power-cap"},
        ]
    }
    requests = parse_schedule(table)
    assert [(r.fault.name, r.start_s, r.duration_s, r.host, r.intensity, r.instance) for r in requests] == [
        ("ecc-burst", 120.0, 30.0, 0, 0.5, "gpu1"),
        ("ecc-burst", 120.0, 30.0, 2, 0.5, "gpu1"),
        ("power-cap", 180.0, 60.0, None, 1.0, ""),
    ]


@pytest.mark.parametrize("text", ["", "no-such-fault", "slow-disk=", "slow-disk=5+", "slow-disk=x+1", "slow-disk@x"])
def test_nonsense_is_refused(text: str) -> None:
    if text == "slow-disk=":
        assert parse_fault(text).start_s == 180.0
        return
    with pytest.raises(ScheduleError):
        parse_fault(text)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(faults()["ecc-burst"], host=0), "has no gpu"),
        (Request(faults()["slow-disk"], host=9), "no host 9"),
        (Request(faults()["ecc-burst"]), "no host has gpu"),
        (Request(faults()["slow-disk"], instance="sdz"), "has no disk sdz"),
    ],
)
def test_faults_that_no_host_can_have_are_refused(request_: Request, words: str) -> None:
    members = make_hosts([("small-vm", 2)])
    with pytest.raises(ScheduleError, match=words):
        Schedule(members).add([request_])


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"faults": []},
        {"fault": [{"start": 1}]},
        {"fault": [{"name": "slow-disk", "when": 1}]},
        {"fault": [{"name": "slow-disk", "duration": 0}]},
        {"fault": [{"name": "slow-disk", "intensity": 2}]},
    ],
)
def test_a_wrong_schedule_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(ScheduleError):
        parse_schedule(table)


# Noise


def test_noise_is_measured_and_used() -> None:
    measured = measure(synthetic_run(["a"], 60))
    assert measured["cpu.context_switches_total"].cv == pytest.approx(0.02, rel=0.6)
    table = built_in().updated({"cpu.context_switches_total": Scatter(0.2, 0.0)})
    assert table.of(catalogue()["cpu.context_switches_total"]) == Scatter(0.2, 0.0)


def test_a_simulated_metric_has_the_noise_that_it_was_given() -> None:
    name = "gpu.temp_margin"
    noisy = "ib.rx_data"
    wanted = Scatter(0.15, 0.8)
    table = NoiseTable({noisy: wanted}, {}, Scatter(0.0, 0.0))
    members = make_hosts([("hgx-h100", 1)])
    quiet = Fleet(members, Schedule(members), seed=SEED, start_ns=START_NS, noise=NoiseTable({}, {}, Scatter(0.0, 0.0)))
    loud = Fleet(members, Schedule(members), seed=SEED, start_ns=START_NS, noise=table)
    one, other = series(quiet, 60), series(loud, 60)
    np.testing.assert_array_equal(one[name], other[name])
    residual = other[noisy].astype(np.float64) / np.maximum(one[noisy], 1) - 1
    residual = residual[(one[noisy] > 1e6).all(axis=1)]
    assert residual.std() == pytest.approx(wanted.cv, rel=0.1)
    lagged = np.mean([np.corrcoef(column[1:], column[:-1])[0, 1] for column in residual.T])
    assert lagged == pytest.approx(wanted.rho, abs=0.12)


def test_the_built_in_noise_is_of_metrics_that_exist() -> None:
    table = built_in()
    assert set(table.metrics) <= set(catalogue())
    assert len(table.metrics) > 40
    assert all(0 <= table.of(metric).cv <= LARGEST and 0 <= table.of(metric).rho < 1 for metric in catalogue().values())


def test_profiles_are_hashable_values() -> None:
    assert all(isinstance(profile, Profile) and hash(profile) for profile in profiles().values())
