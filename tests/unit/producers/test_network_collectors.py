"""Collectors of the network: interfaces, InfiniBand, connection tracking, IP version 6, PCIe links."""

from __future__ import annotations

import csv
import errno
import math
import os
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from producers.collector import Collector, ParseError
from producers.collectors.conntrack import CONNTRACK
from producers.collectors.infiniband import INFINIBAND, INFINIBAND_ERRORS
from producers.collectors.netclass import NETCLASS, NETSPEED
from producers.collectors.netdev import NETDEV
from producers.collectors.nvme import NVME
from producers.collectors.pcie import PCIE, PCIE_ERRORS
from producers.collectors.rdma import RDMA, queue_pairs
from producers.collectors.snmp import SNMP_NETSTAT
from producers.collectors.snmp6 import SNMP6
from producers.collectors.sockstat import SOCKSTAT
from producers.collectors.softnet import SOFTNET
from producers.frame import Frame, Identity
from producers.netlink import CLIENT, DONE, ERROR, HEADER, PROTOCOL, RES_GET, rdma_resources, resources
from producers.source import SECOND_NS
from tests.unit.producers.asking import host, read, source, write
from tests.unit.producers.readings import Values, parse, rates, values
from tests.unit.producers.tree import START_NS, FakeClock

PORT = "sys/class/infiniband/mlx5_0/ports/1"
NETDEV_HEADER = (
    b"Inter-|   Receive                                                |  Transmit\n"
    b" face |bytes    packets errs drop fifo frame compressed multicast"
    b"|bytes    packets errs drop fifo colls carrier compressed\n"
)


def statistics(root: Path, interface: str, **numbers: int) -> None:
    """The files of an interface as the kernel has them."""
    names = (
        *("rx_missed_errors", "rx_crc_errors", "tx_aborted_errors", "rx_length_errors", "rx_frame_errors"),
        *("rx_over_errors", "tx_heartbeat_errors", "tx_window_errors"),
    )
    for name in names:
        write(root, f"sys/class/net/{interface}/statistics/{name}", f"{numbers.get(name, 0)}\n")
    write(root, f"sys/class/net/{interface}/carrier_changes", f"{numbers.get('carrier_changes', 1)}\n")
    write(root, f"sys/class/net/{interface}/operstate", "up\n")


def test_interfaces_are_those_wanted_and_follow_what_is_there(tmp_path: Path) -> None:
    clock = FakeClock()
    statistics(tmp_path, "eth0", rx_missed_errors=7, rx_length_errors=1, rx_frame_errors=2, tx_window_errors=4)
    statistics(tmp_path, "eth0.100", rx_crc_errors=3)
    statistics(tmp_path, "veth12", rx_missed_errors=9)
    write(tmp_path, "sys/class/net/bonding_masters", "bond0\n")
    of = host(tmp_path, clock.monotonic_ns, interface=("!veth*",))
    at = source(NETCLASS, of)

    def look() -> Values:
        reading = at.read(clock.monotonic_ns())
        return values(NETCLASS.parser()(reading[1])) if reading else {}

    found = look()
    assert {name for _, name in found} == {"eth0", "eth0.100"}
    assert found["net.rx_missed", "eth0"] == 7
    assert found["net.link_errors", "eth0"] == 7
    assert found["net.rx_crc", "eth0.100"] == 3
    assert found["net.carrier_changes", "eth0"] == 1
    assert found["net.operstate", "eth0"] == 1
    assert not at.problems(clock.monotonic_ns(), SECOND_NS)
    # Renamed, and a new one under the old name.
    (tmp_path / "sys/class/net/eth0").rename(tmp_path / "sys/class/net/ens1")
    statistics(tmp_path, "eth0", rx_missed_errors=100)
    (tmp_path / "sys/class/net/eth0.100/statistics/rx_over_errors").unlink()
    clock.pass_ns(11 * SECOND_NS)
    found = look()
    assert found["net.rx_missed", "ens1"] == 7
    assert found["net.rx_missed", "eth0"] == 100
    # A sum without one of its terms would fall.
    assert ("net.link_errors", "eth0.100") not in found
    at.close()


