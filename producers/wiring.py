"""From settings to a frame: what every entry point that samples this machine does alike."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from producers.clock import Clock
from producers.collector import Collector
from producers.collectors import COLLECTORS
from producers.files import mounted_over
from producers.frame import Frame, Identity
from producers.namespaces import network_root
from producers.notices import Notices
from producers.reading import Host
from producers.selection import Selection
from producers.vitals import Vitals
from schemas.settings import AgentSettings, SettingsError


def enabled(disable: Sequence[str], setting: str = "disable") -> list[Collector]:
    """All collectors but those in `disable`. Raises SettingsError for a name that is none."""
    known = [collector.name for collector in COLLECTORS]
    if strange := [name for name in disable if name not in known]:
        raise SettingsError(
            f"[agent] {setting}: there is no collector {', '.join(strange)}; there are {', '.join(known)}"
        )
    return [collector for collector in COLLECTORS if collector.name not in disable]


def new_frame(
    settings: AgentSettings,
    clock: Clock,
    *,
    notices: Notices | None = None,
    vitals: Vitals | None = None,
    lost: Callable[[str], int] = lambda subsystem: 0,
    session: str = "",
) -> Frame:
    """A frame over this machine, with a session of its own. Raises SettingsError for settings that do not fit it."""
    if not Path(settings.procfs).is_dir():
        raise SettingsError(f"[agent] procfs: {settings.procfs} is no directory (is this Linux?)")
    collectors = enabled(settings.disable)
    identity = Identity(settings.host or socket.gethostname(), session or secrets.token_hex(8), _version())
    wanted = Selection(
        {
            "interface": settings.interfaces,
            "disk": settings.disks,
            "filesystem": settings.filesystems,
            "gpu": settings.gpus,
        }
    )
    served = frozenset(f"proc/{path}" for path in mounted_over(_mountinfo(), settings.procfs))
    roots = {"proc": settings.procfs, "proc/net": network_root(settings.procfs), "sys": settings.sysfs}
    every = settings.cadences()
    enabled(tuple(every), "every")
    host = Host(roots, clock.monotonic_ns, wanted, settings, notices or Notices(), vitals or Vitals(), served=served)
    return Frame(collectors, host, settings.period_ms, identity, every=every, lost=lost)


def _mountinfo() -> bytes:
    try:
        return Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return b""


def _version() -> str:
    try:
        return metadata.version("reveal")
    except metadata.PackageNotFoundError:
        return ""
