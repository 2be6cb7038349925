"""NVIDIA GPUs as the kernel sees them, whatever the driver's library says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from producers.gpu.names import normal

NVIDIA: Final = "0x10de"
# VGA and 3D controllers; what else NVIDIA builds are bridges, audio and network adapters.
CLASSES: Final = ("0x0300", "0x0302")
LIBRARY: Final = "libnvidia-ml.so.1"
LIBRARY_DIRECTORIES: Final = ("usr/lib64", "usr/lib", "lib64", "lib", "usr/lib/wsl/lib")


class Bus:
    """The PCI bus below the roots "sys" and "proc"."""

    def __init__(self, roots: Mapping[str, str]) -> None:
        self._devices = os.path.join(roots["sys"], "bus/pci/devices")
        self._driver = os.path.join(roots["proc"], "driver/nvidia/gpus")
        self._kinds: dict[str, bool] = {}

    def gpus(self) -> frozenset[str]:
        """PCI addresses of the GPUs that NVIDIA's driver has, or that no driver has.

        Not those given to virtual machines or other drivers, not virtual functions, and not those that a container may
        not use: there the driver lists only the others.
        """
        try:
            names = os.listdir(self._devices)
        except OSError:
            return frozenset()
        # What a device is stays the same as long as it is there.
        self._kinds = {name: self._kinds[name] if name in self._kinds else self._is_gpu(name) for name in names}
        try:
            allowed = {normal(name) for name in os.listdir(self._driver)}
        except OSError:
            allowed = None
        found = set()
        for name in names:
            if not self._kinds[name]:
                continue
            address = normal(name)
            try:
                driver = os.path.basename(os.readlink(os.path.join(self._devices, name, "driver")))
            except OSError:
                driver = ""
            if driver == "" or (driver == "nvidia" and (allowed is None or address in allowed)):
                found.add(address)
        return frozenset(found)

    def _is_gpu(self, name: str) -> bool:
        return (
            self._text(name, "vendor") == NVIDIA
            and self._text(name, "class").startswith(CLASSES)
            and not os.path.lexists(os.path.join(self._devices, name, "physfn"))
        )

    def _text(self, name: str, file: str) -> str:
        try:
            return Path(self._devices, name, file).read_text("ascii", "replace").strip()
        except OSError:
            return ""


def library(path: str) -> bool:
    """Whether there may be a library to load: `path`, or the one of the system if that is empty."""
    if path:
        return os.path.exists(path)
    try:
        if LIBRARY.encode() in Path("/etc/ld.so.cache").read_bytes():
            return True
    except OSError:
        pass
    return any(os.path.exists(os.path.join("/", directory, LIBRARY)) for directory in LIBRARY_DIRECTORIES)
