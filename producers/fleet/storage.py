"""Metrics of subsystem storage: requests and their times follow from bytes, load and latency of each disk."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.fleet.activity import Flow
from producers.fleet.group import Group
from producers.fleet.knobs import Turned
from producers.fleet.sheet import Sheet

Floats = NDArray[np.floating[Any]]
READ_BYTES: Final = 131_072.0
WRITE_BYTES: Final = 262_144.0
QUIET: Final = (
    "disk.discards",
    "nvme.critical_warning",
    "nvme.media_errors",
    "fs.read_only",
    "md.failed",
)


def fill_storage(group: Group, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    """Set all metrics of the subsystem."""
    sheet.zero(*QUIET)
    disks = len(group.profile.disks)
    nvme = "nvme" in group.profile.features
    # Noise is in what is asked for; numbers and sizes of requests agree.
    read_bytes = flow.disk_read * np.maximum(1 + sheet.noise("disk.reads"), 0)
    write_bytes = flow.disk_write * np.maximum(1 + sheet.noise("disk.writes"), 0)
    reads = read_bytes / READ_BYTES
    writes = write_bytes / WRITE_BYTES + 0.5 * flow.live
    latency, load = knobs["disk_latency"], flow.disk_load
    # Mean time in a queue with one server, M/M/1: service / (1 - load).
    wait = latency / (1 - np.minimum(load, 0.95))
    read_each, write_each = (0.09, 0.03) if nvme else (0.6, 0.9)
    read_ms, write_ms = reads * read_each * wait, writes * write_each * wait
    values: dict[str, Floats | float] = {
        "disk.reads": reads,
        "disk.read_sectors": read_bytes / 512,
        "disk.read_merges": 0.02 * reads,
        "disk.read_ms": read_ms,
        "disk.writes": writes,
        "disk.write_sectors": write_bytes / 512,
        "disk.write_merges": 0.2 * writes,
        "disk.write_ms": write_ms,
        "disk.flushes": 0.3 * flow.live + 4 * flow.write,
        "disk.flush_ms": (0.3 * flow.live + 4 * flow.write) * 2 * write_each * latency,
        "disk.io_ms": 1000 * load,
        "disk.in_flight": np.minimum((read_ms + write_ms) / 1000, 1023),
        "nvme.state": 1.0,
        "nvme.available_spare": 100.0,
        "nvme.percentage_used": np.rint(4 * group.weights("wear", disks, 0.3)),
        "nvme.temp": group.slow("nvme_temp", 1000 * (34 + 22 * load), 30.0),
        "io.psi.some": 1e6 * np.clip(0.7 * flow.io_wait, 0, 1),
        "io.psi.full": 1e6 * np.clip(0.35 * flow.io_wait, 0, 1),
        "fs.open_files": 3_000 + 6_000 * flow.working,
        "md.recovery_pct": 100.0,
        "nfs.op_rtt_ms": 4 + 300 * flow.input + 200 * flow.read,
    }
    for name, value in values.items():
        sheet[name] = value
    _filesystems(group, flow, sheet)
    sheet.finish()
    sheet["disk.io_ms"] = np.minimum(sheet["disk.io_ms"], 1000)
    sheet["disk.queue_ms"] = sheet["disk.read_ms"] + sheet["disk.write_ms"] + sheet["disk.flush_ms"]
    sheet["io.pgpgin"] = sheet["disk.read_sectors"].sum(axis=2, keepdims=True) / 2
    sheet["io.pgpgout"] = sheet["disk.write_sectors"].sum(axis=2, keepdims=True) / 2
    for way in ("read", "write"):
        count = sheet[f"disk.{way}s"]
        mean = sheet[f"disk.{way}_ms"] / np.maximum(count, 1e-9)
        # As the agent does: without requests there is no mean time.
        sheet[f"disk.await_{way}"] = np.where(count > 0, mean, np.nan)
    sheet.seal()


def _filesystems(group: Group, flow: Flow, sheet: Sheet) -> None:
    count = len(group.profile.filesystems)
    size = 2.0**30 * np.array([200.0, 14_000.0, 90_000.0][:count], np.float32)
    # Checkpoints fill the disk slowly; old ones go.
    filled = 0.30 * group.weights("filled", count, 0.2) + 0.0004 * group.slow("filled", flow.write, 120.0)
    sheet["fs.free_bytes"] = size * (1 - filled)
    sheet["fs.used_pct"] = 100 * filled
    sheet["fs.free_inodes"] = 2.0e7 * (1 - 0.5 * filled)
