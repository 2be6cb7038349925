"""The spool on real files: order, limit, what survives, and what is said when a disk or a directory does not work."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producers.segment import HEADER_BYTES, MAGIC, Stored, header, records, salt_of
from producers.segment_file import Segment
from producers.spool import Spool, SpoolError

MB = 1 << 20
Losses = list[tuple[str, int, int, str]]


def message(number: int, size: int = 1000, subsystem: str = "cpu") -> Stored:
    """A message that says its number."""
    return Stored(
        f"reveal.telemetry.{subsystem}", b"host", b"%d " % number + os.urandom(size), subsystem, 10, number * 10**9
    )


def number(stored: Stored) -> int:
    """The number that a message says."""
    return int(stored.value.split(b" ", 1)[0])


@contextmanager
def spool(
    directory: Path, losses: Losses | None = None, limit: int = 16 * MB, segment: int = 100_000
) -> Iterator[Spool]:
    """A spool, closed afterwards."""
    found: Losses = [] if losses is None else losses
    opened = Spool(directory, limit, lambda *loss: found.append(loss), segment)
    try:
        yield opened
    finally:
        opened.close()


def handed_out(source: Spool, count: int | None = None) -> list[tuple[Segment, Stored]]:
    """The next `count` messages, or all."""
    found: list[tuple[Segment, Stored]] = []
    while (count is None or len(found) < count) and (item := source.read()) is not None:
        found.append(item)
    return found


def numbers(source: Spool) -> list[int]:
    """Numbers of all messages, each of which is then done."""
    found = handed_out(source)
    for segment, _ in found:
        source.done(segment)
    return [number(stored) for _, stored in found]


def files(directory: Path) -> list[str]:
    """Names of the segments in a directory."""
    return sorted(path.name for path in directory.glob("*.spool"))


def lost(losses: Losses) -> tuple[int, int]:
    """Messages and samples."""
    return sum(loss[1] for loss in losses), sum(loss[2] for loss in losses)


def test_first_in_first_out_and_deleted_when_done(tmp_path: Path) -> None:
    with spool(tmp_path) as one:
        sent = [message(index) for index in range(500)]
        for each in sent:
            one.append(each)
        assert (one.unread, one.messages) == (500, 500)
        assert len(files(tmp_path)) == 6
        assert one.bytes == sum((tmp_path / name).stat().st_size for name in files(tmp_path))
        found = handed_out(one)
        assert [stored for _, stored in found] == sent
        assert (one.unread, one.messages) == (0, 500)
        assert len(files(tmp_path)) == 6
        for segment, _ in found[:-1]:
            one.done(segment)
        assert len(files(tmp_path)) == 1
        one.rest()
        assert len(files(tmp_path)) == 1
        one.done(found[-1][0])
        one.rest()
        assert files(tmp_path) == []
        assert (one.bytes, one.messages) == (0, 0)


def test_new_ones_come_behind_old_ones(tmp_path: Path) -> None:
    with spool(tmp_path) as one:
        for index in range(150):
            one.append(message(index))
        first = handed_out(one, 120)
        for index in range(150, 300):
            one.append(message(index))
        assert [number(stored) for _, stored in first] + numbers(one) == list(range(300))


def test_what_is_out_already_is_not_handed_out(tmp_path: Path) -> None:
    with spool(tmp_path) as one:
        segments = [one.append(message(index), handed=True) for index in range(3)]
        one.append(message(3))
        assert numbers(one) == [3]
        assert one.messages == 3
        for segment in segments:
            one.done(segment)
        assert one.messages == 0
    assert files(tmp_path) == []


def test_next_run_sends_what_was_not_done(tmp_path: Path) -> None:
    with spool(tmp_path) as one:
        for index in range(250):
            one.append(message(index))
        for segment, _ in handed_out(one, 150):
            one.done(segment)
        named = files(tmp_path)
    # The segment in the middle of which it stopped is sent again from its start.
    with spool(tmp_path) as two:
        for index in range(250, 260):
            two.append(message(index))
        assert files(tmp_path)[: len(named)] == named
        found = numbers(two)
        assert found == list(range(found[0], 260))
        assert 0 < found[0] <= 150


def test_survives_sigkill(tmp_path: Path) -> None:
    program = (
        "import os, sys, signal\n"
        "from pathlib import Path\n"
        "from producers.spool import Spool\n"
        "from tests.unit.producers.test_spool import message\n"
        "spool = Spool(Path(sys.argv[1]), 1 << 24, print, 100_000)\n"
        "for index in range(333):\n"
        "    spool.append(message(index))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60, check=False)
    assert done.returncode == -9
    losses: Losses = []
    with spool(tmp_path, losses) as one:
        assert numbers(one) == list(range(333))
    assert losses == []


def test_a_second_agent_is_told_whose_it_is(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from producers.spool import Spool\n"
        "spool = Spool(Path(sys.argv[1]), 1 << 24, print)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(SpoolError, match=f"in use by process {other.pid}; every agent needs a spool of its own"):
            Spool(tmp_path, MB, lambda *_: None)
        other.kill()
        other.wait(10)
        with spool(tmp_path) as one:
            one.append(message(1))
            assert numbers(one) == [1]
    finally:
        other.kill()
        other.communicate()


def test_limit_drops_the_oldest_segment_whole(tmp_path: Path) -> None:
    losses: Losses = []
    with spool(tmp_path, losses, limit=MB) as one:
        for index in range(3000):
            one.append(message(index, subsystem="cpu" if index % 2 else "memory"))
            assert one.bytes <= MB
        assert sum((tmp_path / name).stat().st_size for name in files(tmp_path)) == one.bytes > MB * 0.8
        gone = 3000 - one.unread
        assert lost(losses) == (gone, 10 * gone)
        assert {(loss[0], loss[3]) for loss in losses} == {
            ("cpu", "the spool is full"),
            ("memory", "the spool is full"),
        }
        assert numbers(one) == list(range(gone, 3000))


def test_limit_while_the_oldest_is_being_sent(tmp_path: Path) -> None:
    losses: Losses = []
    with spool(tmp_path, losses, limit=MB) as one:
        for index in range(900):
            one.append(message(index))
        out = handed_out(one, 20)
        for index in range(900, 2000):
            one.append(message(index))
        assert all(segment.gone for segment, _ in out)
        # What is out is not lost: it may still arrive.
        assert lost(losses)[0] == 2000 - 20 - one.unread
        for segment, _ in out:
            one.done(segment)
        found = numbers(one)
        assert found == list(range(found[0], 2000))
        assert one.messages == 0


def test_a_message_larger_than_the_spool_is_refused(tmp_path: Path) -> None:
    with spool(tmp_path, limit=MB) as one:
        one.append(message(1))
        with pytest.raises(ValueError, match="larger than the spool"):
            one.append(message(2, size=MB))
        one.append(message(3, size=MB // 2))
        assert numbers(one) == [1, 3]


@given(cut=st.integers(0, 30_000), flip=st.one_of(st.none(), st.integers(0, 30_000)))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_never_stop_the_rest(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int | None
) -> None:
    directory = tmp_path_factory.mktemp("spool")
    with spool(directory, segment=10_000) as one:
        for index in range(40):
            one.append(message(index))
    names = files(directory)
    victim = directory / names[1]
    data = bytearray(victim.read_bytes())
    whole = bytes(data[HEADER_BYTES:])
    clean = {0, *(HEADER_BYTES + end for end, _ in records(whole, salt_of(bytes(data))))}
    if flip is None:
        del data[cut % len(data) :]
    else:
        data[flip % len(data)] ^= 0x40
    victim.write_bytes(data)
    losses: Losses = []
    with spool(directory, losses) as two:
        found = numbers(two)
    assert found == sorted(set(found))
    missing = set(range(40)) - set(found)
    assert missing <= set(range(9, 20))
    assert bool(losses) is (flip is not None or len(data) not in {*clean, HEADER_BYTES})
    if flip is not None and flip % len(data) >= HEADER_BYTES:
        assert len(missing) == 1
        assert lost(losses)[0] == 1


def test_damage_is_counted_by_subsystem_where_it_is_known(tmp_path: Path) -> None:
    with spool(tmp_path) as one:
        for index in range(5):
            one.append(message(index, subsystem="memory"))
    path = tmp_path / files(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    losses: Losses = []
    with spool(tmp_path, losses) as two:
        assert numbers(two) == [0, 1, 2, 3]
    assert losses == [("memory", 1, 10, f"{path.name}: checksum of a message")]
    assert files(tmp_path) == []


def test_foreign_files_are_left_alone_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "7.spool").write_bytes(header(1))
    os.mkfifo(tmp_path / "0000000000000001.spool")
    (tmp_path / "0000000000000002.spool").symlink_to(tmp_path / "notes.txt")
    (tmp_path / "0000000000000003.spool").mkdir()
    with spool(tmp_path) as one:
        one.append(message(1))
        assert files(tmp_path)[:4] == [f"{index:016d}.spool" for index in (1, 2, 3, 4)]
        assert numbers(one) == [1]
    assert "files that are not ours are left alone: 7.spool, notes.txt (2)" in caplog.text
    for index in (1, 2, 3):
        assert f"{index:016d}.spool cannot be read and is left alone" in caplog.text
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PK\x03\x04 garbage of some length", "not a segment of the spool"),
        (bytes(5000), "not a segment of the spool"),
        (MAGIC + b"\x01", "shorter than its header"),
        (header(1)[:-1] + b"?", "damaged header"),
    ],
)
def test_garbage_is_set_aside_and_counted(tmp_path: Path, content: bytes, reason: str) -> None:
    name = "0000000000000007.spool"
    (tmp_path / name).write_bytes(content)
    (tmp_path / "0000000000000006.spool").write_bytes(b"")
    losses: Losses = []
    with spool(tmp_path, losses) as one:
        one.append(message(1))
        assert files(tmp_path) == ["0000000000000008.spool"]
        assert numbers(one) == [1]
    assert losses == [("", 1, 0, f"{name}: {reason}")]
    assert (tmp_path / "refused" / name).read_bytes() == content


def test_unreadable_at_run_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    losses: Losses = []
    with spool(tmp_path, losses) as one:
        for index in range(300):
            one.append(message(index))
        removed, odd, *_ = files(tmp_path)
        whole = (tmp_path / removed).read_bytes()
        held = len(list(records(whole[HEADER_BYTES:], salt_of(whole))))
        (tmp_path / removed).unlink()
        (tmp_path / odd).unlink()
        (tmp_path / odd).mkdir()
        found = numbers(one)
        assert found == list(range(found[0], 300))
        assert held < found[0]
        assert lost(losses) == (held, 10 * held)
        assert losses[0][3] == f"{removed} was removed"
        assert f"{odd} cannot be read and is left alone" in caplog.text
        assert one.messages == 0


def test_shortened_at_run_time(tmp_path: Path) -> None:
    losses: Losses = []
    with spool(tmp_path, losses) as one:
        for index in range(150):
            one.append(message(index))
        os.truncate(tmp_path / files(tmp_path)[0], 20_000)
        found = numbers(one)
        assert len(found) == len(set(found)) == 150 - lost(losses)[0]
        assert lost(losses)[0] > 50


def test_set_aside_and_back(tmp_path: Path) -> None:
    with spool(tmp_path) as one:
        one.set_aside(message(1))
        one.set_aside(message(2))
        one.append(message(3))
        assert numbers(one) == [3]
        assert len(files(tmp_path / "refused")) == 1
    # As the documentation says: moved back, they are sent again.
    (name,) = files(tmp_path / "refused")
    (tmp_path / "refused" / name).rename(tmp_path / name)
    with spool(tmp_path) as two:
        two.append(message(4))
        assert numbers(two) == [1, 2, 4]


def test_what_was_refused_goes_first_when_room_is_needed(tmp_path: Path) -> None:
    losses: Losses = []
    with spool(tmp_path, losses, limit=MB) as one:
        for index in range(400):
            one.set_aside(message(index))
        for index in range(800):
            one.append(message(index))
        assert one.bytes <= MB
        assert losses == []
        assert numbers(one) == list(range(800))


def limited(directory: Path, body: str) -> str:
    """Run `body` with a `spool` of 16 MB in a process whose files may not grow beyond 300,000 bytes."""
    program = (
        "import sys, resource\n"
        "from pathlib import Path\n"
        "from producers.spool import Spool\n"
        "from tests.unit.producers.test_spool import message, numbers\n"
        "spool = Spool(Path(sys.argv[1]), 1 << 24, print, 1_000_000)\n"
        f"{body}"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(directory)],
        timeout=60,
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000)),
    )
    return done.stdout


def test_a_write_that_fails_in_the_middle_leaves_what_was_there(tmp_path: Path) -> None:
    body = (
        "failed = 0\n"
        "for index in range(1000):\n"
        "    try:\n"
        "        spool.append(message(index))\n"
        "    except OSError as error:\n"
        "        failed += 1\n"
        "        spool.append(message(index))\n"
        "spool.close()\n"
        "print(failed)\n"
    )
    assert int(limited(tmp_path, body)) == 3
    losses: Losses = []
    with spool(tmp_path, losses) as one:
        assert numbers(one) == list(range(1000))
    assert losses == []


def unwritable(directory: Path) -> Path:
    """A file in place of the directory."""
    directory.write_bytes(b"")
    return directory


def below_a_file(directory: Path) -> Path:
    """A directory that cannot be made."""
    directory.write_bytes(b"")
    return directory / "spool"


def in_proc(directory: Path) -> Path:
    """A file system that makes no directories."""
    return Path("/proc/spool")


@pytest.mark.parametrize("place", [unwritable, below_a_file, in_proc])
def test_a_directory_that_cannot_be_is_told_in_words(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    directory = place(tmp_path / "spool")
    with pytest.raises(SpoolError, match=str(directory)):
        Spool(directory, MB, lambda *_: None)


def test_a_directory_that_goes_and_comes_back(tmp_path: Path) -> None:
    with spool(tmp_path) as one:
        one.append(message(1))
        one.seal()
        moved = tmp_path.rename(tmp_path.with_name("elsewhere"))
        tmp_path.write_bytes(b"")
        with pytest.raises(OSError, match="Not a directory|File exists"):
            one.append(message(2))
        tmp_path.unlink()
        moved.rename(tmp_path)
        one.append(message(3))
        assert numbers(one) == [1, 3]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_full_disk(small_disk: Path) -> None:
    with spool(small_disk / "spool") as one:
        written = 0
        with pytest.raises(OSError, match="No space left on device"):
            for index in range(2000):
                one.append(message(index))
                written += 1
        assert 900 < written < 1000
        with pytest.raises(OSError, match="No space left on device"):
            for index in range(written, 2000):
                one.append(message(index))
        # A message of the size that failed does not fit, what is there can be sent, and that makes room.
        assert numbers(one)[:written] == list(range(written))
        one.append(message(7))
        assert numbers(one) == [7]


def test_read_only_disk(small_disk: Path) -> None:
    with spool(small_disk / "spool") as one:
        one.append(message(1))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(SpoolError, match="Read-only file system"):
        Spool(small_disk / "spool", MB, lambda *_: None)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    with spool(small_disk / "spool") as one:
        assert numbers(one) == [1]