def test_interface_of_a_name_that_is_no_text_can_be_sent(tmp_path: Path) -> None:
    directory = os.fsencode(tmp_path) + b"/sys/class/net/e\xff0"
    os.makedirs(directory)
    with open(directory + b"/operstate", "wb") as file:
        file.write(b"down\n")
    at = source(NETCLASS, host(tmp_path))
    assert read(NETCLASS, at) == {("net.operstate", "e\N{REPLACEMENT CHARACTER}0"): 0}
    at.close()


def test_files_of_no_use_are_no_channels() -> None:
    texts = {f"sys/class/net/eth0/{name}": b"1\n" for name in ("statistics/rx_bytes", "mtu", "carrier_changes")}
    assert values(NETCLASS.parser()(texts)) == {("net.carrier_changes", "eth0"): 1}


def test_no_interface_is_one_word_and_not_ten(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    at = source(NETCLASS, host(tmp_path))
    assert at.read(1) is None
    (problem,) = at.problems(1, SECOND_NS)
    assert (problem.kind, problem.reason) == ("missing", "no such device on this machine")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        *((b"up\n", 1), (b"down\n", 0), (b"lowerlayerdown\n", 0), (b"notpresent\r\n", 0)),
        *((text, math.nan) for text in (b"unknown\n", b"dormant\n", b"testing\n", b"\0\0\n", b"6\n")),
    ],
)
def test_state_of_an_interface(text: bytes, state: float) -> None:
    (found,) = values(NETCLASS.parser()({"sys/class/net/eth0/operstate": text})).values()
    assert found == state or (math.isnan(found) and math.isnan(state))


def test_carrier_changes_are_rates_and_a_driver_reload_gives_none() -> None:
    only = replace(NETCLASS, files=("sys/class/net/eth0/carrier_changes",))
    found = [sample["net.carrier_changes", "eth0"] for sample in rates(only, b"4\n", b"6\n", b"1\n", b"2\n")]
    assert math.isnan(found[0])
    assert found[1] == 2
    assert math.isnan(found[2])
    assert found[3] == 1


@pytest.mark.parametrize("text", ["-1", "0", "65535", "4294967295", "unknown", "", "\0"])
def test_speed_that_the_driver_does_not_know_is_absent(tmp_path: Path, text: str) -> None:
    write(tmp_path, "sys/class/net/eth0/speed", f"{text}\n")
    write(tmp_path, "sys/class/net/eth1/speed", "100000\n")
    found = read(NETSPEED, source(NETSPEED, host(tmp_path)))
    assert math.isnan(found.pop(("net.speed", "eth0")))
    assert found == {("net.speed", "eth1"): 100000}


def test_a_link_that_is_down_has_no_speed_and_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    down = write(tmp_path, "sys/class/net/eth0/speed", "x")
    write(tmp_path, "sys/class/net/eth1/speed", "25000\n")
    write(tmp_path, "sys/class/net/docker0/speed", "10000\n")
    write(tmp_path, "sys/class/net/bonding_masters", "")
    (tmp_path / "sys/class/net/ib0").mkdir()
    real = open

    def refusing(path: str, mode: str) -> object:
        if path == str(down):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(path, mode)

    monkeypatch.setattr("builtins.open", refusing)
    at = source(NETSPEED, host(tmp_path, interface=("!docker*",)))
    assert read(NETSPEED, at) == {("net.speed", "eth1"): 25000}
    assert not at.problems(1, SECOND_NS)
    assert at.errors == 0


def test_netdev_names_of_all_kinds() -> None:
    row = b" %s:%d 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 \r\n"
    names = (b"eth0", b"eth0:1", b"eth0.100", b"bond0.200", b"\xff\xfe", b"a/b")
    found = parse(NETDEV, NETDEV_HEADER + b"".join(row % (name, 10 + index) for index, name in enumerate(names)))
    assert [found["net.rx_bytes", name] for name in ("eth0", "eth0:1", "eth0.100", "bond0.200", "a/b")] == [
        *(10, 11, 12, 13, 15)
    ]


def test_netdev_cut_short_in_a_row_leaves_that_one_out() -> None:
    text = NETDEV_HEADER + b"  eth0: 5 0 0 0 0 0 0 0 0 0 0 0 0 0 9 0\n  eth1: 5 0 0 0 0 0"
    assert {name for _, name in parse(NETDEV, text)} == {"eth0"}


