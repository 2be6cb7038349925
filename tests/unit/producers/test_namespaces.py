"""Host or container, told from a made-up /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from producers.namespaces import FIRST_PID_NAMESPACE, container_notes, network_root


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    return tmp_path


def test_the_first_process_namespace_is_the_host(proc: Path) -> None:
    (proc / "self" / "ns" / "pid").symlink_to(FIRST_PID_NAMESPACE)
    assert container_notes(str(proc)) == []


def test_any_other_is_a_container_and_the_note_says_what_to_do(proc: Path) -> None:
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026532198]")
    (note,) = container_notes(str(proc))
    assert "container" in note
    assert "procfs" in note


def test_nothing_is_claimed_where_nothing_is_known(proc: Path) -> None:
    assert container_notes(str(proc)) == []


def test_the_network_of_a_mounted_proc_is_that_of_its_first_process(proc: Path) -> None:
    assert network_root(str(proc)) == f"{proc}/net"
    (proc / "1" / "net").mkdir(parents=True)
    assert network_root(str(proc)) == f"{proc}/1/net"
    assert network_root("/proc") == "/proc/net"
