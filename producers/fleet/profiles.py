"""Hardware profiles: what a simulated host has, and which channels its agent publishes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.catalogue import SUBSYSTEMS, Metric, catalogue

ORDERS: Final = 11
CACHES: Final = ("buffer_head", "dentry", "ext4_inode_cache", "kmalloc-512", "radix_tree_node")


@dataclass(frozen=True, slots=True)
class Gpu:
    """GPUs of a profile, all alike. Clocks in MHz, `link_gb` in GB/s and direction, `limit_c` where they slow down."""

    count: int
    memory_gb: int
    tdp_w: int
    idle_w: int
    sm_mhz: int
    idle_mhz: int
    mem_mhz: int
    links: int
    link_gb: int
    pcie_gen: int
    limit_c: int

    @property
    def pcie_bytes(self) -> float:
        """What a link of 16 lanes carries, B/s and direction: 1 GB/s a lane in generation 3, doubling."""
        return 16e9 * 2.0 ** (self.pcie_gen - 3)


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of host. `mbit` is the speed of its interfaces, `tdp_w` that of a socket."""

    name: str
    words: str
    short: str
    sockets: int
    cores: int
    threads: int
    base_mhz: int
    max_mhz: int
    tdp_w: int
    memory_gb: int
    swap_gb: int
    mbit: int
    interfaces: tuple[str, ...]
    disks: tuple[str, ...]
    disk_read_mb: int
    disk_write_mb: int
    filesystems: tuple[str, ...]
    features: frozenset[str]
    ports: tuple[str, ...] = ()
    port_gbit: int = 0
    arrays: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    sensors: tuple[str, ...] = ()
    gpu: Gpu | None = None

    @property
    def cpus(self) -> int:
        """Logical processors."""
        return self.sockets * self.cores * self.threads

    def instances(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the instances of each dimension that such a host has, as its agent writes them."""
        return _instances(self)

    def metrics(self, subsystem: str) -> list[Metric]:
        """Metrics that such a host has, in the order of the catalogue."""
        have = self.instances()
        features = self.features | ({"gpu"} if self.gpu else set())
        return [
            metric
            for metric in catalogue().values()
            if metric.subsystem == subsystem
            and metric.dimension in have
            and features.issuperset(_needs(metric.name))
            and self.present(metric).any()
        ]

    def present(self, metric: Metric) -> NDArray[np.bool_]:
        """Which instances of its dimension have `metric`."""
        names = self.instances().get(metric.dimension, ())
        prefix = _channels().instances.get(metric.name, "")
        return np.array([name.startswith(prefix) for name in names], bool)

    def channels(self) -> int:
        """Values in a sample of all subsystems."""
        return sum(int(self.present(metric).sum()) for name in SUBSYSTEMS for metric in self.metrics(name))

    def can(self, needs: frozenset[str]) -> bool:
        """Whether a host has all that a fault needs: a feature, or gpu, ports, nodes (more than one)."""
        have = self.features | {
            name for name, there in (("gpu", self.gpu), ("ports", self.ports), ("nodes", self.sockets > 1)) if there
        }
        return needs <= have


@dataclass(frozen=True, slots=True)
class Channels:
    """What `channels.toml` says."""

    patterns: tuple[tuple[str, frozenset[str]], ...]
    instances: Mapping[str, str]


@cache
def profiles() -> Mapping[str, Profile]:
    """All profiles by name."""
    return {name: _profile(name, dict(values)) for name, values in read_toml("profiles").items()}


def read_toml(name: str) -> dict[str, Any]:
    """A table of this package."""
    return tomllib.loads(resources.files(__package__ or "").joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def _profile(name: str, values: dict[str, Any]) -> Profile:
    gpu = values.pop("gpu", None)
    fixed: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    fixed["features"] = frozenset(fixed["features"])
    return Profile(name=name, gpu=Gpu(**gpu) if gpu else None, **fixed)


@cache
def _instances(profile: Profile) -> Mapping[str, tuple[str, ...]]:
    gpus = profile.gpu.count if profile.gpu else 0
    links = profile.gpu.links if profile.gpu else 0
    per_socket = 4 if "uncore" in profile.features else 0
    found = {
        "host": ("",),
        "core": _numbered("cpu", profile.cpus),
        "package": _numbered("package", profile.sockets),
        "irq": tuple(f"{40 + i}:{name}-{i % 4}" for i, name in enumerate(profile.interfaces * 4))[:8],
        "sensor": profile.sensors,
        "gpu": _numbered("gpu", gpus),
        "link": tuple(f"gpu{gpu}/link{link}" for gpu in range(gpus) for link in range(links)),
        "node": _numbered("node", profile.sockets),
        "hugepool": tuple(f"node{n}/{size}kB" for n in range(profile.sockets) for size in (2048, 1048576)),
        "controller": _numbered("mc", per_socket * profile.sockets),
        "order": _numbered("order", ORDERS),
        "cache": CACHES,
        "interface": profile.interfaces,
        "port": profile.ports,
        "device": profile.pci,
        "disk": profile.disks,
        "filesystem": profile.filesystems,
        "array": profile.arrays,
    }
    return {dimension: names for dimension, names in found.items() if names}


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}{number}" for number in range(count))


@cache
def _channels() -> Channels:
    table = read_toml("channels")
    return Channels(tuple((pattern, frozenset(needs)) for pattern, needs in table["patterns"]), table["instances"])


@cache
def _needs(metric: str) -> frozenset[str]:
    for pattern, needs in _channels().patterns:
        if fnmatchcase(metric, pattern):
            return needs
    return frozenset()