def test_netdev_of_old_kernels_and_numbers_of_twenty_digits() -> None:
    found = parse(NETDEV, NETDEV_HEADER + b"  eth0:18446744073709551615 1 2 3 x 0 0 0 8 9 0 0 0 0 9 0\n")
    assert found["net.rx_bytes", "eth0"] == 2**64 - 1
    assert math.isnan(found["net.rx_fifo", "eth0"])
    row = NETDEV_HEADER + b"  eth0: %d 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    _, second = rates(NETDEV, row % 10, row % (10**30))
    assert math.isnan(second["net.rx_bytes", "eth0"])


def test_sockstat_and_snmp_with_foreign_line_ends() -> None:
    found = parse(
        SOCKSTAT, b"sockets: used 290 \r\nTCP: inuse 6 orphan 1 tw 5 alloc 17 mem 2\r\nUDP: inuse 3 mem x\r\n"
    )
    assert found["sock.used", ""] == 290
    assert found["tcp.mem_pages", ""] == 2
    found = parse(SNMP_NETSTAT, b"Udp: InDatagrams InErrors\r\nUdp: 7 8 \r\n")
    assert found == {("udp.in_datagrams", ""): 7, ("udp.in_errors", ""): 8}


def test_softnet_of_a_cpu_that_went_away() -> None:
    row = b"%08x 00000000 00000001" + b" 00000000" * 9 + b" %08x 00000000 00000000\n"
    parser = SOFTNET.parser()
    both = values(parser({"proc/net/softnet_stat": row % (5, 0) + row % (6, 1)}))
    assert both["softnet.processed", "cpu1"] == 6
    assert {cpu for _, cpu in values(parser({"proc/net/softnet_stat": row % (5, 0)}))} == {"cpu0"}


def test_counters_of_ip_6() -> None:
    text = (
        b"Ip6InReceives                   \t13460884\nIp6InDiscards                   \t3\r\n"
        b"Ip6OutDiscards                  \t1 \nIcmp6InMsgs  \t9\nUdp6InErrors                    \tx\n"
    )
    found = parse(SNMP6, text)
    assert math.isnan(found.pop(("udp6.in_errors", "")))
    # Old kernels have no counter of full buffers.
    assert found == {("ip6.in_receives", ""): 13460884, ("ip6.in_discards", ""): 3, ("ip6.out_discards", ""): 1}
    assert parse(SNMP6, text[:50]) == {("ip6.in_receives", ""): 13460884}
    assert parse(SNMP6, b"Ip6InRec") == {}


CONNTRACK_HEADERS = {
    "2.6": b"entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop"
    b" icmp_error  expect_new expect_create expect_delete search_restart\n",
    "5.15": b"entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop"
    b" icmp_error  expect_new expect_create expect_delete search_restart\n",
    "other": b"entries  drop early_drop invalid insert_failed icmp_error\n",
}
CONNTRACK_ROWS = {
    "2.6": b"00000021  0 0 0 0000002f 00005688 0 0 0 0000000a 0000000b 0000000c 0  0 0 0 0\n",
    "5.15": b"00000021  0 0 0 0000002f 00000000 0 0 0 0000000a 0000000b 0000000c 0  0 0 0 0\n",
    "other": b"00000021  0000000b 0000000c 0000002f 0000000a 0\n",
}


@pytest.mark.parametrize("kernel", CONNTRACK_HEADERS)
def test_connection_tracking_by_the_names_in_its_header(kernel: str) -> None:
    header, row = CONNTRACK_HEADERS[kernel], CONNTRACK_ROWS[kernel]
    texts = {
        "proc/net/stat/nf_conntrack": header + row + row.replace(b"2f", b"30"),
        "proc/sys/net/netfilter/nf_conntrack_count": b"33\n",
        "proc/sys/net/netfilter/nf_conntrack_max": b"262144\n",
        "sys/devices/system/cpu/possible": b"0,4\n",
    }
    found = values(CONNTRACK.parser()(texts))
    assert found["conntrack.entries", ""] == 33
    assert found["conntrack.limit", ""] == 262144
    assert {metric: value for (metric, cpu), value in found.items() if cpu == "cpu0"} == {
        "conntrack.invalid": 0x2F,
        "conntrack.insert_failed": 10,
        "conntrack.drop": 11,
        "conntrack.early_drop": 12,
    }
    assert found["conntrack.invalid", "cpu4"] == 0x30
    del texts["sys/devices/system/cpu/possible"]
    assert ("conntrack.invalid", "cpu1") in values(CONNTRACK.parser()(texts))


