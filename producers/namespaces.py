"""Whether the agent sees the host, or a container on it."""

from __future__ import annotations

import os
from typing import Final

# The kernel gives its first namespaces fixed numbers (include/linux/proc_ns.h), all others come after.
FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"


def container_notes(procfs: str) -> list[str]:
    """What a person should know if the agent that reads `procfs` does not see the whole host; empty when it does."""
    notes = []
    if _link(f"{procfs}/self/ns/pid") not in (FIRST_PID_NAMESPACE, ""):
        notes.append(
            "this is a container's view: /proc shows its own processes, and may show its own memory and network;"
            " run the agent on the host, or mount the host's /proc, /sys and / and set procfs, sysfs and rootfs"
        )
    own, first = _link("/proc/self/ns/net"), _link(f"{procfs}/1/ns/net")
    if procfs == "/proc" and own and first and own != first:
        notes.append(
            "the network is that of a container, not that of process 1: run the agent in the host's network namespace"
        )
    return notes


def network_root(procfs: str) -> str:
    """Directory that shows the network of the host whose /proc is mounted at `procfs`.

    /proc/net is that of whoever reads it, wherever it is mounted; that of process 1 is the host's.
    """
    first = os.path.join(procfs, "1", "net")
    return first if procfs != "/proc" and os.path.isdir(first) else os.path.join(procfs, "net")


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        # Not allowed to look at process 1, or no /proc at all: nothing is known.
        return ""
