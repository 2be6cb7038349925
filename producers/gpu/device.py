"""One GPU, or one MIG instance of it: what it can tell, and its present values."""

from __future__ import annotations

from array import array
from functools import partial
from math import isnan
from typing import Final

from producers.gpu import nvml
from producers.gpu.batches import Batches
from producers.gpu.fields import COUNTERS, GPM_METRICS, GPM_NS, IMPLAUSIBLE, LIMIT, NAN, POWERS, power_bound
from producers.gpu.part import Gone, Part, refused

# So many kinds of calls must fail alike before a GPU is given up for an error that says nothing, and so often in a row
# a call that worked must be refused before it is given up.
ENOUGH: Final = 3


class Device:
    """A GPU.

    gpu     handle
    name    instance name, such as gpu3
    phase   0 to 1: when in its period a slow part is read, so that not all GPUs are asked at once

    Asks for everything once, and then only for what it can answer. Raises Gone.
    """

    def __init__(self, gpu: nvml.Handle, name: str, now_ns: int, phase: float = 0.0) -> None:
        self.name = name
        self.migs: tuple[int, ...] = ()
        self.notes: list[str] = []
        self.implausible = 0
        self._gpu = gpu
        self._denied: dict[str, None] = {}
        self._powers: list[tuple[Part, int]] = []
        self._implausible_at = 0
        self._samples: list[nvml.GpmSamples] = []
        self.parts: list[Part] = [part for call in nvml.CALLS if (part := self._call(call, gpu, name))]
        migs: list[tuple[int, nvml.Handle]] = []
        try:
            self.parts += Batches(gpu, name).parts()
        except nvml.Error as error:
            refused(error)
        self._add_gpm(name, None)
        try:
            migs = nvml.mig_handles(gpu)
        except nvml.Error as error:
            refused(error)
        for index, mig in migs:
            self._add_mig(f"{name}/mig{index}", mig)
        self.migs = tuple(index for index, _ in migs)
        if self._denied:
            self.notes.append(f"{name}: no permission for {', '.join(self._denied)}")
        for part in self.parts:
            part.due_ns = now_ns + (GPM_NS if part.every_ns == GPM_NS else int(phase * part.every_ns))

    @property
    def channels(self) -> list[tuple[str, str]]:
        """(metric, instance) of all values, in order."""
        return [*(channel for part in self.parts for channel in part.channels), (IMPLAUSIBLE, self.name)]

    def place(self, start: int) -> int:
        """Values of this GPU begin at `start`; returns where they end."""
        for part in self.parts:
            part.start = start
            part.counters = tuple(
                start + index for index, (metric, _) in enumerate(part.channels) if metric in COUNTERS
            )
            for index, (metric, _) in enumerate(part.channels):
                if metric in POWERS:
                    self._powers.append((part, index))
            start += len(part.channels)
        self._implausible_at = start
        return start + 1

    def read(self, now_ns: int, values: array[float], *, everything: bool = False) -> None:
        """Put what is due into `values`, or all that may be read now: NaN where there is none. Raises Gone."""
        asked = failed = 0
        for part in self.parts:
            if part.due_ns > now_ns and not (everything and part.every_ns != GPM_NS):
                if part.shown:
                    part.shown = False
                    for place in part.counters:
                        values[place] = NAN
                continue
            if part.dead:
                continue
            if part.every_ns and part.due_ns <= now_ns:
                # On the grid of its own period, however late this reading is.
                part.due_ns += part.every_ns * max(1, -((part.due_ns - now_ns) // part.every_ns))
            asked += 1
            try:
                found = part.read()
            except Exception as error:
                # Whatever a driver makes of a call is this part's failure alone.
                failed += nvml.code(error) in nvml.MEANINGLESS
                part.refusals = part.refusals + 1 if refused(error) else 0
                part.dead = part.refusals >= ENOUGH
                values[part.start : part.start + len(part.channels)] = array("d", [NAN] * len(part.channels))
                continue
            part.refusals = 0
            part.shown = True
            place = part.start
            for value, low, high in zip(found, part.lows, part.highs, strict=True):
                if low <= value <= high:
                    values[place] = value
                else:
                    values[place] = NAN
                    # NaN was absent from the start.
                    self.implausible += not isnan(value)
                place += 1
            if part.channels[0][0] == LIMIT:
                for power, index in self._powers:
                    power.highs[index] = power_bound(values[part.start])
        if asked == failed >= ENOUGH:
            raise Gone("every call ends in an unknown error")
        values[self._implausible_at] = self.implausible

    def changed(self) -> bool:
        """Whether MIG instances came or went. Raises Gone."""
        try:
            return tuple(index for index, _ in nvml.mig_handles(self._gpu)) != self.migs
        except nvml.Error as error:
            refused(error)
            return False

    def blank(self, values: array[float]) -> None:
        """This GPU says nothing any more."""
        for place in range(self.parts[0].start if self.parts else self._implausible_at, self._implausible_at + 1):
            values[place] = NAN

    def close(self) -> None:
        """Give back what the library lent; the device is of no use any more."""
        for samples in self._samples:
            samples.close()

    def _refused(self, error: Exception, what: str) -> bool:
        """As `refused`; a missing permission for `what` is noted."""
        if nvml.code(error) == nvml.NO_PERMISSION:
            self._denied[what] = None
        return refused(error)

    def _call(self, call: nvml.Call, gpu: nvml.Handle, name: str) -> Part | None:
        """The first way of a call that this GPU answers, or may answer another time."""
        for way in call.ways:
            try:
                way(gpu)
            except Exception as error:
                if self._refused(error, call.what):
                    continue
            return Part(tuple((metric, name) for metric in call.metrics), partial(way, gpu), call.every_ns)
        return None

    def _add_gpm(self, name: str, mig: nvml.Handle | None) -> None:
        try:
            samples = nvml.GpmSamples(self._gpu, mig)
        except nvml.Error as error:
            self._refused(error, "performance monitors")
            return
        self._samples.append(samples)
        try:
            samples.read()
        except nvml.Error as error:
            if self._refused(error, "performance monitors"):
                return
        self.parts.append(Part(tuple((metric, name) for metric in GPM_METRICS), samples.read, GPM_NS))

    def _add_mig(self, name: str, mig: nvml.Handle) -> None:
        self.parts += [part for call in nvml.CALLS if call.mig and (part := self._call(call, mig, name))]
        self._add_gpm(name, mig)