def test_connection_tracking_with_a_row_cut_short() -> None:
    found = parse(CONNTRACK, CONNTRACK_HEADERS["other"] + CONNTRACK_ROWS["other"] + b"00000021  0000")
    assert {cpu for _, cpu in found} == {"cpu0"}
    with pytest.raises(ParseError, match="no header"):
        parse(CONNTRACK, b"\0\0 1 2\n1 2 3\n")
    with pytest.raises(ParseError, match="neither"):
        CONNTRACK.parser()({"sys/devices/system/cpu/possible": b"0-3\n"})


def test_connection_tracking_without_its_module_still_knows_no_zero() -> None:
    found = values(CONNTRACK.parser()({"proc/sys/net/netfilter/nf_conntrack_max": b"65536\n"}))
    assert found == {("conntrack.limit", ""): 65536}


def test_connections_dropped_come_round_after_32_bits() -> None:
    row = b"00000021  %08x 0 0 0 0\n"
    header = CONNTRACK_HEADERS["other"]
    _, second = rates(CONNTRACK, header + row % (2**32 - 2), header + row % 3)
    assert second["conntrack.drop", "cpu0"] == 5


def infiniband(**texts: bytes) -> Values:
    """Values of files of one port; two underscores in a name stand for a slash."""
    return values(
        INFINIBAND_ERRORS.parser()({f"{PORT}/{name.replace('__', '/')}": text for name, text in texts.items()})
    )


def test_words_of_four_bytes() -> None:
    only = replace(INFINIBAND, files=(f"{PORT}/counters/port_rcv_data",))
    _, second = rates(only, b"1000000\n", b"2000000\n")
    assert second == {("ib.rx_data", "mlx5_0/1"): 4_000_000}


def test_states_and_rates_of_a_port() -> None:
    found = infiniband(state=b"4: ACTIVE\n", phys_state=b"5: LinkUp", rate=b"100 Gb/sec (4X EDR)\n")
    assert found == {("ib.state", "mlx5_0/1"): 4, ("ib.phys_state", "mlx5_0/1"): 5, ("ib.rate", "mlx5_0/1"): 100}
    assert infiniband(rate=b"2.5 Gb/sec (1X SDR)\r\n") == {("ib.rate", "mlx5_0/1"): 2.5}
    for text in (b"", b"\0", b": x\n", b"<unknown>\n", b"ACTIVE\n", b"nan Gb/sec\n", b"1_0 Gb/sec\n"):
        (value,) = infiniband(rate=text).values()
        assert math.isnan(value), text


def test_counters_that_a_port_cannot_tell_are_absent() -> None:
    found = infiniband(counters__symbol_error=b"N/A (no PMA)\n", counters__link_downed=b"3\n")
    assert math.isnan(found["ib.symbol_error", "mlx5_0/1"])
    assert found["ib.link_downed", "mlx5_0/1"] == 3


def test_narrow_counters_that_stand_at_their_end_are_absent_and_named() -> None:
    parser = INFINIBAND_ERRORS.parser()
    path = f"{PORT}/counters/link_downed"
    layout, cells = parser({path: b"254\n"})
    assert cells == [254]
    assert layout.notes == ()
    layout, cells = parser({path: b"255\n"})
    assert math.isnan(cells[0])
    assert layout.notes == ("ib.link_downed of mlx5_0/1 stands at its highest value; reset it",)
    layout, cells = parser({path: b"1\n"})
    assert (cells, layout.notes) == ([1], ())
    only = replace(INFINIBAND, files=(f"{PORT}/counters/port_xmit_data",))
    found = [s["ib.tx_data", "mlx5_0/1"] for s in rates(only, b"4294967200", b"4294967295", b"4294967295", b"5", b"9")]
    assert all(math.isnan(rate) for rate in found[:4])
    assert found[4] == 16


