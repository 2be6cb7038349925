"""Texts that broke other agents, each with the values that are right."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from producers.collector import ParseError
from producers.collectors.cpufreq import CPUFREQ
from producers.collectors.diskstats import DISKSTATS
from producers.collectors.diskstats import derive as derive_disk
from producers.collectors.infiniband import INFINIBAND, INFINIBAND_ERRORS
from producers.collectors.interrupts import INTERRUPTS
from producers.collectors.meminfo import MEMINFO
from producers.collectors.netdev import NETDEV
from producers.collectors.numa import NUMA
from producers.collectors.pressure import PRESSURE
from producers.collectors.snmp import SNMP_NETSTAT
from producers.collectors.softirqs import SOFTIRQS
from producers.collectors.softnet import SOFTNET
from producers.collectors.stat import STAT
from producers.collectors.stat import derive as derive_stat
from producers.collectors.vmstat import VMSTAT
from tests.unit.producers.readings import parse, rates, values

NETDEV_HEADER = (
    b"Inter-|   Receive                                                |  Transmit\n"
    b" face |bytes    packets errs drop fifo frame compressed multicast"
    b"|bytes    packets errs drop fifo colls carrier compressed\n"
)


def test_diskstats_with_18_columns() -> None:
    found = parse(
        DISKSTATS, b"   8       0 sda 11450 6800 953154 6153 3996 24348 3818544 20014 0 3356 26559 120 0 88016 77\n"
    )
    assert found["disk.reads", "sda"] == 11450
    assert found["disk.read_ms", "sda"] == 6153
    assert found["disk.queue_ms", "sda"] == 26559
    assert found["disk.discards", "sda"] == 120
    assert ("disk.flushes", "sda") not in found


def test_diskstats_with_14_20_and_more_columns() -> None:
    old = parse(DISKSTATS, b"8 0 sda 10401 7848 443092 2979 3378 15625 249963 8927 0 35594 12302\n")
    assert old["disk.io_ms", "sda"] == 35594
    assert ("disk.discards", "sda") not in old
    row = b"   8       0 sda 10401 7848 443092 2979 3378 15625 249963 8927 0 35594 12302 0 0 0 0 2303 1625"
    for text in (row, row + b" 7 8 9"):
        found = parse(DISKSTATS, text + b"\n")
        assert found["disk.flushes", "sda"] == 2303
        assert found["disk.flush_ms", "sda"] == 1625


def test_disk_made_again_gives_no_rate_and_no_spike() -> None:
    before, after, last = rates(
        DISKSTATS,
        b"253 3 dm-3 900 0 7200 40 5000 0 40960 300 0 200 340\n",
        b"253 3 dm-3 1 0 8 0 2 0 4096 1 0 1 1\n",
        b"253 3 dm-3 11 0 88 0 2 0 4096 1 0 1 1\n",
    )
    assert math.isnan(before["disk.reads", "dm-3"])
    for metric in ("disk.reads", "disk.write_sectors", "disk.write_ms", "disk.queue_ms"):
        assert math.isnan(after[metric, "dm-3"]), metric
    assert last["disk.reads", "dm-3"] == 10
    assert last["disk.write_ms", "dm-3"] == 0


def test_disk_busy_beyond_wall_time_is_not_clamped() -> None:
    row = "8 0 sda 1 0 1 0 1 0 1 0 0 {} 0\n"
    _, second = rates(DISKSTATS, row.format(1000).encode(), row.format(2010).encode())
    assert second["disk.io_ms", "sda"] == 1010


def test_disk_time_comes_round_after_32_bits() -> None:
    row = "8 0 sda 1 0 1 0 1 0 1 0 0 {} 0\n"
    _, second = rates(DISKSTATS, row.format(2**32 - 100).encode(), row.format(400).encode())
    assert second["disk.io_ms", "sda"] == 500


def test_partitions_and_loops_are_no_disks() -> None:
    tail = b" 1 0 1 0 1 0 1 0 0 1 0\n"
    names = (b"sda", b"sda1", b"loop0", b"ram1", b"nvme0n1", b"nvme0n1p2", b"dm-0", b"md127", b"xvda1", b"zram0")
    found = parse(DISKSTATS, b"".join(b"8 0 " + name + tail for name in names))
    assert {disk for metric, disk in found if metric == "disk.reads"} == {
        "sda", "nvme0n1", "dm-0", "md127", "xvda1",  # the last has no xvda beside it
    }  # fmt: skip


def test_await_is_absent_without_requests() -> None:
    found = derive_disk({"disk.read_ms": np.array([[30.0, 0.0]]), "disk.reads": np.array([[10.0, 0.0]])})
    assert found["disk.await_read"][0, 0] == 3.0
    assert math.isnan(found["disk.await_read"][0, 1])


def test_cpu_that_came_back_leaves_the_others_alone() -> None:
    first, second = rates(
        STAT,
        b"cpu  9 0 0 0 0 0 0 0 0 0\ncpu1 100 0 100 1000 10 0 5 0 0 0\ncpu2 5000 0 900 70000 10 0 5 0 0 0\n",
        b"cpu  9 0 0 0 0 0 0 0 0 0\ncpu1 150 0 100 1050 10 0 5 0 0 0\ncpu2 40 0 7 300 0 0 0 0 0 0\n",
    )
    assert math.isnan(first["cpu.time.user", "cpu1"])
    assert math.isnan(second["cpu.time.user", "cpu2"])
    assert math.isnan(second["cpu.time.idle", "cpu2"])
    assert second["cpu.time.user", "cpu1"] == pytest.approx(0.5)
    assert second["cpu.time.idle", "cpu1"] == pytest.approx(0.5)


def test_cpu_numbers_come_from_labels() -> None:
    found = parse(
        STAT,
        b"cpu  8955653 5338 1031372 689186 119421 0 38962 0 0 0\n"
        b"cpu0 138803 9 56167 172504 16187 0 1296 0 0 0\n"
        b"cpu1 322651 754 427280 171926 25235 0 1291 0 0 0\n"
        b"cpu8 199865 3 91024 172386 20071 0 646 0 0 0\n"
        b"cpu9 326453 474 412719 171934 24410 0 723 0 0 0\n",
    )
    assert {cpu for metric, cpu in found if metric == "cpu.time.user"} == {"cpu0", "cpu1", "cpu8", "cpu9"}
    assert found["cpu.time.user", "cpu8"] == 199865
    assert found["cpu.time.softirq", "cpu9"] == 723


def test_cpu_that_is_there_twice_is_refused() -> None:
    row = b"cpu%d 10 0 0 0 0 0 0 0 0 0\n"
    with pytest.raises(ParseError, match="two rows"):
        parse(STAT, b"cpu  1 0 0 0 0 0 0 0 0 0\n" + row % 0 + row % 1 + row % 0)
    with pytest.raises(ParseError, match="two columns"):
        parse(INTERRUPTS, b"  CPU0 CPU1 CPU0\n LOC: 1 2 3 Local timer interrupts\n")
    assert ("cpu.time.user", "cpu1") in parse(STAT, b"page 1 2 3 4 5\n" + row % 1)


def test_one_unreadable_time_is_absent_alone() -> None:
    found = parse(STAT, b"cpu  1 0 0 0\ncpu0 10 0 0 7 0\ncpu1 <unknown> 0 0 8 0\ncpu2 30 0 0 9 0\n")
    assert math.isnan(found.pop(("cpu.time.user", "cpu1")))
    assert found["cpu.time.user", "cpu0"] == 10
    assert found["cpu.time.user", "cpu2"] == 30
    assert found["cpu.time.idle", "cpu1"] == 8


def test_set_of_cpus_changes_while_running() -> None:
    row = b"cpu%d 10 0 0 0 0 0 0 0 0 0\n"
    parser = STAT.parser()
    counts = []
    for cpus in ((0, 1), (0,), (0, 2, 10)):
        text = b"cpu  1 0 0 0 0 0 0 0 0 0\n" + b"".join(row % cpu for cpu in cpus)
        counts.append({cpu for metric, cpu in values(parser({"proc/stat": text})) if metric == "cpu.time.user"})
    assert counts == [{"cpu0", "cpu1"}, {"cpu0"}, {"cpu0", "cpu2", "cpu10"}]


def test_container_view_has_two_aggregates() -> None:
    text = (
        b"cpu  0 0 0 0 0 0 0 0 0 0\n"
        b"cpu  57589 20 24452 2480547 5183 0 636 0 0 0\n"
        b"cpu0 28354 9 12394 1240426 2522 0 326 0 0 0\n"
        b"cpu1 29235 10 12058 1240121 2661 0 309 0 0 0\n"
    )
    layout, _ = STAT.parser()({"proc/stat": text})
    assert "container" in layout.notes[0]
    found = parse(STAT, text)
    assert found["cpu.time.user", "cpu0"] == 28354
    assert found["cpu.time.nice", "cpu1"] == 10
    assert len({cpu for _, cpu in found}) == 2


def test_impossible_idle_time_is_dropped() -> None:
    good = b"cpu0 100 0 0 %d 0 0 0 0 0 0\n"
    first, second, third = rates(STAT, good % 1000, good % 8317131874320235395, good % 1100)
    assert math.isnan(first["cpu.time.idle", "cpu0"])
    assert math.isnan(second["cpu.time.idle", "cpu0"])
    assert second["cpu.time.user", "cpu0"] == 0
    assert third["cpu.time.idle", "cpu0"] == pytest.approx(0.5)  # 100 ticks in the two seconds since a good value
    # A leap that a number of ticks can still hold, but a clock cannot.
    _, second, third = rates(STAT, good % 1000, good % 999_000_000, good % 1100)
    assert math.isnan(second["cpu.time.idle", "cpu0"])
    assert third["cpu.time.idle", "cpu0"] == pytest.approx(0.5)


def test_guest_time_is_part_of_user_time() -> None:
    # Kernels before 2.6.24 have no column for it, newer ones have one more.
    row = b"cpu0 %d 0 0 %d 0 0 0 0"
    for tail in (b"\n", b" %d\n", b" %d 0\n"):
        numbers = ((100, 0, 0), (150, 50, 40)) if b"%d" in tail else ((100, 0), (150, 50))
        _, second = rates(STAT, *((row + tail) % cells for cells in numbers))
        assert second["cpu.time.user", "cpu0"] == pytest.approx(0.5)
        assert second.get(("cpu.time.guest", "cpu0")) == (pytest.approx(0.4) if b"%d" in tail else None)
    busy = derive_stat({name: np.array([[share]]) for name, share in (("cpu.time.user", 0.5), ("cpu.time.idle", 0.5))})
    assert busy["cpu.busy_pct"][0, 0] == 50.0
    guest = {
        "cpu.time.user": np.array([[0.5]]),
        "cpu.time.idle": np.array([[0.5]]),
        "cpu.time.guest": np.array([[0.4]]),
    }
    assert derive_stat(guest)["cpu.busy_pct"][0, 0] == 50.0


def test_iowait_may_fall() -> None:
    row = b"cpu0 0 0 0 0 %d 0 0 0 0 0\n"
    found = [sample["cpu.time.iowait", "cpu0"] for sample in rates(STAT, row % 50, row % 48, row % 49, row % 60)]
    assert math.isnan(found[0])
    assert found[1:] == [0.0, 0.0, pytest.approx(0.1)]
    _, second = rates(STAT, row % 5000, row % 0)
    assert math.isnan(second["cpu.time.iowait", "cpu0"])


def test_interrupts_header_with_gaps_and_changes() -> None:
    text = b"    CPU0   CPU1  CPU20   CPU21\n LOC:   1000   2000   3000   4000   Local timer interrupts\n"
    found = parse(INTERRUPTS, text)
    assert found["cpu.irq.local_timer", "cpu20"] == 3000
    assert found["cpu.irq.local_timer", "cpu21"] == 4000
    parser = INTERRUPTS.parser()
    parser({"proc/interrupts": text})
    changed = values(
        parser({"proc/interrupts": b"   CPU0 CPU20 CPU21 CPU22\n LOC: 1000 2000 3000 4000   Local timer interrupts\n"})
    )
    assert changed["cpu.irq.local_timer", "cpu22"] == 4000
    assert ("cpu.irq.local_timer", "cpu1") not in changed


def test_interrupts_without_blank_after_the_label() -> None:
    found = parse(
        INTERRUPTS,
        b"           CPU0       CPU1\n"
        b"IPI0:1145401553 1146011331       Rescheduling interrupts\n"
        b" 10: 3287008667 3310445093     GICv3  27 Level     arch_timer\n",
    )
    assert found["cpu.irq.resched", "cpu0"] == 1145401553
    assert found["cpu.irq.local_timer", "cpu1"] == 3310445093
    softirqs = parse(SOFTIRQS, b"                    CPU0       CPU1\n      NET_RX:3287008667 3310445093\n")
    assert softirqs["cpu.softirq.net_rx", "cpu0"] == 3287008667


def test_interrupts_of_the_host_alone_are_no_counts_of_cpus() -> None:
    found = parse(
        INTERRUPTS, b"           CPU0       CPU1\n  9:  3  4  IO-APIC acpi\n ERR:          7\n MIS:          0\n"
    )
    assert found == {("cpu.irq.device", "cpu0"): 3, ("cpu.irq.device", "cpu1"): 4}


def test_interrupt_chip_that_starts_with_a_digit() -> None:
    found = parse(
        INTERRUPTS, b"           CPU0       CPU1\n 45:         12         34  5a090000.gpio   3 Edge      button\n"
    )
    assert found["cpu.irq.device", "cpu0"] == 12
    assert found["cpu.irq.device", "cpu1"] == 34
    assert found["cpu.irq.source", "45:button"] == 46


def test_interrupts_of_network_adapters() -> None:
    text = (
        b"   CPU0\n 1: 5 PCI-MSI eth0-TxRx-0\n 2: 6 PCI-MSI mlx5_comp3@pci:0000:1b:00.0\n"
        b" 3: 7 PCI-MSI nvme0q1\n 4: 8 PCI-MSIX virtio2-input.0\n"
    )
    found = parse(INTERRUPTS, text)
    assert found["cpu.irq.nic", "cpu0"] == 19
    assert found["cpu.irq.device", "cpu0"] == 26


def test_interface_name_with_a_colon() -> None:
    text = NETDEV_HEADER + b"team0:1: 5 0 0 0 0 0 0 0 0 0 0 0 0 0 9 0\n"
    found = parse(NETDEV, text)
    assert found["net.rx_bytes", "team0:1"] == 5
    assert found["net.tx_carrier", "team0:1"] == 9


def test_netdev_counts_that_touch_the_name_and_columns_by_header() -> None:
    header = b"Inter-| Receive | Transmit\n face |packets bytes drop extra|errs bytes packets\n"
    found = parse(NETDEV, header + b"  eth0:3287008667 11 2 99 3 44 5\n")
    assert found["net.rx_packets", "eth0"] == 3287008667
    assert found["net.rx_bytes", "eth0"] == 11
    assert found["net.tx_bytes", "eth0"] == 44
    assert found["net.tx_errors", "eth0"] == 3
    assert ("net.tx_carrier", "eth0") not in found


@pytest.mark.parametrize("zeros", [1, 3])
def test_stray_zero_makes_no_spike_at_its_return(zeros: int) -> None:
    row = NETDEV_HEADER + b"  eth0: %d 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    samples = [row % 902345678901, *[row % 0] * zeros, row % 902346678901, row % 902346678902]
    found = [sample["net.rx_bytes", "eth0"] for sample in rates(NETDEV, *samples)]
    assert all(math.isnan(rate) for rate in found[: 1 + zeros])
    assert found[1 + zeros] == pytest.approx(1_000_000 / (1 + zeros))
    assert found[2 + zeros] == 1


def test_driver_reload_starts_afresh() -> None:
    row = NETDEV_HEADER + b"  eth0: %d 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    found = [sample["net.rx_bytes", "eth0"] for sample in rates(NETDEV, row % 10**12, row % 500, row % 700, row % 1000)]
    assert math.isnan(found[1])
    assert found[2:] == [200, 300]


def test_snmp_rows_that_come_and_grow() -> None:
    tcp = (
        b"Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens CurrEstab OutSegs\nTcp: 1 200 120000 -1 41131438 7 1000\n"
    )
    parser = SNMP_NETSTAT.parser()
    for extra in (
        b"",
        b"IcmpMsg: InType3 OutType3\nIcmpMsg: 2293 2746\n",
        b"IcmpMsg: InType3 InType8 OutType3\nIcmpMsg: 1 2 3\n",
        b"",
    ):
        found = values(parser({"proc/net/snmp": extra + tcp}))
        assert found["tcp.curr_estab", ""] == 7
        assert found["tcp.out_segs", ""] == 1000


def test_netstat_rows_that_do_not_fit_are_left_out_alone() -> None:
    texts = {
        "proc/net/netstat": b"TcpExt: TCPTimeouts B C\nTcpExt: 1 2\n"
        b"IpExt: InOctets OutOctets\nIpExt: 5 6\nMPTcpExt: X\n"
    }
    layout, cells = SNMP_NETSTAT.parser()(texts)
    assert values((layout, cells)) == {("ip.in_octets", ""): 5, ("ip.out_octets", ""): 6}
    assert layout.flaws == ("TcpExt: 2 values for 3 names", "MPTcpExt: no row of values")


@pytest.mark.parametrize("columns", [9, 10, 11])
def test_softnet_rows_without_cpu_numbers(columns: int) -> None:
    rows = [[b"00029620", b"00000001", b"00000002"], [b"F0000769", b"00000000", b"00000000"]]
    text = b"".join(b" ".join(row + [b"00000000"] * (columns - 3)) + b"\n" for row in rows)
    found = parse(SOFTNET, text, b"0,3\n")
    assert found["softnet.processed", "cpu0"] == 0x29620
    assert found["softnet.time_squeeze", "cpu0"] == 2
    assert found["softnet.processed", "cpu3"] == 0xF0000769
    assert ("softnet.dropped", "cpu1") in parse(SOFTNET, text)
    with pytest.raises(ParseError, match="2 rows without CPU numbers for 4 online"):
        parse(SOFTNET, text, b"0-3\n")


@pytest.mark.parametrize("columns", [13, 15])
def test_softnet_rows_with_cpu_numbers(columns: int) -> None:
    row = b"0000000a 00000000 00000002" + b" 00000000" * 9 + b" 0000001f" + b" 00000000" * (columns - 13) + b"\n"
    assert parse(SOFTNET, row, b"0\n") == {
        ("softnet.processed", "cpu31"): 10,
        ("softnet.dropped", "cpu31"): 0,
        ("softnet.time_squeeze", "cpu31"): 2,
    }


def test_softnet_comes_round_after_32_bits() -> None:
    row = b"%08x 00000000 00000000\n"
    _, second = rates(SOFTNET, row % (2**32 - 10), row % 20)
    assert second["softnet.processed", "cpu0"] == 30


def test_meminfo_with_a_legacy_table() -> None:
    found = parse(
        MEMINFO,
        b"        total:    used:    free:  shared: buffers:  cached:\n"
        b"Mem:  260579328 136073216 124506112        0  4915200 94064640\n"
        b"Swap:        0        0        0\n"
        b"MemTotal:         254472 kB\n",
    )
    assert found == {("mem.total", ""): 254472}


def test_meminfo_without_some_lines() -> None:
    text = b"MemTotal:       12193812 kB\nMemFree:         4488400 kB\nCached:          4582876 kB\n"
    found = parse(MEMINFO, text)
    assert found == {("mem.total", ""): 12193812, ("mem.free", ""): 4488400, ("mem.cached", ""): 4582876}
    # The same number of tokens, other lines: positions are learnt again.
    parser = MEMINFO.parser()
    parser({"proc/meminfo": text})
    moved = values(parser({"proc/meminfo": text.replace(b"MemFree", b"Buffers")}))
    assert moved == {("mem.total", ""): 12193812, ("mem.buffers", ""): 4488400, ("mem.cached", ""): 4582876}


def test_meminfo_unreadable_value_is_absent() -> None:
    found = parse(MEMINFO, b"MemTotal: <unknown> kB\nMemFree: 5 kB\n")
    assert math.isnan(found["mem.total", ""])
    assert found["mem.free", ""] == 5


def test_huge_pages_of_every_size_by_node() -> None:
    base = "sys/devices/system/node/node0"
    texts = {
        f"{base}/meminfo": b"Node 0 MemTotal: 9 kB\nNode 0 MemFree: 4 kB\nNode 0 HugePages_Total:     1\n",
        f"{base}/hugepages/hugepages-2048kB/nr_hugepages": b"4\n",
        f"{base}/hugepages/hugepages-1048576kB/nr_hugepages": b"2\n",
    }
    assert values(NUMA.parser()(texts)) == {
        ("numa.mem_free", "node0"): 4,
        ("numa.hugepages_total", "node0/2048kB"): 4,
        ("numa.hugepages_total", "node0/1048576kB"): 2,
    }
    assert parse(MEMINFO, b"HugePages_Total:  2\nHugepagesize: 1048576 kB\nHugetlb: 4194304 kB\n") == {
        ("mem.hugetlb", ""): 4194304
    }


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        (b"pgsteal_dma 0\npgsteal_normal 100\n", 100),
        (b"pgsteal_kswapd_dma 1\npgsteal_kswapd_normal 2\npgsteal_direct_normal 4\n", 7),
        (b"pgsteal_kswapd 90\npgsteal_direct 10\n", 100),
        (b"pgsteal_kswapd 90\npgsteal_direct 10\npgsteal_khugepaged 5\npgsteal_anon 60\npgsteal_file 45\n", 105),
    ],
)
def test_vmstat_names_of_all_ages(text: bytes, pages: int) -> None:
    assert parse(VMSTAT, text) == {("vm.pgsteal", ""): pages}


def test_vmstat_sums_and_single_values_together() -> None:
    text = (
        b"allocstall_dma 1\npgfault 7\nallocstall_normal 2\npgscan_kswapd 3\n"
        b"pgscan_direct 4\npgscan_direct_throttle 9\n"
        b"workingset_refault_anon 5\nworkingset_refault_file 6\npgmajfault 8\n"
    )
    assert parse(VMSTAT, text) == {
        ("vm.alloc_stall", ""): 3,
        ("vm.pgfault", ""): 7,
        ("vm.pgmajfault", ""): 8,
        ("vm.refault", ""): 11,
        ("vm.scan_direct", ""): 4,
        ("vm.scan_kswapd", ""): 3,
    }
    assert parse(VMSTAT, b"allocstall 5\nworkingset_refault 6\n") == {("vm.alloc_stall", ""): 5, ("vm.refault", ""): 6}


def test_pressure_rows_by_name() -> None:
    texts = {
        "proc/pressure/cpu": b"some avg10=0.13 avg60=0.68 avg300=0.28 total=1195993\n",
        "proc/pressure/irq": b"full avg10=0.00 avg60=0.00 avg300=0.00 total=8494\n",
    }
    assert values(PRESSURE.parser()(texts)) == {("cpu.psi.some", ""): 1195993, ("cpu.psi.irq_full", ""): 8494}


def test_frequency_above_the_maximum_and_unreadable_ones() -> None:
    path = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    found = values(CPUFREQ.parser()({path.format(0): b"3392895\n", path.format(12): b"<unknown>\n"}))
    assert found["cpu.freq.current", "cpu0"] == 3392895
    assert math.isnan(found["cpu.freq.current", "cpu12"])


def test_infiniband_counts_words_of_four_bytes() -> None:
    path = "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data"
    _, second = rates(replace(INFINIBAND, files=(path,)), b"0\n", b"1000000\n")
    assert second["ib.rx_data", "mlx5_0/1"] == 4_000_000


def test_infiniband_adapters_without_the_usual_files_hide_no_other() -> None:
    root = "sys/class/infiniband"
    texts = {
        f"{root}/hfi1_0/hw_counters/SwLinkUp,32": b"32\n",
        f"{root}/hfi1_0/ports/1/counters/symbol_error": b"N/A (no PMA)\n",
        f"{root}/mlx5_0/ports/1/hw_counters/lifespan": b"10\n",
        f"{root}/mlx5_0/ports/1/hw_counters/out_of_sequence": b"7\n",
        f"{root}/irdma0/hw_counters/duplicate_request": b"5\n",
    }
    found = values(INFINIBAND_ERRORS.parser()(texts))
    assert math.isnan(found.pop(("ib.symbol_error", "hfi1_0/1")))
    assert found == {("ib.hw.out_of_sequence", "mlx5_0/1"): 7, ("ib.hw.duplicate_request", "irdma0"): 5}
