"""Which file systems of the host are real and local, and how full each is."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from producers.reading import Host, Wanted

# Types whose device is none, and a few that have one but hold an image that is always full.
UNREAL: Final = frozenset(
    {"tmpfs", "ramfs", "devtmpfs", "autofs", "squashfs", "iso9660", "udf", "erofs", "cramfs", "romfs", "nfs", "nfs4"}
)
# Types of real file systems that are not named by a device file: pools.
POOLED: Final = frozenset({"zfs", "bcachefs"})
# Types whose files show another device number than the mount does.
OWN_NUMBERS: Final = frozenset({"btrfs", "bcachefs", "overlay"})
# What the kernel says of a file system that it stopped writing to, beside "ro".
READ_ONLY: Final = frozenset({"ro", "emergency_ro", "shutdown"})
ESCAPE: Final = re.compile(rb"\\([0-7]{3})")
TABLES: Final = ("1/mountinfo", "self/mountinfo", "1/mounts", "self/mounts")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system.

    point      where, as bytes of a path
    device     "major:minor", or the name of the device where that is unknown
    root       which of its directories is mounted, "" where that is unknown
    type       ext4, say
    source     /dev/sda1, say
    read_only  whether nothing can be written to it
    """

    point: bytes
    device: str
    root: bytes
    type: str
    source: bytes
    read_only: bool

    @property
    def name(self) -> str:
        """Where it is mounted, for people."""
        return self.point.decode("utf-8", "replace")


def mounts(text: bytes) -> list[Mount]:
    """Mounts of a mountinfo (proc(5)) or of a table such as /proc/mounts; rows that are cut short are left out."""
    found: list[Mount] = []
    for line in text.splitlines():
        fields = line.split(b" ")
        if fields[0].isdigit() and b"-" in fields[6:]:
            tail = fields[fields.index(b"-", 6) + 1 :]
            if len(tail) < 2:
                continue
            options = fields[5].split(b",") + (tail[2].split(b",") if len(tail) > 2 else [])
            found.append(_mount(fields[4], fields[2].decode("ascii", "replace"), plain(fields[3]), tail, options))
        elif len(fields) >= 4 and fields[1].startswith(b"/") and not fields[0].isdigit():
            device = fields[0].decode("utf-8", "replace")
            found.append(_mount(fields[1], device, b"", [fields[2], fields[0]], fields[3].split(b",")))
    return found


def _mount(point: bytes, device: str, root: bytes, tail: list[bytes], options: list[bytes]) -> Mount:
    kind, source = tail[0].decode("ascii", "replace"), plain(tail[1])
    words = {option.strip().decode("ascii", "replace") for option in options}
    return Mount(plain(point), device, root, kind, source, bool(words & READ_ONLY))


def plain(text: bytes) -> bytes:
    """`text` without the octal escapes that the kernel puts for blanks, tabs, line ends and backslashes."""
    return ESCAPE.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), text)


def local(found: list[Mount], wanted: Wanted) -> list[Mount]:
    """Real, local, wanted file systems, each once: where its own root is mounted, else where the path is shortest."""
    # What was mounted last at a place hides what was there before.
    visible = {mount.point: mount for mount in found}
    best: dict[str, Mount] = {}
    for mount in visible.values():
        if not _real(mount):
            continue
        other = best.get(mount.device)
        if other is None or _rank(mount) < _rank(other):
            best[mount.device] = mount
    return [mount for mount in best.values() if wanted("filesystem", mount.name)]


def _real(mount: Mount) -> bool:
    if mount.type in UNREAL or mount.type == "fuse" or mount.type.startswith("fuse."):
        return False
    # The layers of containers lie on a file system that is counted itself; the root of a machine may be one, too.
    if mount.type == "overlay":
        return mount.point == b"/"
    return mount.source.startswith(b"/dev/") or mount.type in POOLED


def _rank(mount: Mount) -> tuple[bool, int]:
    return mount.root not in (b"/", b""), len(mount.point)


class Filesystems:
    """Finds the host's file systems and asks each for its state; the host's / is where `rootfs` says."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._mounts: dict[str, Mount] = {}

    def find(self) -> list[str]:
        """Names of all that there are now. Raises OSError when there is no table of mounts."""
        self._mounts = {mount.name: mount for mount in local(mounts(self._table()), self._host.wanted)}
        return list(self._mounts)

    def look(self, name: str) -> bytes | None:
        """Size of a fragment, fragments, free ones, those free to users, inodes, free ones, 1 if read-only.

        None for what is mounted on a file (names of hosts in a container, say) and for what cannot be seen from here.
        Raises OSError.
        """
        mount = self._mounts[name]
        path = os.path.join(os.fsencode(self._host.settings.rootfs), mount.point.lstrip(b"/"))
        status = os.stat(path)
        number = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
        if not os.path.isdir(path) or (mount.root and mount.type not in OWN_NUMBERS and number != mount.device):
            return None
        found = os.statvfs(path)
        cells = (found.f_frsize, found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_favail)
        return b" ".join(b"%d" % cell for cell in (*cells, mount.read_only))

    def _table(self) -> bytes:
        failure: OSError | None = None
        # The agent may run in a name space of its own, in which much is read-only that is not so for others.
        for table in TABLES:
            try:
                with open(os.path.join(self._host.roots["proc"], table), "rb") as file:
                    if text := file.read():
                        return text
            except OSError as error:
                failure = failure or error
        raise failure or OSError(0, "the table of mounts is empty")
