"""Collectors of storage: disks, NVMe controllers, file systems, NFS, software RAID; and the source that asks each."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from producers.collector import Collector, ParseError, plain
from producers.collectors.diskstats import DISKSTATS
from producers.collectors.filesystems import FILESYSTEMS, OPEN_FILES, Space
from producers.collectors.mdstat import MDSTAT
from producers.collectors.mounts import MOUNTS
from producers.collectors.nvme import NVME, SMART
from producers.probe import Probe
from producers.reading import everything
from producers.selection import Selection
from producers.smart import COMMAND, SIZE, health_log
from producers.source import HUNG_NS, SECOND_NS, ThreadSource
from producers.statvfs import local, mounts
from tests.unit.producers.asking import host, read, source, write
from tests.unit.producers.readings import parse, rates, values
from tests.unit.producers.tree import FakeClock

ROW = "11450 6800 953154 6153 3996 24348 3818544 20014 0 3356 26559"


def test_disks_of_multipath_and_of_mappers() -> None:
    names = (
        *("nvme0n1", "nvme0c0n1", "nvme0c1n1", "nvme1c0n1", "dm-0", "dm-12", "md127", "md127p1", "cciss/c0d0"),
        *("cciss/c0d0p1", "dasda", "dasda1", "pmem0", "pmem0p1", "rbd0", "rbd0p3", "loop0p1", "mmcblk0", "mmcblk0p2"),
    )
    found = parse(DISKSTATS, "".join(f" 8 0 {name} {ROW} \r\n" for name in names).encode())
    assert {disk for _, disk in found} == {
        *("nvme0n1", "nvme1c0n1", "dm-0", "dm-12", "md127", "cciss/c0d0", "dasda", "pmem0", "rbd0", "mmcblk0")
    }


def test_disks_of_kernels_2_6_to_6() -> None:
    partition = b" 8 1 sda1 35486 0 35496 38030\n"
    old = parse(DISKSTATS, partition + f"8 0 sda {ROW}\n".encode())
    assert {disk for _, disk in old} == {"sda"}
    assert len(old) == 11
    assert len(parse(DISKSTATS, f"8 0 sda {ROW} 1 0 8 2\n".encode())) == 12
    assert len(parse(DISKSTATS, f"8 0 sda {ROW} 1 0 8 2 3 4\n".encode())) == 14


def test_disks_with_numbers_that_are_none() -> None:
    row = ROW.replace("11450", "99999999999999999999").replace("953154", "x")
    found = parse(DISKSTATS, f"8 0 sda {row}\n8 16 sdb {ROW}\n8 32 sdc 1 2\n\0\0\0".encode())
    assert found["disk.reads", "sda"] == 99999999999999999999
    assert math.isnan(found["disk.read_sectors", "sda"])
    assert found["disk.read_sectors", "sdb"] == 953154
    assert {disk for _, disk in found} == {"sda", "sdb"}
    _, second = rates(DISKSTATS, f"8 0 sda {ROW}\n".encode(), f"8 0 sda {row}\n".encode())
    assert math.isnan(second["disk.reads", "sda"])
    # A count of requests in flight that went below zero, printed as unsigned.
    (only,) = rates(DISKSTATS, f"8 0 sda {ROW.replace(' 0 3356', ' 4294967295 3356')}\n".encode())
    assert math.isnan(only["disk.in_flight", "sda"])


def test_disks_from_their_own_files_where_there_is_no_table(tmp_path: Path) -> None:
    clock = FakeClock()
    write(tmp_path, "sys/block/sda/stat", f"   {ROW} 7 2 3 12\n")
    write(tmp_path, "sys/block/cciss!c0d0/stat", ROW)
    write(tmp_path, "sys/block/sdb/stat", ROW)
    write(tmp_path, "sys/block/loop0/stat", ROW)
    write(tmp_path, "proc/diskstats", "")
    at = source(DISKSTATS, host(tmp_path, clock.monotonic_ns, disk=("!sdb",)))
    reading = at.read(clock.monotonic_ns())
    assert reading is not None
    found = values(DISKSTATS.parser()(reading[1]))
    assert {disk for _, disk in found} == {"sda", "cciss/c0d0"}
    assert found["disk.discards", "sda"] == 7
    assert found["disk.queue_ms", "cciss/c0d0"] == 26559
    problems = at.problems(clock.monotonic_ns(), SECOND_NS)
    assert [problem.reason for problem in problems] == ["the file is empty"]
    # The table is there again, and goes first.
    write(tmp_path, "proc/diskstats", f"8 0 sdc {ROW}\n")
    clock.pass_ns(61 * SECOND_NS)
    reading = at.read(clock.monotonic_ns())
    assert reading is not None
    assert list(reading[1]) == ["proc/diskstats"]
    assert not at.problems(clock.monotonic_ns(), SECOND_NS)
    at.close()


def test_a_table_that_a_program_serves_is_read_in_a_thread(tmp_path: Path) -> None:
    write(tmp_path, "proc/diskstats", f"8 0 sda {ROW}\n")
    at = source(DISKSTATS, replace(host(tmp_path), served=frozenset({"proc/diskstats", "proc/stat"})))
    assert isinstance(at, ThreadSource)
    assert read(DISKSTATS, at)["disk.reads", "sda"] == 11450
    at.close()


def test_a_disk_is_added_and_removed() -> None:
    parser = DISKSTATS.parser()
    for names in (("sda",), ("sda", "sdb"), ("sdb",)):
        text = "".join(f"8 0 {name} {ROW}\n" for name in names).encode()
        found = values(parser({"proc/diskstats": text}))
        assert {disk for _, disk in found} == set(names)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        *((b"live\n", 1), (b"new", 2), (b"connecting\n", 3), (b"resetting\r\n", 4), (b"deleting (no IO)\n", 5)),
        *((b"dead\n", 6), (b"", math.nan), (b"Samsung SSD\n", math.nan), (b"\0", math.nan)),
    ],
)
def test_state_of_a_controller(text: bytes, state: float) -> None:
    ((key, value),) = values(NVME.parser()({"sys/class/nvme/nvme10/state": text})).items()
    assert key == ("nvme.state", "nvme10")
    assert value == state or (math.isnan(value) and math.isnan(state))


def health(*, warning: int = 0, spare: int = 100, used: int = 3, errors: int = 0) -> bytes:
    """A health log."""
    log = bytearray(SIZE)
    log[0], log[3], log[5] = warning, spare, used
    log[160:176] = errors.to_bytes(16, "little")
    return bytes(log)


def test_health_of_a_disk() -> None:
    found = values(SMART.parser()({"sys/class/nvme/nvme0": health(warning=4, spare=9, used=130, errors=2**33)}))
    assert found == {
        ("nvme.critical_warning", "nvme0"): 4,
        ("nvme.available_spare", "nvme0"): 9,
        ("nvme.percentage_used", "nvme0"): 130,
        ("nvme.media_errors", "nvme0"): 2**33,
    }


def test_health_that_is_none() -> None:
    found = values(SMART.parser()({"sys/class/nvme/nvme0": b"\xff" * SIZE, "sys/class/nvme/nvme1": health(spare=255)}))
    assert all(math.isnan(value) for (_, disk), value in found.items() if disk == "nvme0")
    assert math.isnan(found["nvme.available_spare", "nvme1"])
    assert found["nvme.percentage_used", "nvme1"] == 3
    with pytest.raises(ParseError, match="100 bytes"):
        parse(SMART, bytes(100))


def test_health_is_asked_by_the_command_of_the_specification(tmp_path: Path) -> None:
    device = tmp_path / "nvme0"
    device.write_bytes(b"")

    def answer(descriptor: int, request: int, argument: bytearray) -> int:
        assert os.path.samestat(os.fstat(descriptor), device.stat())
        assert request == 0xC0484E41
        assert len(argument) == 72
        command = COMMAND.unpack(argument)
        assert command[0] == 2
        assert command[3] == 0xFFFFFFFF
        # Log 02h, 128 words of four bytes; no time-out of ours, after which the kernel would reset the disk.
        assert command[10] == 0x007F0002
        assert command[-2] == 0
        assert command[9] == SIZE
        ctypes.memmove(command[7], health(used=42), SIZE)
        return 0

    assert health_log(str(device), answer) == health(used=42)
    with pytest.raises(OSError, match="refused to give its health log: status 0x4002"):
        health_log(str(device), lambda *asked: 0x4002)

    def refuse(*asked: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(PermissionError, match="only a process with CAP_SYS_ADMIN"):
        health_log(str(device), refuse)
    with pytest.raises(FileNotFoundError):
        health_log(str(tmp_path / "nvme1"), answer)
    # A plain file is no controller, and says so by itself.
    with pytest.raises(OSError, match="Inappropriate ioctl"):
        health_log(str(device))


def test_health_is_asked_of_local_controllers_that_are_wanted(tmp_path: Path) -> None:
    for name, transport in (("nvme0", "pcie\n"), ("nvme1", "tcp\n"), ("nvme2", "pcie\n"), ("nvme3", "")):
        write(tmp_path, f"sys/class/nvme/{name}/transport", transport)
        write(tmp_path, f"dev/{name}", "")
    (tmp_path / "sys/class/nvme/nvme3/transport").unlink()
    at = source(SMART, host(tmp_path, disk=("!nvme2",)))
    assert read(SMART, at) == {}
    problems = at.problems(1, SECOND_NS)
    assert {problem.path for problem in problems} == {"sys/class/nvme/nvme0", "sys/class/nvme/nvme3"}
    assert all(problem.reason == os.strerror(errno.ENOTTY) for problem in problems)


MOUNTINFO = (
    b"22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    b"27 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,discard\n"
    b"30 27 8:2 /var/lib/x /srv/x rw,relatime - ext4 /dev/sda2 rw,discard\n"
    b"31 27 259:1 / /mnt/my\\040data\\134\\011x ro,relatime - xfs /dev/nvme0n1p1 rw\n"
    b"32 27 0:40 / /run rw - tmpfs /dev/tmpfs rw\n"
    b"33 27 0:41 / /nfs rw - nfs4 server:/dev/x rw\n"
    b"34 27 7:0 / /snap/a/1 ro - squashfs /dev/loop0 ro\n"
    b"35 27 0:42 / /auto rw - autofs systemd-1 rw\n"
    b"36 27 0:43 / /tank rw - zfs tank ro,xattr\n"
    b"37 27 0:44 / /lower rw - overlay overlay rw,lowerdir=/a\n"
    b"38 27 0:45 /@home /home rw - btrfs /dev/sdb1 rw,subvol=/@home\n"
    b"39 27 0:45 /@ /btrfs/long rw - btrfs /dev/sdb1 rw,subvol=/@\n"
    b"40 27 0:46 / /sshfs rw - fuse.sshfs me@there:/ rw\n"
    b"41 27 8:3 / /boot rw shared:9 master:3 - vfat /dev/sda3 rw\n"
    b"42 41 8:4 / /boot rw - ext4 /dev/sda4 rw,emergency_ro\n"
    b"43 27 8:5 / /cut rw"
)


def test_file_systems_that_are_real_and_local_each_once() -> None:
    found = local(mounts(MOUNTINFO), everything)
    assert {mount.name: mount.read_only for mount in found} == {
        "/": False,
        "/mnt/my data\\\tx": True,
        "/tank": True,
        "/home": False,
        "/boot": True,
    }
    assert {mount.name for mount in local(mounts(MOUNTINFO), Selection({"filesystem": ("/", "/b*")}))} == {"/", "/boot"}


def test_file_systems_of_a_table_without_numbers() -> None:
    text = (
        b"rootfs / rootfs rw 0 0\n/dev/root / ext3 ro,noatime 0 0\n/dev/sdb1 /data\\040x ext4 rw 0 0\n"
        b"/dev/sdb1 /bind/of/data ext4 rw 0 0\nproc /proc proc rw 0 0\n/dev/sdc1 /cut"
    )
    assert {mount.name: mount.read_only for mount in local(mounts(text), everything)} == {"/": True, "/data x": False}
    assert mounts(b"\0\xff\n\n1 2 3\n- - - -\n") == []


def test_a_machine_whose_root_is_made_of_layers_has_that_one() -> None:
    text = (
        b"1 0 0:44 / / rw - overlay overlay rw,lowerdir=/a\n"
        b"2 1 254:0 /pods/hosts /etc/hosts rw - ext4 /dev/vda rw\n"
        b"3 1 254:0 /pods/data /data rw - ext4 /dev/vda rw\n"
    )
    assert {mount.name for mount in local(mounts(text), everything)} == {"/", "/data"}


def test_file_systems_of_this_machine_are_what_statvfs_says(tmp_path: Path) -> None:
    status = os.statvfs(tmp_path)
    number = os.stat(tmp_path).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    (tmp_path / "my disk").mkdir()
    (tmp_path / "a file").touch()
    (tmp_path / "elsewhere").mkdir()
    write(
        tmp_path,
        "proc/1/mountinfo",
        f"1 0 {device} / /my\\040disk rw - ext4 /dev/sda1 rw\n"
        f"2 0 99:1 / /elsewhere rw - ext4 /dev/sda2 rw\n3 0 99:2 / /gone rw - ext4 /dev/sda3 rw\n",
    )
    at = source(FILESYSTEMS, host(tmp_path))
    found = read(FILESYSTEMS, at)
    # A mount that is not seen from here would show the disk beneath it.
    assert {name for _, name in found} == {"/my disk"}
    assert found["fs.free_bytes", "/my disk"] == pytest.approx(status.f_bavail * status.f_frsize, rel=0.1)
    assert 0 <= found["fs.used_pct", "/my disk"] <= 100
    assert found["fs.read_only", "/my disk"] == 0
    assert [(problem.path, problem.kind) for problem in at.problems(1, SECOND_NS)] == [("/gone", "missing")]
    write(
        tmp_path,
        "proc/1/mountinfo",
        f"1 0 {device} /f /a\\040file rw - ext4 /dev/sda1 rw\n2 0 0:9 / /elsewhere rw - btrfs /dev/sda2 ro\n",
    )
    found = read(FILESYSTEMS, at)
    assert {name for _, name in found} == {"/elsewhere"}
    assert found["fs.read_only", "/elsewhere"] == 1


def test_share_used_is_of_what_users_can_have() -> None:
    found = values(Space()({"/": b"4096 1000 300 200 0 0 0", "/ro": b"512 10 0 0 20 0 1", "/none": b"1 0 0 0 0 0 0"}))
    assert found["fs.free_bytes", "/"] == 200 * 4096
    assert found["fs.used_pct", "/"] == pytest.approx(100 * 700 / 900)
    # Btrfs and FAT have no number of inodes: that is not none left.
    assert math.isnan(found["fs.free_inodes", "/"])
    assert [found[metric, "/ro"] for metric in FILESYSTEMS.metrics] == [0, 0, 100, 1]
    assert math.isnan(found["fs.free_bytes", "/none"])
    assert math.isnan(found["fs.used_pct", "/none"])
    with pytest.raises(ParseError, match="3 numbers"):
        Space()({"/": b"1 2 3"})


def test_open_files() -> None:
    assert parse(OPEN_FILES, b"1184\t0\t9223372036854775807\n") == {("fs.open_files", ""): 1184}
    with pytest.raises(ParseError):
        parse(OPEN_FILES, b"\n")


MOUNTSTATS = (
    b"device rootfs mounted on / with fstype rootfs\n"
    b"device server:/data mounted on /mnt/my\\040data with fstype nfs4 statvers=1.1\n"
    b"\topts:\trw,vers=4.2,rsize=1048576\n\tage:\t1234\n\txprt:\ttcp 832 0 1 0 11 6428 6428 0 12154 0 24 26 5726\n"
    b"\tper-op statistics\n"
    b"\t        NULL: 1 1 0 44 24 1 2 4 0\n"
    b"\t        READ: 1298 1298 0 207680 164106200 6 79386 79407 0\n"
    b"\t       WRITE: 0 0 0 0 0 0 0 0 0\n\n"
    b"device other:/x mounted on /x with fstype nfs statvers=1.0\n\tper-op statistics\n\t GETATTR: 5 5 0 1 2 3 40 50\n"
    b"device /dev/sda1 mounted on /y with fstype ext4\n\tper-op statistics\n\t READ: 1 1 1 1 1 1 1 1 1\n"
    b"no device mounted on /z with fstype nfs\n"
)


def test_time_of_requests_to_nfs() -> None:
    assert parse(MOUNTS, MOUNTSTATS) == {("nfs.op_rtt_ms", "/mnt/my data"): 79388, ("nfs.op_rtt_ms", "/x"): 40}
    wanted = Selection({"filesystem": ("!/mnt/*",)})
    assert values(MOUNTS.parser(wanted)({"proc/self/mountstats": MOUNTSTATS})) == {("nfs.op_rtt_ms", "/x"): 40}
    later = MOUNTSTATS.replace(b"79386", b"80386")
    _, second = rates(MOUNTS, MOUNTSTATS, later)
    assert second == {("nfs.op_rtt_ms", "/mnt/my data"): 1000, ("nfs.op_rtt_ms", "/x"): 0}
    _, second = rates(MOUNTS, later, MOUNTSTATS)
    assert math.isnan(second["nfs.op_rtt_ms", "/mnt/my data"])
    # Without NFS, nothing; a row cut short is left out.
    assert parse(MOUNTS, b"device proc mounted on /proc with fstype proc\n") == {}
    assert parse(MOUNTS, MOUNTSTATS[: MOUNTSTATS.index(b"79386")]) == {("nfs.op_rtt_ms", "/mnt/my data"): 2}


def test_nfs_of_the_host_where_its_files_lie_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, "proc/1/mountstats", MOUNTSTATS.decode())
    at = source(MOUNTS, host(tmp_path))
    assert isinstance(at, ThreadSource)
    assert read(MOUNTS, at)["nfs.op_rtt_ms", "/x"] == 40
    at.close()


MDSTAT_HEAD = b"Personalities : [raid1] [raid6] [raid0]\n"


@pytest.mark.parametrize(
    ("text", "failed", "progress"),
    [
        (b"md0 : active raid1 sdb1[1] sda1[0]\n      99 blocks super 1.2 [2/2] [UU]\n      \n", 0, 100),
        (b"md0 : active raid1 sdb1[1](F) sda1[0]\n      99 blocks [2/1] [U_]\n", 1, 100),
        (
            b"md0 : active (auto-read-only) raid6 a[0] b[1]\n  9 blocks level 6, 512k chunk, algorithm 2 [4/2] [U__U]\n"
            b"      [=>...]  recovery =  8.5% (1/2) finish=17.0min speed=9K/sec\n      bitmap: 0/30 pages [0KB]\n",
            *(2, 8.5),
        ),
        (b"md0 : active raid1 a[0] b[1]\r\n 9 blocks [2/2] [UU]\r\n  \tresync=DELAYED\r\n", 0, 0),
        (b"md0 : active raid5 a[0]\n 9 blocks [3/3] [UUU]\n  [>..] check = 100.0% (2/2) finish=0min\n", 0, 100),
        (b"md0 : active raid5 a[0]\n 9 blocks [3/2] [UU_]\n  [=>.]  reshape = 56.1% (1/2) finish=1.2min\n", 1, 56.1),
        (b"md0 : active raid0 sda1[0](F) sdb1[1]\n      314159265 blocks 64k chunks\n", 1, 100),
        (b"md0 : broken raid0 sda1[0](W)(F) sdb1[1](F)\n      314159265 blocks 64k chunks\n", 2, 100),
        (b"md0 : active linear sda1[1] sdb1[0]\n        2095104 blocks super 1.2 0k rounding\n", 0, 100),
    ],
)
def test_arrays(text: bytes, failed: int, progress: float) -> None:
    found = parse(MDSTAT, MDSTAT_HEAD + text + b"\nunused devices: <none>\n")
    assert found == {("md.failed", "md0"): failed, ("md.recovery_pct", "md0"): progress}


def test_arrays_of_which_nobody_knows() -> None:
    assert parse(MDSTAT, MDSTAT_HEAD + b"unused devices: sda1[0] [3/2]\n") == {}
    container = b"md127 : inactive sdb[2](S) sda[0](S)\n        7932 blocks super external:imsm\n"
    assert parse(MDSTAT, MDSTAT_HEAD + container) == {}
    assert parse(MDSTAT, MDSTAT_HEAD + b"md0 : active raid1 sda1[0]") == {}


def test_arrays_come_and_go() -> None:
    parser = MDSTAT.parser()
    row = b"md%d : active raid1 a[0] b[1]\n  9 blocks [2/2] [UU]\n\n"
    for arrays in ((0,), (0, 127), ()):
        text = MDSTAT_HEAD + b"".join(row % array for array in arrays) + b"unused devices: <none>\n"
        found = values(parser({"proc/mdstat": text}))
        assert {array for _, array in found} == {f"md{array}" for array in arrays}


class Devices:
    """Things to ask, some of which hang until they are let go."""

    def __init__(self) -> None:
        self.names = ["a", "b", "c"]
        self.go: dict[str, threading.Event] = {}
        self.asked: list[str] = []

    def find(self) -> Iterator[str]:
        """All of them."""
        yield from list(self.names)

    def look(self, name: str) -> bytes | None:
        """Its name, in time."""
        self.asked.append(name)
        if name in self.go:
            assert self.go[name].wait(30)
        if name == "bad":
            raise PermissionError(errno.EACCES, "Permission denied")
        if name == "worse":
            raise ValueError("boom")
        return None if name == "silent" else name.encode()


def probe(devices: Devices, clock: FakeClock) -> Probe:
    """A probe of them."""
    collector = Collector("probed", ("sys/class/probed",), plain(NVME.parser), ())
    return Probe(collector, host(Path("/nowhere"), clock.monotonic_ns), devices.find, devices.look)


def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds, ten seconds at most."""
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert condition()


