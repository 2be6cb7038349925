"""The process that reads GPUs: answers each byte of its parent with one frame of values."""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Final

from producers.gpu import nvml
from producers.gpu.device import Device
from producers.gpu.fields import NAN
from producers.gpu.names import GpuNames
from producers.gpu.part import Gone
from producers.gpu.wire import TIME, VALUES, Down, GpuId, Hello, Lost, Mark, Orders, Said, Xid, pack, say

RESCAN_NS: Final = 10 * 1_000_000_000
# So many readings are complete at first: who looks once wants all of it, and a rate needs two.
THOROUGH: Final = 2
WAIT_MS: Final = 5000
REST_S: Final = 1.0
LONGEST_REST_S: Final = 60.0


class Child:
    """Reads GPUs and hands frames to `send`.

    A life of this process is one initialisation of the library: a GPU that was lost comes back, if at all, to the next
    one, and no handle outlives its library.
    """

    def __init__(
        self, orders: Orders, send: Callable[[bytes], None], clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._orders = orders
        self._send = send
        self._clock = clock
        self._names = GpuNames(orders.names)
        self._mark = Mark(orders.mark)
        self._devices: list[Device] = []
        self._lost: dict[str, str] = {}
        self._listens = False
        self._deaf: list[str] = []
        self._values: array[float] = array("d")
        self._rescan_ns = 0
        self._thorough = 0

    def start(self) -> bool:
        """Find the GPUs and say which; False if there is nothing to read, which is said, too."""
        try:
            nvml.start(self._orders.nvml)
        except Exception as error:
            absent = nvml.code(error) in (nvml.LIBRARY_NOT_FOUND, nvml.DRIVER_NOT_LOADED)
            self._say(Down(nvml.why_not(error, self._orders.nvml), absent))
            return False
        try:
            self._find()
        except nvml.Error as error:
            self._say(Down(f"the library does not list the GPUs: {error} ({nvml.code(error)})", False))
            return False
        return True

    def cycle(self) -> None:
        """Read what is due and send it."""
        now_ns = self._clock()
        if now_ns >= self._rescan_ns and self._moved(now_ns):
            self._find()
            now_ns = self._clock()
        for device in list(self._devices):
            self._mark.set(device.name)
            try:
                device.read(now_ns, self._values, everything=self._thorough > 0)
            except Gone as error:
                self._drop(device, str(error))
        self._mark.set("")
        self._thorough = max(0, self._thorough - 1)
        self._send(pack(VALUES, TIME.pack(now_ns) + self._values.tobytes()))

    def _say(self, said: Said) -> None:
        self._send(say(said))

    def _drop(self, device: Device, reason: str) -> None:
        self._devices.remove(device)
        device.blank(self._values)
        self._lost[device.name] = reason
        self._say(Lost(device.name, reason))

    def _moved(self, now_ns: int) -> bool:
        """Whether MIG instances came or went since the last look."""
        self._rescan_ns = now_ns + RESCAN_NS
        moved = False
        for device in list(self._devices):
            self._mark.set(device.name)
            try:
                moved |= device.changed()
            except Gone as error:
                self._drop(device, str(error))
        return moved

    def _find(self) -> None:
        """Ask every GPU what it can tell. Raises nvml.Error."""
        total = nvml.count()
        gpus: list[GpuId] = []
        failed: list[tuple[str, str]] = []
        handles: list[tuple[str, nvml.Handle]] = []
        for device in self._devices:
            device.close()
        self._devices = []
        for index in range(total):
            name = ""
            try:
                gpu = nvml.handle(index)
                uuid, pci = nvml.uuid(gpu), nvml.pci(gpu)
                name = self._names.name(uuid, index, pci)
                if name in self._lost:
                    raise Gone(self._lost[name])
                if name not in self._orders.unwanted:
                    self._mark.set(name)
                    self._devices.append(Device(gpu, name, self._clock(), index / total))
                    handles.append((name, gpu))
                gpus.append(GpuId(name, uuid, pci, self._model(gpu)))
            except Exception as error:
                # Whatever is wrong with one GPU must not hide the others.
                failed.append((name, f"{error} ({nvml.code(error)})" if nvml.code(error) else str(error)))
        self._mark.set("")
        channels: list[tuple[str, str]] = []
        for device in self._devices:
            device.place(len(channels))
            channels += device.channels
        self._values = array("d", [NAN]) * len(channels)
        self._rescan_ns = self._clock() + RESCAN_NS
        if handles and not self._listens:
            self._listens = True
            # Its first word must come after the names of the GPUs.
            events, self._deaf = self._register(handles)
        else:
            events = None
        notes = [*(note for device in self._devices for note in device.notes), *self._deaf]
        self._say(Hello(tuple(gpus), tuple(failed), tuple(channels), tuple(notes)))
        if events is not None:
            threading.Thread(target=self._listen, args=(events,), name="xid", daemon=True).start()
        self._thorough = THOROUGH

    @staticmethod
    def _register(handles: Sequence[tuple[str, nvml.Handle]]) -> tuple[nvml.XidEvents | None, list[str]]:
        """The events of the GPUs, if any tells of them, and what a person should know."""
        try:
            events = nvml.XidEvents(handles)
        except nvml.Error as error:
            return None, [f"no XIDs from the library: {error}"]
        deaf = [name for name, _ in handles if name not in events.listening]
        notes = [f"no XIDs from the library for {', '.join(deaf)}"] if deaf else []
        return (events if events.listening else None), notes

    @staticmethod
    def _model(gpu: nvml.Handle) -> str:
        try:
            return nvml.model(gpu)
        except nvml.Error:
            return ""

    def _listen(self, events: nvml.XidEvents) -> None:
        rest_s = REST_S
        while True:
            began_ns = self._clock()
            try:
                found = events.wait(WAIT_MS)
            except Exception:
                # A GPU that is lost ends every wait at once; which one it is, its own calls tell.
                time.sleep(rest_s)
                rest_s = min(2 * rest_s, LONGEST_REST_S)
                continue
            rest_s = REST_S
            if found is not None:
                self._say(Xid(*found, time.time_ns()))
            elif self._clock() - began_ns < WAIT_MS * 500_000:
                # May come back early, and must not spin then.
                time.sleep(0.1)


def sender(descriptor: int) -> Callable[[bytes], None]:
    """What writes whole frames to `descriptor`, from any thread."""
    lock = threading.Lock()

    def send(frame: bytes) -> None:
        with lock:
            view = memoryview(frame)
            while view:
                view = view[os.write(descriptor, view) :]

    return send
