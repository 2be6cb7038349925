"""The wire: what it does to frames, and that all of it is gone with its process."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.laboratory.wire import INTERFACE, PEER, SECOND_PEER, SOCKET, Impairment
from tests.unit.deploy.supervised import until

ROOT = os.geteuid() == 0 and shutil.which("ip") is not None and shutil.which("nsenter") is not None
LINK = Path("/sys/class/net") / INTERFACE


def test_loss_takes_its_share() -> None:
    way = Impairment(0.05, 0.0)
    for number in range(10_000):
        way.take(number.to_bytes(2, "big"), 0.0)
    frames = list(way.due(0.0))
    assert 9_300 < len(frames) < 9_700
    assert frames == sorted(frames)
    assert way.next() is None


def test_delay_keeps_the_order_and_loses_nothing() -> None:
    way = Impairment(0.0, 0.08)
    for number in range(10):
        way.take(bytes([number]), number / 100)
    assert list(way.due(0.079)) == []
    assert list(way.due(0.105)) == [b"\0", b"\1", b"\2"]
    assert way.next() == pytest.approx(0.11)
    assert len(list(way.due(1.0))) == 7


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    if not ROOT:
        pytest.skip("needs root and iproute2")
    if LINK.exists():
        pytest.skip("a fault laboratory runs on this machine")
    argv = [sys.executable, "-m", "tests.laboratory.wire", str(tmp_path), "relay"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        until(lambda: child.poll() is not None or (tmp_path / SOCKET).exists())
        if child.poll() is not None and child.stdout is not None:
            reason = child.stdout.read().decode()
            assert reason, "the wire broke, and its standard error says why"
            pytest.skip(f"no wire here: {reason}")
        yield child
        child.kill()
    until(lambda: not LINK.exists())


def order(directory: Path, text: str) -> tuple[socket.socket, str]:
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(10)
    line.connect(str(directory / SOCKET))
    line.sendall(f"{text}\n".encode())
    return line, line.makefile().readline().strip()


def answers(address: str) -> bool:
    """Whether the peer answers a message within a second."""
    message = (100).to_bytes(4, "big") + bytes(100)
    try:
        with socket.create_connection((address, 7070), 1.0) as connection:
            connection.sendall(message)
            return len(connection.recv(200, socket.MSG_WAITALL)) > 0
    except OSError:
        return False


def test_impairments_last_as_long_as_their_order(wire: subprocess.Popen[bytes], tmp_path: Path) -> None:
    until(lambda: answers(PEER) and answers(SECOND_PEER))
    for text, lost, kept in (("loss 100", PEER, None), ("vanish", SECOND_PEER, PEER)):
        line, word = order(tmp_path, text)
        assert word == "done"
        assert not answers(lost)
        assert kept is None or answers(kept)
        line.close()
        until(lambda lost=lost: answers(lost))  # type: ignore[misc]
    line, word = order(tmp_path, "cut it")
    assert "knows no" in word
    line.close()


def test_all_of_it_is_gone_with_its_process(wire: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert LINK.exists()
    line, word = order(tmp_path, "delay 20")
    assert word == "done"
    wire.kill()
    line.close()
    wire.wait(10)
    until(lambda: not LINK.exists())
