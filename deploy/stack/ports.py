"""Ports that the stack needs: looked at before anything starts, with the way out where one is busy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from deploy.kafka.ports import is_free
from deploy.stack.errors import StackError

LISTEN: Final = "0A"


def check_ports(wanted: Mapping[str, int], patience_s: float = 2.0, procfs: Path = Path("/proc")) -> None:
    """Whether every port is free on loopback; `wanted` is by the environment variable that sets it.

    Waits up to patience_s, as the processes of a stack that was killed just now may need a moment to end.
    Raises StackError that names each busy port, who holds it as far as /proc tells, and the variable to set.
    """
    by_port: dict[int, str] = {}
    for variable, port in wanted.items():
        if port in by_port:
            raise StackError(f"{by_port[port]} and {variable} both name port {port}: give one of them another")
        by_port[port] = variable
    deadline = time.monotonic() + patience_s
    while busy := [port for port in by_port if not is_free(port)]:
        if time.monotonic() > deadline:
            raise StackError("\n".join(_complaint(port, by_port[port], procfs) for port in busy))
        time.sleep(0.05)


def holder(port: int, procfs: Path = Path("/proc")) -> tuple[int, str] | None:
    """Process id and command of the process that listens on `port`; None where /proc does not tell."""
    inodes = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _listeners(procfs / "net" / table, port)}
    for process in procfs.iterdir() if inodes else ():
        if not process.name.isdigit():
            continue
        try:
            if not inodes.isdisjoint(_open_files(process)):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                return int(process.name), command
        except OSError:
            continue  # ended meanwhile, or somebody else's
    return None


def _open_files(process: Path) -> Iterator[str]:
    """What a process has open. Raises OSError if that is not told."""
    for entry in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, as what lists our own is
            yield os.readlink(entry)


def _listeners(table: Path, port: int) -> list[str]:
    try:
        rows = [line.split() for line in table.read_text("ascii").splitlines()[1:]]
    except OSError:
        return []
    return [row[9] for row in rows if row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port]


def _complaint(port: int, variable: str, procfs: Path) -> str:
    found = holder(port, procfs)
    who = f"process {found[0]} ({found[1][:60]}) listens there" if found else "another program listens there"
    return f"port {port} is in use: {who}. End it, or choose another port: {variable}={port + 1000} reveal up"
