"""Latent flows of a batch: what a host computes, sends, reads and writes. All metrics follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.fleet.group import Group
from producers.fleet.knobs import Turned

Floats = NDArray[np.floating[Any]]
SETTLE_S: Final = 0.12


@dataclass(frozen=True, slots=True)
class Flow:
    """Flows, (hosts, samples, 1) where nothing else is said.

    compute, communicate, input   shares of the time in which the accelerators (or the CPUs of a host without) compute,
                                  exchange gradients, are fed
    read, write                   0 to 1, of what loading a data set and writing a checkpoint ask for
    working, memory, intensity    whether a job is there; its share of memory; how hard it computes
    live                          1, or less on a host that stands still
    rx_bytes, tx_bytes            Ethernet, B/s, all interfaces
    rx_packets, tx_packets        the same, packets/s
    port_bytes                    InfiniBand or RoCE, B/s and direction, (hosts, samples, ports)
    disk_read, disk_write         B/s, (hosts, samples, disks)
    disk_load                     share of the time in which a disk is busy, 0 to 1, (hosts, samples, disks)
    io_wait                       share of the time in which tasks wait for disks
    loss                          share of the TCP segments that are sent again
    """

    compute: Floats
    communicate: Floats
    input: Floats
    read: Floats
    write: Floats
    working: Floats
    memory: Floats
    intensity: Floats
    live: Floats
    rx_bytes: Floats
    tx_bytes: Floats
    rx_packets: Floats
    tx_packets: Floats
    port_bytes: Floats
    disk_read: Floats
    disk_write: Floats
    disk_load: Floats
    io_wait: Floats
    loss: Floats


def flow(group: Group, knobs: Turned, begin_s: float, samples: int) -> Flow:
    """Flows over `samples` from `begin_s`, of healthy hosts or as far as knobs let them."""
    profile = group.profile
    wanted = group.wanted(begin_s, samples)
    live = 1 - np.clip(knobs["quiet"], 0, 1)
    # A step in which the collectives take longer is longer as a whole, and everything in it rarer.
    stretch = 1 + wanted.communicate_share * (1 / np.maximum(knobs["communication_rate"], 0.05) - 1)
    pace = live * (1 - np.clip(knobs["stall"], 0, 1)) / stretch
    crowd = 1 if profile.gpu else 1 / (1 + 0.6 * knobs["contention"])
    compute = group.slow("compute", wanted.compute * pace * crowd, SETTLE_S)
    communicate = group.slow("communicate", wanted.communicate * pace, SETTLE_S)
    feed = group.slow("input", wanted.input * wanted.input_need * pace, SETTLE_S)
    read = group.slow("read", wanted.read * live, 0.5)
    write = group.slow("write", wanted.write * live, 0.5)

    loss = np.clip(knobs["loss"] + 1e-5, 0, 0.5)
    # Loss halves the congestion window again and again: a few per cent cost half of the throughput.
    through = 1 / (1 + 25 * knobs["loss"])
    capacity = profile.mbit * 125_000.0
    peers = 0.0 if profile.gpu else 0.22
    rx_bytes = np.minimum(
        4e3 + 1.6e4 * live + capacity * (0.16 * feed + 0.08 * read + peers * communicate), 0.95 * capacity
    )
    tx_bytes = np.minimum(
        3e3 + 1.2e4 * live + capacity * (0.004 * feed + 0.05 * write + peers * communicate), 0.95 * capacity
    )
    rx_bytes, tx_bytes = rx_bytes * through, tx_bytes * through
    payload = 8948.0 if profile.mbit >= 100_000 else 1448.0

    port_bytes = np.zeros((len(group), samples, 0), np.float32)
    if profile.ports:
        line = profile.port_gbit * 125e6
        port_bytes = (
            line * 0.55 * communicate * group.weights("port", len(profile.ports), 0.02) * knobs["port_rate"]
            + 2e3 * live
        )

    disks = len(profile.disks)
    share = group.weights("disk", disks, 0.05)
    latency = knobs["disk_latency"]
    dirtying = knobs["dirtying"]
    # A slower disk serves less, up to a point: requests wait in its queue instead.
    slowed = latency**-0.35
    disk_read = profile.disk_read_mb * 1e6 * (0.40 * read + 0.05 * feed) * share * slowed
    disk_write = profile.disk_write_mb * 1e6 * np.minimum(0.002 * live + 0.5 * write + dirtying, 0.97) * share * slowed
    load = disk_read / (profile.disk_read_mb * 1e6) + disk_write / (profile.disk_write_mb * 1e6)
    disk_load = np.clip(load * latency**0.8, 0, 0.99)
    io_wait = np.clip(0.5 * disk_load.mean(axis=2, keepdims=True) + 0.5 * disk_load.max(axis=2, keepdims=True), 0, 1)

    shape = (len(group), samples, 1)
    return Flow(
        compute=compute,
        communicate=communicate,
        input=feed,
        read=read,
        write=write,
        working=wanted.working,
        memory=wanted.memory,
        intensity=wanted.intensity,
        live=np.broadcast_to(live, shape),
        rx_bytes=rx_bytes,
        tx_bytes=tx_bytes,
        rx_packets=rx_bytes / payload,
        tx_packets=tx_bytes / payload + rx_bytes / payload * 0.12,
        port_bytes=port_bytes,
        disk_read=disk_read,
        disk_write=disk_write,
        disk_load=disk_load,
        io_wait=io_wait * live,
        loss=np.broadcast_to(loss, shape),
    )