def test_wide_counters_of_old_kernels_take_the_place_of_narrow_ones() -> None:
    texts = {
        f"{PORT}/counters/port_rcv_data": b"4294967295\n",
        f"{PORT}/counters_ext/port_rcv_data_64": b"20000000000\n",
    }
    assert values(INFINIBAND.parser()(texts)) == {("ib.rx_data", "mlx5_0/1"): 20_000_000_000}


def test_failed_work_requests_are_both_sides() -> None:
    found = infiniband(hw_counters__req_cqe_error=b"5\n", hw_counters__resp_cqe_error=b"7\n")
    assert found == {("ib.hw.cqe_errors", "mlx5_0/1"): 12}
    assert infiniband(hw_counters__req_cqe_error=b"5\n") == {}


def test_adapters_without_the_usual_files_hide_no_other(tmp_path: Path) -> None:
    root = "sys/class/infiniband"
    for port in (1, 2):
        write(tmp_path, f"{root}/mlx5_0/ports/{port}/state", "4: ACTIVE\n")
        write(tmp_path, f"{root}/mlx5_0/ports/{port}/hw_counters/out_of_buffer", f"{port}\n")
    write(tmp_path, f"{root}/mlx5_0/hw_counters/out_of_buffer", "99\n")
    write(tmp_path, f"{root}/mlx5_0/ports/1/hw_counters/lifespan", "10\n")
    (tmp_path / root / "irdma0").mkdir()
    write(tmp_path, f"{root}/hfi1_0/hw_counters/SwLinkUp,32", "32\n")
    write(tmp_path, f"{root}/hfi1_0/hw_counters/duplicate_request", "6\n")
    write(tmp_path, f"{root}/hfi1_0/ports/1/counters/symbol_error", "N/A (no PMA)\n")
    at = source(INFINIBAND_ERRORS, host(tmp_path))
    found = read(INFINIBAND_ERRORS, at)
    assert math.isnan(found.pop(("ib.symbol_error", "hfi1_0/1")))
    assert found == {
        ("ib.state", "mlx5_0/1"): 4,
        ("ib.state", "mlx5_0/2"): 4,
        ("ib.hw.out_of_buffer", "mlx5_0/1"): 1,
        ("ib.hw.out_of_buffer", "mlx5_0/2"): 2,
        ("ib.hw.duplicate_request", "hfi1_0"): 6,
    }
    assert not at.problems(1, SECOND_NS)
    at.close()


def test_adapters_come_and_go_while_the_agent_runs(tmp_path: Path) -> None:
    clock = FakeClock()
    frame = Frame((INFINIBAND,), host(tmp_path, clock.monotonic_ns), 100, Identity("h", "s"))
    tick = 0

    def ports(last: tuple[str, ...]) -> tuple[str, ...]:
        """Ports in the batches of the next seconds, until they are `last` or ten seconds have passed."""
        nonlocal tick
        deadline = time.monotonic() + 10
        found: tuple[str, ...] = ()
        while found != last and time.monotonic() < deadline:
            for row in range(10):
                frame.sample(tick, row)
                tick += 1
                clock.pass_ns(SECOND_NS // 10)
                time.sleep(0.001)
            found = ()
            for record in frame.cut(START_NS, 10):
                found = record.instances.get("port", ())
        return found

    (tmp_path / "sys").mkdir()
    assert ports(()) == ()
    write(tmp_path, f"{PORT}/counters/port_rcv_data", "5\n")
    assert ports(("mlx5_0/1",)) == ("mlx5_0/1",)
    write(tmp_path, "sys/class/infiniband/mlx5_10/ports/1/counters/port_rcv_data", "5\n")
    write(tmp_path, "sys/class/infiniband/mlx5_9/ports/1/counters/port_rcv_data", "5\n")
    assert ports(("mlx5_0/1", "mlx5_9/1", "mlx5_10/1")) == ("mlx5_0/1", "mlx5_9/1", "mlx5_10/1")
    (tmp_path / PORT / "counters/port_rcv_data").unlink()
    assert ports(("mlx5_9/1", "mlx5_10/1")) == ("mlx5_9/1", "mlx5_10/1")
    frame.close()


def attribute(kind: int, body: bytes) -> bytes:
    """A netlink attribute, padded."""
    return struct.pack("=HH", 4 + len(body), kind) + body + b"\0" * (-len(body) % 4)


def device(name: bytes, **counts: int) -> bytes:
    """The kernel's message about one RDMA device."""
    entries = b"".join(
        attribute(
            16 | 0x8000,
            attribute(17, kind.encode() + b"\0") + attribute(18, struct.pack("=Q", count)) + attribute(99, b""),
        )
        for kind, count in counts.items()
    )
    body = attribute(1, struct.pack("=I", 0)) + attribute(2, name + b"\0") + attribute(15 | 0x8000, entries)
    return message(CLIENT + RES_GET, body)


def message(kind: int, body: bytes) -> bytes:
    """A netlink message, padded."""
    return HEADER.pack(HEADER.size + len(body), kind, 2, 1, 0) + body + b"\0" * (-len(body) % 4)


def test_netlink_messages_are_taken_apart() -> None:
    packet = device(b"mlx5_0", pd=3, qp=2**40, mr=1) + device(b"mlx5_bond_0", qp=0)
    assert resources(packet) == ({"mlx5_0": {"pd": 3, "qp": 2**40, "mr": 1}, "mlx5_bond_0": {"qp": 0}}, False)
    assert resources(message(DONE, struct.pack("=i", 0))) == ({}, True)
    with pytest.raises(PermissionError):
        resources(message(ERROR, struct.pack("=i", -errno.EPERM)))
    first = len(device(b"mlx5_0", pd=3, qp=2**40, mr=1))
    for length in range(HEADER.size, len(packet)):
        if length == first or 0 < length - first < HEADER.size:
            assert resources(packet[:length])[0].keys() == {"mlx5_0"}
        else:
            with pytest.raises(OSError, match="cut short"):
                resources(packet[:length])


def test_the_kernel_here_answers_or_says_why_not() -> None:
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL).close()
    except OSError:
        with pytest.raises(FileNotFoundError, match="no RDMA netlink"):
            rdma_resources()
    else:
        assert all(isinstance(count, int) for kinds in rdma_resources().values() for count in kinds.values())


