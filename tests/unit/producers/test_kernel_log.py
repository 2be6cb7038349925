"""Reading the log: records, continuation lines, times, processes that pretend, storms, and what cannot be opened."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from producers.kernel_log import MOST_RECORDS, RETRY_NS, KernelLog
from tests.unit.producers.tree import SECOND_NS, START_NS, FakeClock

XID = "NVRM: Xid (PCI:0000:cb:00): 79, GPU has fallen off the bus."


def opened(path: Path | str, clock: FakeClock | None = None) -> tuple[KernelLog, FakeClock]:
    clock = clock or FakeClock()
    log = KernelLog(str(path), clock.wall_ns, clock.monotonic_ns)
    log.open()
    return log, clock


def lines(log: KernelLog) -> list[str]:
    return [line for _, line in log.read()]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.write_text(f"4,1,100,-;{XID}\n")
    return path


def test_only_what_comes_after_opening_is_read(file: Path) -> None:
    log, _ = opened(file)
    assert lines(log) == []
    append(file, b"4,2,200,-;one\n SUBSYSTEM=pci\n DEVICE=+pci:0000:cb:00.0\n6,3,300,-;two\n4,4,400,-;thr")
    assert lines(log) == ["one", "two"]
    append(file, b"ee\nno header at all\n")
    assert lines(log) == ["three", "no header at all"]
    assert log.problem == ""
    log.close()


def test_a_pipe_is_read_as_it_fills(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    log, _ = opened(path)
    assert lines(log) == []
    writer = os.open(path, os.O_WRONLY)
    os.write(writer, f"4,2,200,-;{XID}\n".encode())
    assert lines(log) == [XID]
    assert lines(log) == []
    os.close(writer)
    assert lines(log) == []
    log.close()


def test_what_processes_write_into_the_log_is_left_out(file: Path) -> None:
    log, _ = opened(file)
    append(file, f"12,2,200,-;{XID}\n30,3,200,-;{XID}\n7,4,200,c;kernel\n4,5,200,-,caller=T12;also\n".encode())
    assert lines(log) == ["kernel", "also"]


def test_lines_of_one_message_come_apart_and_nothing_moves_a_cursor(file: Path) -> None:
    log, _ = opened(file)
    append(file, b"4,2,200,-;NVRM: The GPU 0000:b3:00.0\\x0aNVRM: fallen off\\x0a\n")
    assert lines(log) == ["NVRM: The GPU 0000:b3:00.0", "NVRM: fallen off"]
    append(file, b"4,3,200,-;\x1b[2Jred\xff\xfe \xe2\x80\xaeback\n")
    [line] = lines(log)
    assert line == "\\x1b[2Jred\\xff\\xfe \\x202eback"
    assert line.isprintable()


def test_the_time_is_that_of_the_log_within_what_is_possible(file: Path) -> None:
    log, clock = opened(file)
    clock.pass_ns(SECOND_NS)
    half_ago_us = (clock.monotonic - SECOND_NS // 2) // 1000
    append(
        file, f"4,2,{half_ago_us},-;now\n4,3,1,-;slow clock\n4,4,{half_ago_us * 9},-;fast clock\nno clock\n".encode()
    )
    times = {line: time_ns for time_ns, line in log.read()}
    assert times == {
        "now": START_NS + SECOND_NS // 2,
        "slow clock": START_NS,
        "fast clock": START_NS + SECOND_NS,
        "no clock": START_NS + SECOND_NS,
    }


def test_a_storm_is_read_in_pieces(file: Path) -> None:
    log, _ = opened(file)
    append(file, b"4,2,200,-;one of many\n" * 10_000)
    first = len(lines(log))
    # A file is read in blocks, so a block more may come.
    assert MOST_RECORDS <= first < 2 * MOST_RECORDS
    total = first
    while more := len(lines(log)):
        total += more
    assert total == 10_000


def test_records_that_were_overwritten_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A character device answers as the kernel's log does when its buffer runs over."""
    log, _ = opened("/dev/null")
    answers: list[bytes | OSError] = [
        b"4,10,1,-;first\n",
        OSError(errno.EPIPE, "Broken pipe"),
        b"4,500,1,-;later\n",
        b"4,501,1,-;next\n",
        BlockingIOError(errno.EAGAIN, "empty"),
    ]

    def read(descriptor: int, size: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr("producers.kernel_log.os.read", read)
    assert lines(log) == ["first", "later", "next"]
    assert log.lost == 489


def test_a_log_that_cannot_be_read_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "kmsg"
    log, clock = opened(path)
    assert (
        log.problem == f"{path} is not there, as in most containers: mount the host's and name it in the setting `kmsg`"
    )
    assert lines(log) == []
    path.write_text("4,1,1,-;before\n")
    assert lines(log) == []
    clock.pass_ns(RETRY_NS)
    assert lines(log) == []
    append(path, b"4,2,1,-;after\n")
    assert lines(log) == ["after"]
    assert log.problem == ""
    assert len(caplog.records) == 1


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES])
def test_a_missing_permission_is_told_in_words(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("producers.kernel_log.os.open", refuse)
    log, _ = opened("/dev/kmsg")
    assert "CAP_SYSLOG" in log.problem
    assert "dmesg_restrict" in log.problem
    assert lines(log) == []


def test_a_user_without_the_capability(tmp_path: Path) -> None:
    restricted = Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1"
    if os.geteuid() != 0 or not restricted or not Path("/dev/kmsg").exists():
        pytest.skip("needs root to become somebody else, and a kernel that restricts its log")
    os.seteuid(65534)
    try:
        log, _ = opened("/dev/kmsg")
    finally:
        os.seteuid(0)
    assert log.problem.startswith("/dev/kmsg is not permitted: the agent needs CAP_SYSLOG")
    assert lines(log) == []


def test_no_log_is_no_problem() -> None:
    log, clock = opened("")
    clock.pass_ns(2 * RETRY_NS)
    assert lines(log) == []
    assert log.problem == ""


def test_the_machines_own_log() -> None:
    """Where it may be read, reading begins at its end."""
    log, _ = opened("/dev/kmsg")
    if log.problem:
        pytest.skip(log.problem)
    assert len(lines(log)) < 100
    assert log.lost == 0
    log.close()
