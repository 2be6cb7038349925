"""Devices that come and go, links that go down: lists on a made-up tree, rtnetlink on the kernel itself."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import queue
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from producers.devices import Devices
from producers.links import ATTRIBUTE, HEADER, IFF_LOWER_UP, IFF_UP, Link, Links, parse
from producers.links import LINK as LINK_MESSAGE
from producers.notices import Notice
from producers.reading import everything

NOW = 1_790_000_000_000_000_000


def wall() -> int:
    return NOW


def brief(notices: list[Notice]) -> list[tuple[str, str, str]]:
    assert {notice.time_ns for notice in notices} <= {NOW}
    return [(notice.kind, notice.instance, notice.severity) for notice in notices]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("cpu", "node"):
        (tmp_path / "devices/system" / name).mkdir(parents=True)
        (tmp_path / "devices/system" / name / "online").write_text("0-3\n" if name == "cpu" else "0\n")
    for disk in ("sda", "nvme0n1", "loop0"):
        (tmp_path / "block" / disk).mkdir(parents=True)
    for disk in ("sda", "nvme0n1"):
        (tmp_path / "block" / disk / "device").mkdir()
    return tmp_path


def test_processors_nodes_and_disks_that_come_and_go(tree: Path) -> None:
    devices = Devices(str(tree), everything, wall)
    assert devices.look() == []
    (tree / "devices/system/cpu/online").write_text("0,2-3,5\n")
    (tree / "devices/system/node/online").write_text("0-1\n")
    (tree / "block/sda/device").rmdir()
    (tree / "block/sda").rmdir()
    (tree / "block/loop1").mkdir()
    assert brief(devices.look()) == [
        ("device_gone", "cpu1", "warning"),
        ("device_back", "cpu5", "info"),
        ("device_back", "node1", "info"),
        ("device_gone", "sda", "warning"),
    ]
    assert devices.look() == []


@pytest.mark.parametrize("text", ["", "garbage", "0-", "-1"])
def test_a_list_that_cannot_be_read_says_nothing(tree: Path, text: str) -> None:
    devices = Devices(str(tree), everything, wall)
    devices.look()
    online = tree / "devices/system/cpu/online"
    online.write_text(text)
    assert devices.look() == []
    online.unlink()
    assert devices.look() == []
    online.write_text("0-2\n")
    assert brief(devices.look()) == [("device_gone", "cpu3", "warning")]


def test_unwanted_disks_are_not_followed(tree: Path) -> None:
    devices = Devices(str(tree), lambda dimension, instance: instance != "sda", wall)
    devices.look()
    (tree / "block/sda/device").rmdir()
    (tree / "block/sda").rmdir()
    assert devices.look() == []


def test_this_machine_stays_as_it_is() -> None:
    devices = Devices("/sys", everything, wall)
    assert devices.look() == []
    assert devices.look() == []


def message(kind: int, link: Link, family: int = 0) -> bytes:
    name = link.name.encode() + b"\0"
    attributes = ATTRIBUTE.pack(6, 1) + b"ab\0\0" + ATTRIBUTE.pack(4 + len(name), 3) + name
    flags = (IFF_UP if link.on else 0) | (IFF_LOWER_UP if link.carrier else 0)
    body = LINK_MESSAGE.pack(family, 1, link.index, flags, 0) + attributes
    data = HEADER.pack(HEADER.size + len(body), kind, 0, 0, 0) + body
    return data + bytes(-len(data) % 4)


def test_parses_what_the_kernel_sends() -> None:
    up, gone = Link(7, "eth0", True, True), Link(8, "enp94s0f0np0", False, False, True)
    done = HEADER.pack(HEADER.size + 4, 3, 0, 0, 0) + bytes(4)
    data = message(16, up) + message(17, gone) + message(20, up) + message(17, up, family=7) + done
    assert list(parse(data)) == [up, gone, None]
    for size in range(len(message(16, up))):
        assert list(parse(data[:size])) in ([], [up])
    assert list(parse(b"\0" * 100)) == []


def links_after(*there: Link) -> Links:
    links = Links(lambda dimension, instance: not instance.startswith("veth"), wall)
    for link in (*there, None):
        assert links.take(link) == []
    return links


def test_changes_alone_are_told() -> None:
    links = links_after(Link(1, "lo", True, True), Link(2, "eth0", True, True), Link(3, "eth1", True, False))
    steps = {
        Link(2, "eth0", True, True): [],
        Link(2, "eth0", True, False): [("link_down", "eth0", "warning")],
        Link(2, "eth0", False, False): [],
        Link(3, "eth1", True, True): [("link_up", "eth1", "info")],
        Link(3, "eth1", False, False): [("link_down", "eth1", "info")],
        Link(4, "eth2", True, False): [("device_back", "eth2", "info")],
        Link(5, "veth7", True, True): [],
        Link(5, "veth7", True, False, True): [],
        Link(3, "eth1", False, False, True): [("device_gone", "eth1", "warning")],
        Link(9, "never", False, False, True): [],
    }
    for link, expected in steps.items():
        assert brief(links.take(link)) == expected


def test_what_was_not_announced_is_seen_in_the_next_list() -> None:
    links = links_after(Link(1, "lo", True, True), Link(2, "eth0", True, True), Link(3, "eth1", True, True))
    links._listed = set()
    assert links.take(Link(1, "lo", True, True)) == []
    assert brief(links.take(Link(3, "eth1", True, False))) == [("link_down", "eth1", "warning")]
    assert brief(links.take(None)) == [("device_gone", "eth0", "warning")]


def test_the_links_of_this_machine_are_known_and_no_news() -> None:
    links = Links(everything, wall)
    links.open()
    assert links.look() == []
    assert {link.name for link in links._known.values()} == {name for _, name in socket.if_nameindex()}
    assert links.look() == []
    links.close()
    assert links.look() == []


def in_a_network_of_its_own(work: Callable[[], object]) -> object:
    """What `work` returns, run by a thread in a network namespace of its own; skips where that is not permitted."""
    answers: queue.Queue[object] = queue.Queue()

    def run() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x40000000):
            answers.put(OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())))
            return
        try:
            answers.put(work())
        except BaseException as error:
            answers.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    answer = answers.get(timeout=1)
    if isinstance(answer, OSError) and answer.errno in (errno.EPERM, errno.EINVAL, errno.ENOSYS):
        pytest.skip(f"no network namespace: {answer}")
    if isinstance(answer, BaseException):
        raise answer
    return answer


def test_a_link_that_the_kernel_takes_up_and_down() -> None:
    def work() -> list[tuple[str, str, str]]:
        links = Links(everything, wall)
        links.open()
        told = links.look()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for flags in (IFF_UP, 0):
                fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", flags))
                told += links.look()
        links.close()
        return brief(told)

    assert in_a_network_of_its_own(work) == [("link_up", "lo", "info"), ("link_down", "lo", "info")]