def texts(at: Probe, clock: FakeClock) -> list[str]:
    """Names that the probe has an answer of."""
    found: list[str] = []

    def come() -> bool:
        if (reading := at.read(clock.monotonic_ns())) is not None:
            found.extend(reading[1])
        return bool(found)

    until(come)
    return found


def test_one_that_hangs_holds_up_no_other() -> None:
    devices, clock = Devices(), FakeClock()
    devices.go["b"] = threading.Event()
    at = probe(devices, clock)
    at.request(clock.monotonic_ns())
    until(lambda: devices.asked == ["a", "b"])
    at.request(clock.monotonic_ns())
    assert at.read(clock.monotonic_ns()) is None
    clock.pass_ns(HUNG_NS)
    assert texts(at, clock) == ["a", "c"]
    (problem,) = at.problems(clock.monotonic_ns())
    assert (problem.path, problem.kind, problem.reason) == ("b", "hung", "no answer for 5.0 s")
    # It is not asked again before it answers, so that threads do not pile up.
    for _ in range(3):
        at.request(clock.monotonic_ns())
        assert texts(at, clock) == ["a", "c"]
    assert devices.asked.count("b") == 1
    devices.go["b"].set()
    until(lambda: not at.problems(clock.monotonic_ns()))
    at.request(clock.monotonic_ns())
    assert texts(at, clock) == ["a", "b", "c"]
    at.close()