def test_a_kernel_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # A datagram socket that is connected to nothing that speaks.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    class Silent:
        def __enter__(self) -> Silent:
            return self

        def __exit__(self, *error: object) -> None:
            ours.close()

        def settimeout(self, seconds: float) -> None:
            assert seconds <= 5
            ours.settimeout(seconds / 100)

        def sendto(self, packet: bytes, address: tuple[int, int]) -> None:
            assert struct.unpack_from("=IHHII", packet) == (16, 5 << 10 | 9, 0x301, 1, 0)
            ours.send(packet)

        def recv(self, size: int) -> bytes:
            return ours.recv(size)

    monkeypatch.setattr(socket, "socket", lambda *kind: Silent())
    with pytest.raises(TimeoutError):
        rdma_resources()
    theirs.close()


def test_queue_pairs_have_the_name_of_the_only_port(tmp_path: Path) -> None:
    for path in ("mlx5_0/ports/1", "mlx4_0/ports/1", "mlx4_0/ports/2"):
        (tmp_path / "sys/class/infiniband" / path).mkdir(parents=True)
    counts = {"mlx5_0": {"qp": 512, "cq": 9}, "mlx4_0": {"qp": 4}, "siw0": {"pd": 1}}
    found = read(RDMA, queue_pairs(RDMA, host(tmp_path), lambda: counts))
    assert found == {("ib.qp_count", "mlx5_0/1"): 512, ("ib.qp_count", "mlx4_0"): 4}


def test_without_an_adapter_nobody_is_asked(tmp_path: Path) -> None:
    asked: list[int] = []

    def ask() -> dict[str, dict[str, int]]:
        asked.append(1)
        return {}

    at = queue_pairs(RDMA, host(tmp_path), ask)
    assert read(RDMA, at) == {}
    assert not asked
    assert [problem.kind for problem in at.problems(1, SECOND_NS)] == ["missing"]
    assert at.idle()


def test_queue_pairs_without_permission_are_missing_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)

    def refuse() -> dict[str, dict[str, int]]:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    at = queue_pairs(RDMA, host(tmp_path), refuse)
    assert read(RDMA, at) == {}
    (problem,) = at.problems(1, SECOND_NS)
    assert (problem.kind, problem.reason) == ("missing", "Operation not permitted")


