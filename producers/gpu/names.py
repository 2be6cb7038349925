"""Names of GPUs that last a session, whatever the driver's numbering does when one is lost."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

ADDRESS: Final = re.compile(
    r"(?:pci:)?(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})(?:\.(?P<function>[0-7]))?",
    re.IGNORECASE,
)


def normal(pci: str) -> str:
    """An address as sysfs writes it, 0000:3b:00.0, from 00000000:3B:00.0, PCI:0000:3b:00 or 3b:00; "" if it is none."""
    match = ADDRESS.fullmatch(pci.strip())
    if match is None:
        return ""
    domain, bus, device = (int(match[name] or "0", 16) for name in ("domain", "bus", "device"))
    return f"{domain:04x}:{bus:02x}:{device:02x}.{match['function'] or '0'}"


class GpuNames:
    """Which GPU is gpu0, gpu1, ...: by UUID, and by PCI address for those who know no more, such as the kernel's log.

    A GPU gets the number that NVML gives it when it is first seen and keeps it: a GPU that fell off the bus still has
    its name, and no other gets it. Safe to ask from any thread.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._by_uuid: dict[str, str] = dict(known or {})
        self._by_pci: dict[str, str] = {}

    @property
    def by_uuid(self) -> dict[str, str]:
        """Name of each UUID."""
        return dict(self._by_uuid)

    def name(self, uuid: str, index: int, pci: str = "") -> str:
        """Name of the GPU with this UUID, a new one if it has none: that of NVML's `index`, or the first free one."""
        for key in (uuid, _nameless(normal(pci))):
            if key in self._by_uuid:
                return self._by_uuid.setdefault(uuid, self._by_uuid[key])
        taken = set(self._by_uuid.values())
        while f"gpu{index}" in taken:
            index += 1
        return self._by_uuid.setdefault(uuid, f"gpu{index}")

    def learn(self, uuid: str, pci: str, name: str) -> None:
        """The GPU `uuid` at `pci` is called `name`."""
        self._by_uuid[uuid] = name
        if address := normal(pci):
            # A board that was replaced has a new UUID at the old address.
            self._by_pci[address] = name

    def learn_driver(self, proc: str) -> None:
        """Take in which GPUs the driver has, from the names below `proc`/driver/nvidia/gpus: that works without NVML.

        A GPU that NVML has not named gets the number that it has in the order of addresses, which is NVML's. What is in
        the files there is not read: the driver asks the GPU for it, and may never get an answer.
        """
        try:
            names = os.listdir(os.path.join(proc, "driver/nvidia/gpus"))
        except OSError:
            return
        for index, address in enumerate(sorted(filter(None, map(normal, names)))):
            if address not in self._by_pci:
                self._by_pci[address] = self.name(_nameless(address), index)

    def instance(self, pci: str) -> str:
        """Name of the GPU at an address in any of its spellings, "" if there is none known."""
        return self._by_pci.get(normal(pci), "")


def _nameless(address: str) -> str:
    """What stands for the UUID of a GPU that has not told it."""
    return f"pci-{address}"
