"""Which instances are read."""

from __future__ import annotations

import pytest

from producers.collectors.diskstats import DISKSTATS
from producers.collectors.netdev import NETDEV
from producers.selection import Selection
from schemas.settings import AgentSettings
from tests.unit.producers.readings import values

DEFAULT = {"interface": AgentSettings().interfaces}


@pytest.mark.parametrize(
    ("patterns", "instance", "wanted"),
    [
        ((), "eth0", True),
        (("eth*",), "eth0", True),
        (("eth*",), "ib0", False),
        (("!eth1", "eth*"), "eth1", False),
        (("!eth1", "eth*"), "eth2", True),
        (("!veth*",), "eth0", True),
        (("!veth*",), "veth12", False),
        (("eth1", "!eth*"), "eth1", True),
        (("eth1", "!eth*"), "eth2", False),
    ],
)
def test_the_first_pattern_that_matches_decides(patterns: tuple[str, ...], instance: str, wanted: bool) -> None:
    assert Selection({"interface": patterns})("interface", instance) is wanted
    assert Selection({"interface": patterns})("disk", instance)


@pytest.mark.parametrize("name", ["eth0", "ens1f0np0", "enp3s0", "ib0", "bond0", "eno1", "mlx5_0", "team0:1", "br0"])
def test_real_interfaces_are_read_by_default(name: str) -> None:
    assert Selection(DEFAULT)("interface", name)


@pytest.mark.parametrize(
    "name", ["lo", "veth0a1b", "docker0", "br-5d0e", "virbr0", "cali12", "tun0", "dummy0", "vnet3"]
)
def test_virtual_interfaces_are_not(name: str) -> None:
    assert not Selection(DEFAULT)("interface", name)


def test_unwanted_interfaces_cost_no_parsing_and_come_and_go() -> None:
    header = b"Inter-|   Receive |  Transmit\n face |bytes packets|bytes packets\n"
    parser = NETDEV.parser(Selection(DEFAULT))
    first = values(parser({"proc/net/dev": header + b"  eth0: 1 2 3 4\n veth1: garbage\n"}))
    assert {instance for _, instance in first} == {"eth0"}
    second = values(parser({"proc/net/dev": header + b" veth1: 5 5 5 5\n  eth1: 6 7 8 9\n  eth0: 1 2 3 4\n"}))
    assert second["net.tx_packets", "eth1"] == 9
    assert {instance for _, instance in second} == {"eth0", "eth1"}


def test_disks_by_pattern() -> None:
    text = b"8 0 sda 1 0 9 6 0 0 0 0 1 3 4\n259 0 nvme0n1 5 0 9 6 0 0 0 0 1 3 4\n"
    found = values(DISKSTATS.parser(Selection({"disk": ("nvme*",)}))({"proc/diskstats": text}))
    assert {instance for _, instance in found} == {"nvme0n1"}
