"""Families of metrics: those that say the same thing in different words, such as reads and sectors read.

Evidence shows the strongest of a family, so that ten spellings of one thing do not crowd out what else is strange.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

PREFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "processor time": ("cpu.busy_pct", "cpu.time.user", "cpu.time.idle", "cpu.cstate.", "cpu.freq.busy_"),
    "kernel time": ("cpu.time.system",),
    "interrupt time": ("cpu.time.softirq", "cpu.time.irq", "cpu.psi.irq_full"),
    "waiting for disks": ("cpu.time.iowait", "cpu.procs_blocked", "io.psi."),
    "clock": ("cpu.freq.current", "cpu.freq.busy_mhz"),
    "queue for processors": ("cpu.run_delay", "cpu.psi.some", "cpu.procs_running", "cpu.load"),
    "switches": ("cpu.context_switches_total", "cpu.timeslices", "cpu.perf.context_switches", "cpu.perf.migrations"),
    "device interrupts": ("cpu.irq.nic", "cpu.irq.device", "cpu.irq.source", "cpu.interrupts_total"),
    "timer interrupts": ("cpu.irq.local_timer", "cpu.softirq.timer", "cpu.softirq.sched", "cpu.softirq.rcu"),
    "calls between cores": ("cpu.irq.call", "cpu.irq.resched", "cpu.irq.tlb"),
    "receive path": ("cpu.softirq.net_", "cpu.softirq.tasklet", "cpu.softirqs_total", "softnet.processed"),
    "receive path overrun": ("softnet.time_squeeze", "softnet.dropped"),
    "instructions": ("cpu.perf.ipc", "cpu.perf.instructions", "cpu.perf.branches", "cpu.perf.branch_"),
    "cycles": ("cpu.perf.cycles", "cpu.perf.ref_cycles"),
    "caches": ("cpu.perf.cache_", "cpu.perf.llc_", "cpu.perf.l1d_", "cpu.perf.l3_", "cpu.perf.stalled_"),
    "page faults": ("vm.pgfault", "vm.pgfree", "cpu.perf.minor_faults"),
    "major faults": ("vm.pgmajfault", "cpu.perf.major_faults", "vm.refault", "numa.refault"),
    "processor heat": ("temp.package", "cpu.temp.", "temp.thermal_zone", "temp.sensor", "fan.rpm"),
    "processor throttling": ("cpu.throttle.", "cpu.irq.thermal", "cooling.state"),
    "processor power": ("power.",),
    "gpu power": ("gpu.power_avg", "gpu.power_instant", "gpu.energy"),
    "gpu heat": ("gpu.temp", "gpu.mem_temp", "gpu.fan"),
    "gpu thermal limit": tuple(f"gpu.{name}" for name in (
        "throttle_ns.sw_thermal", "throttle_ns.hw_thermal", "throttled.sw_thermal", "throttled.hw_thermal",
    )),
    "gpu power limit": ("gpu.throttle_ns.power_", "gpu.throttled.sw_power_cap", "gpu.throttled.hw_power_brake"),
    "gpu clock": ("gpu.clock_sm", "gpu.clock_mem", "gpu.pstate"),
    "gpu work": ("gpu.util", "gpu.mem_util", "gpu.gpm.sm_", "gpu.gpm.tensor_", "gpu.gpm.fp32_", "gpu.gpm.dram_"),
    "gpu memory": ("gpu.mem_used", "gpu.mem_free", "gpu.bar1_used"),
    "gpu pcie traffic": ("gpu.pcie_rx_bytes", "gpu.pcie_tx_bytes", "gpu.gpm.pcie_"),
    "gpu pcie link": ("gpu.pcie_width", "gpu.pcie_gen", "pcie.width", "pcie.speed"),
    "gpu pcie errors": ("gpu.pcie_replay", "gpu.pcie_correctable", "gpu.pcie_l0_", "gpu.pcie_fatal", "pcie.aer_"),
    "gpu memory errors": ("gpu.ecc_", "gpu.remap", "gpu.retired_"),
    "gpu gone": ("gpu.lost", "gpu.missing"),
    "nvlink traffic": ("gpu.nvlink_rx", "gpu.nvlink_tx", "gpu.gpm.nvlink_"),
    "nvlink errors": ("gpu.nvlink_crc_", "gpu.nvlink_replay", "gpu.nvlink_recovery", "gpu.nvlink_effective_"),
    "memory errors": ("edac.", "cpu.irq.mce"),
    "memory in use": ("mem.anon", "mem.active", "mem.inactive", "mem.committed", "numa.anon_pages"),
    "shared memory": ("mem.mapped", "mem.shmem"),
    "free memory": ("mem.free", "mem.available", "numa.mem_", "zone.", "mem.free_blocks"),
    "page cache": ("mem.cached", "mem.buffers", "numa.file_pages"),
    "kernel memory": ("mem.slab", "slab.", "mem.kernel_stack"),
    "huge pages": ("mem.hugetlb", "numa.hugepages_", "mem.anon_huge", "vm.thp_", "vm.hugetlb_"),
    "dirty pages": ("mem.dirty", "mem.writeback", "vm.dirtied", "vm.written"),
    "reclaim": ("vm.scan_", "vm.pgsteal", "vm.alloc_stall", "vm.compact_stall", "mem.psi."),
    "swap": ("vm.swap_", "mem.swap_free"),
    "other node": ("numa.miss", "numa.foreign", "numa.other_node", "vm.numa_", "cpu.perf.node_"),
    "received": ("net.rx_bytes", "net.rx_packets", "ip.in_octets", "ip6.in_receives", "tcp.in_segs"),
    "sent": ("net.tx_bytes", "net.tx_packets", "ip.out_octets", "tcp.out_segs"),
    "dropped packets": ("net.rx_missed", "net.rx_dropped", "net.rx_fifo", "net.tx_dropped", "ip.in_discards"),
    "link errors": ("net.rx_errors", "net.rx_crc", "net.link_errors", "net.tx_errors", "net.tx_"),
    "retransmits": ("tcp.retrans_segs", "tcp.fast_retrans", "tcp.slow_start_retrans", "tcp.lost_retransmit"),
    "out of order": ("tcp.ofo_queue", "tcp.dsack_recv"),
    "connections": ("tcp.curr_estab", "tcp.in_use", "sock.used", "tcp.time_wait", "tcp.orphan", "conntrack.entries"),
    "datagrams": ("udp.in_datagrams", "udp.out_datagrams"),
    "datagrams lost": ("udp.in_errors", "udp.rcvbuf_errors", "udp6."),
    "port traffic": ("ib.rx_data", "ib.tx_data", "ib.rx_packets", "ib.tx_packets", "ib.hw.rx_write_requests"),
    "port errors": ("ib.symbol_error", "ib.local_link_", "ib.rx_errors", "ib.link_error_", "ib.link_downed"),
    "port sequence": ("ib.hw.out_of_sequence", "ib.hw.packet_seq_err", "ib.hw.duplicate_", "ib.hw.adp_", "ib.hw.ack_"),
    "congestion": ("ib.hw.cnp_", "ib.hw.ecn_", "ib.tx_wait", "ib.tx_discards", "ip.ecn_ce"),
    "receiver not ready": ("ib.hw.out_of_buffer", "ib.hw.rnr_nak"),
    "disk reads": ("disk.reads", "disk.read_sectors", "disk.read_merges", "io.pgpgin"),
    "disk writes": ("disk.writes", "disk.write_sectors", "disk.write_merges", "io.pgpgout"),
    "disk times": ("disk.await_", "disk.queue_ms", "disk.read_ms", "disk.write_ms", "disk.in_flight", "disk.io_ms"),
    "flushes": ("disk.flush",),
    "room on disks": ("fs.free_", "fs.used_"),
}  # fmt: skip
"""Beginnings of the names of each family's metrics; the longest that fits counts. A metric of none is a family."""


@cache
def family(metric: str) -> str:
    """Family of `metric`; its own name if it has none."""
    fitting = [(len(p), name) for name, prefixes in PREFIXES.items() for p in prefixes if metric.startswith(p)]
    return max(fitting)[1] if fitting else metric
