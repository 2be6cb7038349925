"""Metrics of subsystem cpu, and what the agent says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.fleet.activity import Flow
from producers.fleet.group import Group
from producers.fleet.knobs import Turned
from producers.fleet.sheet import Sheet

Floats = NDArray[np.floating[Any]]
FULL: Final = np.float32(0.995)
QUEUES: Final = 16
LOADERS: Final = 4
PACKETS_AN_INTERRUPT: Final = 24.0
QUIET: Final = (
    *("cpu.time.nice", "cpu.time.guest", "cpu.irq.thermal", "cpu.throttle.core", "cpu.throttle.package"),
    *("cpu.throttle.package_time", "cpu.smi", "cooling.state", "agent.dropped", "agent.failing", "agent.hung"),
    *("agent.shed", "agent.spooled"),
)


@dataclass(frozen=True, slots=True)
class Cores:
    """Of each core: its share of the adapters' interrupts, of the time in which it is busy, and its clock."""

    share: Floats
    busy: Floats
    mhz: Floats


def fill_cpu(group: Group, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    """Set all metrics of the subsystem."""
    profile = group.profile
    cores = profile.cpus
    share = interrupt_share(group, knobs, cores)
    busy = _times(group, flow, knobs, sheet, share)
    load = busy.mean(axis=2, keepdims=True)
    # The more cores work, the lower the clock that power allows.
    mhz = (profile.max_mhz - 0.7 * (profile.max_mhz - profile.base_mhz) * load) * np.clip(knobs["cpu_clock"], 0.1, 1)
    state = Cores(share, busy, mhz)
    _perf(group, flow, knobs, sheet, state)
    _interrupts(group, flow, knobs, sheet, state)
    _scheduling(group, flow, knobs, sheet, busy)
    _power(group, sheet, busy, mhz)
    sheet.zero(*QUIET)
    sheet["cpu.online"] = float(cores)
    sheet["agent.cpu"] = 0.012 + 0.00012 * cores
    sheet["agent.memory"] = 58_000.0 + 25.0 * cores
    sheet["agent.period_ms"] = group.period_s * 1000
    sheet["agent.sample_ms"] = 1.1 + 0.012 * cores
    sheet.finish()
    _derive(knobs, sheet, busy)
    sheet.seal()


def interrupt_share(group: Group, knobs: Turned, cores: int) -> Floats:
    """Share of the adapters' interrupts that each core takes; sums to 1."""
    queues = min(cores, QUEUES)
    weights = np.zeros((len(group), 1, cores), np.float32)
    weights[:, :, :queues] = group.weights("queue", queues)
    weights /= weights.sum(axis=2, keepdims=True)
    skew = np.clip(knobs["interrupt_skew"], 0, 1)
    moved = np.minimum(skew.sum(axis=2, keepdims=True), 1)
    return weights * (1 - moved) + skew if knobs.turned("interrupt_skew") else weights


def _times(group: Group, flow: Flow, knobs: Turned, sheet: Sheet, share: Floats) -> Floats:
    """Set where time goes; returns the share of it in which each core is busy."""
    profile = group.profile
    cores = profile.cpus
    weight = group.weights("core", cores)
    user = 0.006 * weight * flow.live
    contention, polling = knobs["contention"], knobs["polling"]
    if profile.gpu:
        # One process a GPU waits actively; beside it, a few workers each load and prepare data.
        feeders, loaders = profile.gpu.count, profile.gpu.count * LOADERS
        user = np.broadcast_to(user, (len(group), flow.compute.shape[1], cores)).copy()
        user[:, :, :feeders] += 0.85 * flow.working * np.sqrt(np.clip(flow.live, 0, 1))
        span = slice(feeders, min(cores, feeders + loaders))
        user[:, :, span] += np.minimum(0.65 * flow.input * weight[:, :, span], 0.8)
    else:
        user = user + np.minimum((0.88 * flow.compute * flow.intensity + 0.25 * flow.input) * weight**0.3, 0.93)
    poll = np.zeros((1, 1, cores), np.float32)
    poll[:, :, : max(1, cores // 4)] = polling.max() > 0
    user = user * (1 + sheet.noise("cpu.time.user"))
    system = 0.004 * weight * flow.live + 0.05 * user + 0.03 * flow.input + 0.10 * (flow.read + flow.write)
    system = (system + 0.35 * polling * poll) * (1 + sheet.noise("cpu.time.system"))
    user = user + 0.35 * polling * poll
    user = user + contention * 0.92 * np.clip(1 - user - system, 0, 1)
    irq = (flow.rx_packets + flow.tx_packets) / PACKETS_AN_INTERRUPT * 1.5e-6 * (1 + 3 * knobs["interrupts"]) * share
    soft = (1.3e-6 * flow.rx_packets + 0.5e-6 * flow.tx_packets) * share + knobs["softirq"] + 0.0006 * weight
    soft = np.clip(soft, 0, 0.95) * (1 + sheet.noise("cpu.time.softirq"))
    steal = 0.0 if "bare" in profile.features else 0.002 * weight
    parts = [np.broadcast_to(np.maximum(part, 0), user.shape) for part in (user, system, irq, soft, steal)]
    total = sum(parts[1:], parts[0])
    fit = np.minimum(1, FULL / np.maximum(total, FULL))
    user, system, irq, soft, stolen = (part * fit for part in parts)
    busy: Floats = np.minimum(total, FULL)
    wait = np.clip(0.5 * flow.io_wait * group.weights("wait", cores, 0.5), 0, 0.9) * (1 - busy)
    for name, value in (("user", user), ("system", system), ("irq", irq), ("softirq", soft), ("steal", stolen)):
        sheet[f"cpu.time.{name}"] = value
    sheet["cpu.time.iowait"] = wait
    sheet["cpu.time.idle"] = 1 - busy - wait
    sheet["cpu.busy_pct"] = 100 * busy
    return busy


def _perf(group: Group, flow: Flow, knobs: Turned, sheet: Sheet, cores: Cores) -> None:
    profile, busy, mhz = group.profile, cores.busy, cores.mhz
    remote, small, contention = knobs["remote"], knobs["small_pages"], knobs["contention"]
    sheet["cpu.freq.current"] = 1000 * mhz * group.weights("clock", profile.cpus, 0.004)
    sheet["cpu.freq.busy_mhz"] = mhz
    if "cpu.perf.cycles" in sheet:
        cycles = busy * mhz * 1e6
        ipc = 1.7 * group.weights("ipc", profile.cpus, 0.05) * (1 - 0.45 * remote) * (1 - 0.2 * small)
        ipc = ipc / (1 + 0.4 * contention)
        work = cycles * ipc
        misses = work * 0.02 * (0.12 + 0.35 * remote + 0.12 * contention)
        sheet["cpu.perf.cycles"] = cycles
        sheet["cpu.perf.instructions"] = work
        sheet["cpu.perf.ref_cycles"] = busy * profile.base_mhz * 1e6
        sheet["cpu.perf.branches"] = 0.18 * work
        sheet["cpu.perf.branch_misses"] = 0.18 * work * 0.006 * (1 + 0.5 * contention)
        sheet["cpu.perf.cache_references"] = 0.02 * work
        sheet["cpu.perf.cache_misses"] = misses
        sheet["cpu.perf.llc_load_misses"] = 0.6 * misses * (1 + 0.5 * remote)
        sheet["cpu.perf.node_load_misses"] = 0.6 * misses * (0.04 + 0.8 * remote)
        sheet["cpu.perf.l1d_load_misses"] = 0.03 * work
        sheet["cpu.perf.dtlb_load_misses"] = 0.0006 * work * (1 + 12 * small)
        sheet["cpu.perf.l3_miss_stall_cycles"] = cycles * np.minimum(0.06 + 0.4 * remote + 0.08 * contention, 0.9)
        sheet["cpu.perf.stalled_cycles_backend"] = cycles * np.minimum(0.2 + 0.4 * remote, 0.95)
        sheet["cpu.cstate.core_c6"] = (1 - busy) * 0.7 * profile.base_mhz * 1e6
    sheet["cpu.cstate.residency"] = 0.97e6 * (1 - busy)
    sheet["cpu.cstate.deepest"] = 0.70e6 * (1 - busy)
    faults = (8 + 60 * flow.working + 900 * flow.input) * (1 + 15 * small) * flow.live
    sheet["cpu.perf.minor_faults"] = faults * (0.2 + busy)
    sheet["cpu.perf.major_faults"] = 0.02 * flow.read + 30 * np.clip(knobs["pressure"] - 0.5, 0, 1)
    sheet["cpu.perf.running_pct"] = 100.0


def _interrupts(group: Group, flow: Flow, knobs: Turned, sheet: Sheet, state: Cores) -> None:
    cores, share, busy = group.profile.cpus, state.share, state.busy
    weight = group.weights("core", cores)
    packets = flow.rx_packets + flow.tx_packets
    completions = 400.0 * flow.communicate * len(group.profile.ports)
    nic = (packets / PACKETS_AN_INTERRUPT + completions + 4 * flow.live) * (1 + 3 * knobs["interrupts"])
    requests = (flow.disk_read.sum(axis=2, keepdims=True) + flow.disk_write.sum(axis=2, keepdims=True)) / 131_072
    sheet["cpu.irq.nic"] = nic * share
    sheet["cpu.irq.local_timer"] = 12 + 238 * busy
    sheet["cpu.irq.resched"] = (3 + 400 * flow.input * busy) * weight
    sheet["cpu.irq.call"] = (2 + 60 * flow.input + 40 * (flow.read + flow.write)) * weight
    sheet["cpu.irq.tlb"] = (0.3 + 12 * flow.input + 40 * knobs["small_pages"] + 60 * knobs["remote"]) * weight
    sheet["cpu.irq.mce"] = 0.003 + knobs["memory_errors"].max(axis=2, keepdims=True) / cores
    sources = len(sheet.instances["irq"])
    each = group.weights("source", sources, 0.3)
    sheet["cpu.irq.source"] = nic * each / each.sum(axis=2, keepdims=True)
    skew = np.minimum(knobs["interrupt_skew"].sum(axis=2, keepdims=True), 1)
    sheet["cpu.irq.source_top_pct"] = np.minimum(45 * group.weights("top", sources, 0.1), 60) * (1 - skew) + 99 * skew
    polls = share * flow.rx_packets / 12 + 9000 * knobs["softirq"]
    sheet["cpu.softirq.net_rx"] = polls + 0.5 * weight * flow.live
    sheet["cpu.softirq.net_tx"] = share * flow.tx_packets / 2000 + 0.05
    sheet["cpu.softirq.block"] = requests * weight / cores
    sheet["cpu.softirq.rcu"] = (8 + 60 * busy) * weight
    sheet["cpu.softirq.sched"] = (10 + 120 * busy) * weight
    sheet["cpu.softirq.tasklet"] = share * completions * 0.3 + 0.02
    sheet["cpu.softirq.timer"] = 6 + 140 * busy


def _scheduling(group: Group, flow: Flow, knobs: Turned, sheet: Sheet, busy: Floats) -> None:
    cores = group.profile.cpus
    weight = group.weights("core", cores)
    contention = knobs["contention"]
    waits = 25 + 2500 * flow.input * np.minimum(busy, 0.5) + 1500 * flow.io_wait + 1200 * contention
    sheet["cpu.timeslices"] = waits * weight * (0.1 + 0.9 * flow.live)
    sheet["cpu.perf.migrations"] = (0.5 + 20 * flow.input + 30 * contention) * weight
    sheet["cpu.run_delay"] = 1e6 * weight * (0.2 + 6 * busy * busy) + 6e8 * contention
    sheet["cpu.psi.some"] = 1e6 * np.clip(0.002 + 0.03 * busy.mean(axis=2, keepdims=True) + 0.7 * contention, 0, 1)
    sheet["cpu.psi.irq_full"] = 1e6 * np.clip(
        sheet["cpu.time.irq"].mean(axis=2, keepdims=True) + 0.3 * sheet["cpu.time.softirq"].mean(axis=2, keepdims=True),
        0,
        1,
    )
    sheet["cpu.forks_total"] = 0.3 + 3 * flow.input + 20 * flow.read
    running = busy.sum(axis=2, keepdims=True) + cores * contention
    blocked = 6 * flow.io_wait
    sheet["cpu.procs_running"] = 1 + running
    sheet["cpu.procs_blocked"] = blocked
    sheet["cpu.load1"] = group.slow("load1", running + blocked, 60.0)
    sheet["cpu.load5"] = group.slow("load5", running + blocked, 300.0)


def _power(group: Group, sheet: Sheet, busy: Floats, mhz: Floats) -> None:
    profile = group.profile
    if "bare" not in profile.features:
        return
    hosts, samples, cores = busy.shape
    socket = busy.reshape(hosts, samples, profile.sockets, -1).mean(axis=3)
    watts = profile.tdp_w * (0.28 + 0.72 * socket * np.minimum(mhz / profile.base_mhz, 1.4) ** 2 / 1.4)
    watts = np.minimum(watts, profile.tdp_w) * group.weights("socket", profile.sockets, 0.02)
    sheet["power.rapl.package"] = 1e6 * watts
    sheet["power.rapl.dram"] = 1e6 * (12 + 25 * socket)
    package = group.slow("cpu_temp", 1000 * (30 + 42 * watts / profile.tdp_w), 12.0)
    sheet["temp.package"] = package
    if "cpu.temp.core" in sheet:
        of = np.repeat(np.arange(profile.sockets), cores // profile.sockets)
        sheet["cpu.temp.core"] = package[:, :, of] - 4000 + 7000 * busy * group.weights("hot", cores, 0.05)
    hottest = package.max(axis=2, keepdims=True)
    sheet["temp.thermal_zone"] = hottest + 1000
    sheet["fan.rpm"] = group.slow("fan", 3000 + 60 * (hottest / 1000 - 30), 20.0) * group.weights(
        "fan", len(profile.sensors), 0.01
    )
    sheet["temp.sensor"] = group.slow("systin", 26_000 + 0.15 * (hottest - 30_000), 60.0)
    sheet["power.board"] = 1e6 * (120 + 1.12 * watts.sum(axis=2, keepdims=True))


def _derive(knobs: Turned, sheet: Sheet, busy: Floats) -> None:
    """What is made of the finished values, as the agent makes it of what it read."""
    sheet["cpu.irq.device"] = sheet["cpu.irq.nic"] + np.rint(0.1 * sheet["cpu.softirq.block"]) * 10
    rows = ("device", "local_timer", "resched", "call", "tlb", "mce")
    names = [f"cpu.irq.{row}" for row in rows if f"cpu.irq.{row}" in sheet]
    sheet["cpu.interrupts_total"] = sum(sheet[name].sum(axis=2, keepdims=True) for name in names)
    kinds = ("net_rx", "net_tx", "block", "rcu", "sched", "tasklet", "timer")
    sheet["cpu.softirqs_total"] = sum(sheet[f"cpu.softirq.{kind}"].sum(axis=2, keepdims=True) for kind in kinds)
    sheet["cpu.context_switches_total"] = sheet["cpu.timeslices"].sum(axis=2, keepdims=True)
    if "cpu.perf.context_switches" in sheet:
        sheet["cpu.perf.context_switches"] = sheet["cpu.timeslices"]
    if "cpu.perf.cycles" in sheet:
        cycles = np.maximum(sheet["cpu.perf.cycles"], 1)
        sheet["cpu.perf.ipc"] = sheet["cpu.perf.instructions"] / cycles
        sheet["cpu.perf.branch_miss_pct"] = _pct(sheet["cpu.perf.branch_misses"], sheet["cpu.perf.branches"])
        sheet["cpu.perf.cache_miss_pct"] = _pct(sheet["cpu.perf.cache_misses"], sheet["cpu.perf.cache_references"])
        if "cpu.perf.l3_stall_pct" in sheet:
            sheet["cpu.perf.l3_stall_pct"] = _pct(sheet["cpu.perf.l3_miss_stall_cycles"], cycles)
        sheet["cpu.freq.busy_tsc_pct"] = 100 * busy


def _pct(part: Floats, whole: Floats) -> Floats:
    return 100 * part / np.maximum(whole, 1)