def test_one_that_fails_hides_no_other_and_says_why() -> None:
    devices, clock = Devices(), FakeClock()
    devices.names = ["a", "bad", "silent", "worse", "c"]
    at = probe(devices, clock)
    at.request(clock.monotonic_ns())
    assert texts(at, clock) == ["a", "c"]
    found = {problem.path: (problem.kind, problem.reason) for problem in at.problems(clock.monotonic_ns())}
    assert found == {"bad": ("missing", "Permission denied"), "worse": ("failing", "ValueError: boom")}
    assert at.errors == 2
    devices.names = ["a"]
    at.request(clock.monotonic_ns())
    assert texts(at, clock) == ["a"]
    assert not at.problems(clock.monotonic_ns())
    at.failed("no sense", clock.monotonic_ns())
    assert [problem.reason for problem in at.problems(clock.monotonic_ns())] == ["no sense"]
    at.understood()
    assert not at.problems(clock.monotonic_ns())
    assert at.cpu_s() > 0


def test_a_list_that_hangs_is_not_asked_for_again() -> None:
    devices, clock = Devices(), FakeClock()
    go, began = threading.Event(), []

    def find() -> Iterator[str]:
        began.append(1)
        assert go.wait(30)
        yield "a"

    at = Probe(Collector("probed", ("sys/x",), plain(NVME.parser), ()), host(Path("/")), find, devices.look)
    at.request(clock.monotonic_ns())
    until(lambda: bool(began))
    for _ in range(3):
        clock.pass_ns(2 * HUNG_NS)
        at.request(clock.monotonic_ns())
        assert at.read(clock.monotonic_ns()) is None
    assert [(problem.path, problem.kind) for problem in at.problems(clock.monotonic_ns())] == [("sys/x", "hung")]
    assert len(began) == 1
    go.set()

    def answered() -> bool:
        at.request(clock.monotonic_ns())
        return at.read(clock.monotonic_ns()) is not None

    until(answered)


