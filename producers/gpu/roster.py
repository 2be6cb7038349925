"""Which GPUs there are, which are lost, and what is to be said of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Final

from producers.gpu.names import GpuNames, normal
from producers.gpu.wire import GpuId, Hello, Xid
from producers.notices import Notices

# Errors of the board, the link or the driver's firmware, after which a GPU needs a reset or more; what a program does
# wrong is a warning.
CRITICAL_XIDS: Final = frozenset({46, 48, 54, 61, 62, 64, 74, 79, 92, 95, 109, 110, 119, 120, 136, 140, 143, 151, 154})


class Roster:
    """GPUs of a session. `wanted` tells which of them are read; below `proc` the driver lists those that it has."""

    def __init__(self, names: GpuNames, notices: Notices, wanted: Callable[[str], bool], proc: str) -> None:
        self.missing: int | None = None
        self.state = b""
        self.reasons: dict[str, str] = {}
        self._names = names
        self._notices = notices
        self._wanted = wanted
        self._proc = proc
        self._known: dict[str, GpuId] = {}
        # Addresses of GPUs that nobody has a name for.
        self._unknown: set[str] = set()
        self._write()

    @property
    def incomplete(self) -> bool:
        """Whether some GPU should be there and is not."""
        return bool(self.reasons or self.missing)

    def arrived(self, hello: Hello, bus: frozenset[str], avoided: Collection[str] = ()) -> None:
        """A process has looked which GPUs there are; `bus` are the PCI addresses of those that the kernel sees. Those
        that are `avoided` are lost although they are listed.
        """
        for gpu in hello.gpus:
            self._names.learn(gpu.uuid, gpu.pci, gpu.name)
            self._known[gpu.name] = gpu
            if gpu.name not in avoided and self.reasons.pop(gpu.name, None) is not None:
                self._tell("gpu_back", f"{_whole(gpu)} answers again", gpu.name, "info")
        listed = {gpu.name for gpu in hello.gpus}
        # Reasons of those without a name go to those that are found to be away, whichever they are.
        reasons = dict(hello.failed)
        anonymous = [reason for name, reason in hello.failed if not name]
        absent = bus - {normal(gpu.pci) for gpu in hello.gpus}
        if absent:
            self._names.learn_driver(self._proc)
        for address in absent:
            if name := self._names.instance(address):
                self._known.setdefault(name, GpuId(name, "", address, ""))
        for name in self._known:
            if name not in listed:
                self.lost(name, reasons.get(name) or (anonymous[0] if anonymous else "NVML does not list it any more"))
        unknown = {address for address in absent if not self._names.instance(address)}
        for address in sorted(unknown - self._unknown):
            reason = anonymous[0] if anonymous else "NVML does not list it"
            self._tell(
                "gpu_lost", f"the GPU at {address} is on the PCI bus, but does not answer: {reason}", "", "critical"
            )
        for address in sorted(self._unknown - absent):
            self._tell("gpu_back", f"the GPU at {address} answers now", self._names.instance(address), "info")
        self._unknown = unknown
        # Without a bus to be seen there are still those that NVML counts and gives no handle of.
        self.missing = max(len(absent), len(anonymous))
        self._write()

    def lost(self, name: str, reason: str) -> None:
        """A GPU does not answer any more."""
        gpu = self._known.get(name)
        if gpu is None or name in self.reasons:
            return
        self.reasons[name] = reason
        self._tell("gpu_lost", f"{_whole(gpu)} does not answer any more: {reason}", name, "critical")
        self._write()

    def down(self) -> None:
        """There is no library to say which GPUs are missing."""
        self.missing = None
        self._write()

    def xid(self, found: Xid) -> None:
        """Pass an XID on."""
        gpu = self._known.get(found.instance)
        self._notices.add(
            "xid",
            "gpu",
            f"XID {found.code} on {_whole(gpu) if gpu else 'a GPU'}",
            severity="critical" if found.code in CRITICAL_XIDS else "warning",
            source="nvml",
            instance=found.instance,
            code=found.code,
            time_ns=found.time_ns,
        )

    def _tell(self, kind: str, message: str, instance: str, severity: str) -> None:
        self._notices.add(kind, "gpu", message, severity=severity, source="nvml", instance=instance)

    def _write(self) -> None:
        lost = {name: int(name in self.reasons) for name in self._known if self._wanted(name)}
        self.state = json.dumps({"lost": lost, "missing": self.missing}).encode()


def _whole(gpu: GpuId) -> str:
    return f"{gpu.name} ({', '.join(part for part in (gpu.model, gpu.uuid, normal(gpu.pci)) if part)})"