def test_pcie_links_of_cards_that_matter(tmp_path: Path) -> None:
    cards = {
        "0000:1b:00.0": ("0x020700", "16", "16", "16.0 GT/s PCIe"),
        "0000:3b:00.0": ("0x010802", "2", "4", "8 GT/s"),
        "0000:4b:00.0": ("0x030200", "63", "255", "Unknown"),
        "0000:5b:00.0": ("0x120000", "8", "16", "2.5 GT/s PCIe"),
        "0000:00:1f.0": ("0x060100", "1", "1", "5.0 GT/s PCIe"),
        "0000:1b:00.1": ("0x020000", "16", "16", "16.0 GT/s PCIe"),
    }
    for address, (code, width, most, speed) in cards.items():
        directory = f"sys/bus/pci/devices/{address}"
        write(tmp_path, f"{directory}/class", f"{code}\n")
        write(tmp_path, f"{directory}/current_link_width", f"{width}\n")
        write(tmp_path, f"{directory}/max_link_width", f"{most}\n")
        write(tmp_path, f"{directory}/current_link_speed", f"{speed}\n")
        write(tmp_path, f"{directory}/aer_dev_correctable", "RxErr 1\nTOTAL_ERR_COR 5\n")
    # A virtual function, and a device without a link.
    (tmp_path / "sys/bus/pci/devices/0000:1b:00.1/physfn").mkdir()
    write(tmp_path, "sys/bus/pci/devices/0000:00:03.0/class", "0x020000\n")
    at = source(PCIE, host(tmp_path))
    found = read(PCIE, at)
    assert {key: value for key, value in found.items() if not math.isnan(value)} == {
        ("pcie.width", "0000:1b:00.0"): 16,
        ("pcie.width_lost", "0000:1b:00.0"): 0,
        ("pcie.speed", "0000:1b:00.0"): 16.0,
        ("pcie.width", "0000:3b:00.0"): 2,
        ("pcie.width_lost", "0000:3b:00.0"): 2,
        ("pcie.speed", "0000:3b:00.0"): 8.0,
        ("pcie.width", "0000:5b:00.0"): 8,
        ("pcie.width_lost", "0000:5b:00.0"): 8,
        ("pcie.speed", "0000:5b:00.0"): 2.5,
    }
    assert ("pcie.width", "0000:4b:00.0") in found
    assert not at.problems(1, SECOND_NS)
    errors = source(PCIE_ERRORS, host(tmp_path))
    assert {device for _, device in read(PCIE_ERRORS, errors)} == set(cards) - {"0000:00:1f.0", "0000:1b:00.1"}
    for each in (at, errors):
        each.close()


@pytest.mark.parametrize("text", [b"RxErr 1\nBadTLP 2\n", b"TOTAL_ERR_COR \n", b"TOTAL_ERR_COR x\n", b"\0"])
def test_pcie_errors_without_a_total_are_absent(text: bytes) -> None:
    path = "sys/bus/pci/devices/0000:1b:00.0/aer_dev_correctable"
    (value,) = values(PCIE_ERRORS.parser()({path: text})).values()
    assert math.isnan(value)


def test_pcie_errors_of_three_kinds() -> None:
    directory = "sys/bus/pci/devices/0000:1b:00.0"
    texts = {
        f"{directory}/aer_dev_correctable": b"RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 3\n",
        f"{directory}/aer_dev_fatal": b"Undefined 0\r\nDLP 4\r\nTOTAL_ERR_FATAL 4\r\n",
        f"{directory}/aer_dev_nonfatal": b"TOTAL_ERR_NONFATAL 18446744073709551615",
    }
    assert list(values(PCIE_ERRORS.parser()(texts)).values()) == [3, 4, 2**64 - 1]