def test_command_has_the_size_of_the_kernels_structure() -> None:
    assert COMMAND.size == 72
    assert struct.calcsize("@BBHIIIQQII6III") == 72


@pytest.mark.skipif("REVEAL_CORPUS" not in os.environ, reason="REVEAL_CORPUS is not set")
def test_corpus_files_of_controllers_are_no_states() -> None:
    files = sorted((Path(os.environ["REVEAL_CORPUS"]) / "nvme").iterdir())
    assert files
    for file in files:
        (value,) = values(NVME.parser()({"sys/class/nvme/nvme0/state": file.read_bytes()})).values()
        name = file.read_bytes().strip()
        assert value == 1 if name == b"live" else math.isnan(value)


@pytest.mark.skipif("REVEAL_CORPUS" not in os.environ, reason="REVEAL_CORPUS is not set")
def test_corpus_arrays_have_the_disks_that_they_show() -> None:
    for file in sorted((Path(os.environ["REVEAL_CORPUS"]) / "proc_mdstat").iterdir()):
        text = file.read_text()
        found = parse(MDSTAT, text.encode())
        for block in text.split("\n\n"):
            name = block.strip().partition(" ")[0]
            shown = block.rpartition("[")[2] if "[U" in block or "[_" in block else ""
            if ("md.failed", name) in found and shown.strip("U_]\n") == "":
                assert found["md.failed", name] == shown.count("_")
