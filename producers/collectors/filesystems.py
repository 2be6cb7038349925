"""File systems on disks of this host: how full they are, and whether they can be written to. Files that are open."""

from __future__ import annotations

from typing import Final

from producers.collector import NAN, Collector, Layout, ParseError, Reading, number, only, plain
from producers.probe import Probe
from producers.reading import Host, Source, Texts
from producers.statvfs import Filesystems

METRICS: Final = ("fs.free_bytes", "fs.free_inodes", "fs.used_pct", "fs.read_only")
FILES: Final = Layout((("fs.open_files", ""),))


class Space:
    """Parser of what `producers.statvfs` says of each file system, by name."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Bytes, inodes, % and 0 or 1. A file system without a fixed number of inodes tells none."""
        values: list[float] = []
        for name, text in texts.items():
            cells = [int(cell) for cell in text.split()]
            if len(cells) != 7:
                raise ParseError(f"{name}: {len(cells)} numbers, not 7")
            size, blocks, free, available, inodes, inodes_free, read_only = cells
            # As df does: blocks kept for root are neither used nor free.
            used = blocks - free
            share = 100 * used / (used + available) if used >= 0 and used + available > 0 else NAN
            values += [available * size if blocks else NAN, inodes_free if inodes else NAN, share, read_only]
        if tuple(texts) != self._names:
            self._names = tuple(texts)
            self._layout = Layout(tuple((metric, name) for name in texts for metric in METRICS))
        return self._layout, values


class FileNr:
    """Parser of /proc/sys/fs/file-nr: files that are open, and two numbers more."""

    def __call__(self, texts: Texts) -> Reading:
        """Open files."""
        cells = only(texts).split()
        if not cells:
            raise ParseError("no number")
        return FILES, [number(cells[0])]


def spaces(collector: Collector, host: Host) -> Source:
    """Asks each file system, none of which holds up another."""
    filesystems = Filesystems(host)
    return Probe(collector, host, filesystems.find, filesystems.look)


FILESYSTEMS: Final = Collector(
    "filesystems", ("proc/1/mountinfo",), plain(Space), METRICS, every_ms=10_000, may_block=True, source=spaces
)
OPEN_FILES: Final = Collector("open_files", ("proc/sys/fs/file-nr",), plain(FileNr), ("fs.open_files",), every_ms=1000)