CARD = "sys/bus/pci/devices/0000:{:02x}:00.0"
FILES: dict[str, tuple[Collector, str, str, Mapping[str, str]]] = {
    # Collector, metric, instance, files of device number {}.
    "interface": (
        *(NETCLASS, "net.operstate", "eth{}"),
        {"sys/class/net/eth{}/operstate": "up\n", "sys/class/net/eth{}/carrier_changes": "2\n"},
    ),
    "port": (
        INFINIBAND,
        "ib.rx_data",
        "mlx5_{}/1",
        {"sys/class/infiniband/mlx5_{}/ports/1/counters/port_rcv_data": "9"},
    ),
    "link": (
        PCIE,
        "pcie.width",
        "0000:{:02x}:00.0",
        {f"{CARD}/class": "0x020000\n", f"{CARD}/current_link_width": "8\n"},
    ),
    "errors": (
        *(PCIE_ERRORS, "pcie.aer_fatal", "0000:{:02x}:00.0"),
        {f"{CARD}/class": "0x030200\n", f"{CARD}/aer_dev_fatal": "DLP 0\nTOTAL_ERR_FATAL 1\n"},
    ),
    "controller": (NVME, "nvme.state", "nvme{}", {"sys/class/nvme/nvme{}/state": "live\n"}),
}


@pytest.mark.parametrize("device", FILES)
def test_devices_come_and_go_and_files_vanish(tmp_path: Path, device: str) -> None:
    collector, metric, instance, files = FILES[device]
    clock = FakeClock()
    at = source(collector, host(tmp_path, clock.monotonic_ns))
    parser = collector.parser()

    def there(*numbers: int) -> bool:
        """Whether the devices of `numbers` and no others are seen, within ten seconds."""
        wanted = {instance.format(number) for number in numbers}
        found: set[str] = set()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            clock.pass_ns(11 * SECOND_NS)
            at.request(clock.monotonic_ns())
            time.sleep(0.001)
            if (reading := at.read(clock.monotonic_ns())) is not None:
                found = {name for (one, name), value in values(parser(reading[1])).items() if one == metric}
            elif at.idle():
                found = set()
            if found == wanted:
                return True
        return False

    def add(number: int) -> None:
        for path, text in files.items():
            write(tmp_path, path.format(number), text)

    (tmp_path / "sys").mkdir()
    assert there()
    add(1)
    assert there(1)
    add(10)
    add(2)
    assert there(1, 2, 10)
    for path in files:
        (tmp_path / path.format(2)).unlink()
    assert there(1, 10)
    # Empty is not zero.
    for path in files:
        (tmp_path / path.format(1)).write_text("")
    assert there(10)
    for number in (1, 10):
        for path in files:
            (tmp_path / path.format(number)).unlink()
    assert there()
    add(1)
    assert there(1)
    at.close()


FOLDERS = {
    "net_statistics": (NETCLASS, "sys/class/net/eth0/statistics/"),
    "ib_counters": (INFINIBAND_ERRORS, f"{PORT}/counters/"),
    "ib_hw_counters": (INFINIBAND_ERRORS, f"{PORT}/hw_counters/"),
    "ib_state_rate_phys": (INFINIBAND_ERRORS, f"{PORT}/"),
    "pcie_aer": (PCIE_ERRORS, "sys/bus/pci/devices/0000:1b:00.0/"),
    "pcie_link": (PCIE, "sys/bus/pci/devices/0000:1b:00.0/"),
}


@pytest.mark.skipif("REVEAL_CORPUS" not in os.environ, reason="REVEAL_CORPUS is not set")
@pytest.mark.parametrize("folder", FOLDERS)
def test_corpus_files_under_the_names_that_they_had(folder: str) -> None:
    collector, directory = FOLDERS[folder]
    root = Path(os.environ["REVEAL_CORPUS"])
    with (root / "MANIFEST.csv").open() as file:
        names = {row["file"]: {Path(path).name for path in row["path_there"].split()} for row in csv.DictReader(file)}
    files = sorted((root / folder).iterdir())
    known = 0
    for path in files:
        text = path.read_bytes()
        for name in names[path.name]:
            found = values(collector.parser()({f"{directory}{name}": text}))
            known += len(found)
            for (metric, instance), value in found.items():
                assert metric in (*collector.metrics, *INFINIBAND.metrics)
                assert instance in ("eth0", "mlx5_0/1", "0000:1b:00.0")
                number = float(text.split()[-1] if folder == "pcie_aer" else text.split()[0].rstrip(b":"))
                assert value == number or (math.isnan(value) and number in (0, 15, 255, 65535, 4294967295))
        # Whatever a file is called, its text surprises nobody.
        for wanted in collector.files:
            values(collector.parser()({wanted.replace("[0-9]*", "1").replace("*", "x"): text}))
    assert files
    # None of the counters of interfaces that the corpus has is of use.
    assert known or folder == "net_statistics"
