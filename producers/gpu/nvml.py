"""NVIDIA's library: the only file that imports its binding.

What the library refuses is an `Error`, whose number `code` gives. Values are raw: what is plausible is for others to
say; infinity stands for a value that contradicts another one of the same answer.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pynvml

from producers.gpu.fields import FAST, GPM_METRICS, MEDIUM, NAN, REASONS, SLOW, number

Handle: TypeAlias = Any
Way: TypeAlias = Callable[[Handle], Sequence[float]]

Error: Final[type[Exception]] = pynvml.NVMLError
NO_PERMISSION: Final = 4
DRIVER_NOT_LOADED: Final = 9
TIMEOUT: Final = 10
LIBRARY_NOT_FOUND: Final = 12
GONE: Final = frozenset({15, 28})
"""GPU is lost, and GPU not found."""
MISMATCH: Final = 18
MEANINGLESS: Final = frozenset({1, DRIVER_NOT_LOADED, 999})
"""Errors of a call that say nothing of the call: not initialised, driver not loaded, unknown."""
# Invalid argument, not supported (also of a vGPU), no permission, not found, function not found or deprecated, version
# of a struct: asking again gives the same answer.
PERMANENT: Final = frozenset({2, 3, NO_PERMISSION, 6, 13, 22, 25, 26})

MOST_LINKS: Final = 36


def code(error: Exception) -> int:
    """Number of an error of the library, 0 for any other exception. Error objects compare badly and do not hash."""
    return int(getattr(error, "value", 0))


def start(path: str) -> None:
    """Load the library, that at `path` or the one that the system finds, and let it find the GPUs. Raises Error."""
    if path:
        try:
            pynvml.nvmlLib = ctypes.CDLL(path)
        except OSError:
            raise pynvml.NVMLError(LIBRARY_NOT_FOUND) from None
        # Functions of a library that was loaded before.
        pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml.nvmlInit()


def why_not(error: Exception, path: str) -> str:
    """Why the library cannot be started, in words."""
    found = code(error)
    if found == LIBRARY_NOT_FOUND:
        return f"there is no library {path or 'libnvidia-ml.so.1'}"
    if found == DRIVER_NOT_LOADED:
        return "NVIDIA's driver is not loaded"
    if found == MISMATCH:
        return "library and kernel module are of different versions: the driver was upgraded, the machine not restarted"
    if found == NO_PERMISSION:
        return "no permission to talk to the driver: the user cannot open /dev/nvidiactl"
    return f"the library does not start: {error} ({found})"


def driver_version() -> str:
    """Version of the driver, "" if it does not say."""
    try:
        return _text(pynvml.nvmlSystemGetDriverVersion())
    except Exception:
        return ""


def count() -> int:
    """Number of GPUs that the library lists. Raises Error."""
    return int(pynvml.nvmlDeviceGetCount())


def handle(index: int) -> Handle:
    """Handle of the GPU at `index`, good until it is lost. Raises Error."""
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def uuid(gpu: Handle) -> str:
    """UUID of a GPU or MIG instance. Raises Error."""
    return _named(pynvml.nvmlDeviceGetUUID, "nvmlDeviceGetUUID", gpu)


def model(gpu: Handle) -> str:
    """Model of a GPU. Raises Error."""
    return _named(pynvml.nvmlDeviceGetName, "nvmlDeviceGetName", gpu)


def pci(gpu: Handle) -> str:
    """PCI address of a GPU, such as 00000000:3B:00.0. Raises Error."""
    found = pynvml.nvmlDeviceGetPciInfo(gpu)
    # The text may be empty on old drivers; the numbers beside it never are.
    return _text(found.busId) or f"{found.domain:08X}:{found.bus:02X}:{found.device:02X}.0"


def mig_handles(gpu: Handle) -> list[tuple[int, Handle]]:
    """Number and handle of each MIG instance, none unless MIG is on. Raises Error, but not for GPUs without MIG."""
    try:
        if pynvml.nvmlDeviceGetMigMode(gpu)[0] != 1:
            return []
        most = int(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu))
    except Error as error:
        if code(error) in PERMANENT:
            return []
        raise
    found = []
    for index in range(most):
        try:
            found.append((index, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)))
        except Error as error:
            if code(error) not in PERMANENT:
                raise
    return found


def link_state(gpu: Handle, link: int) -> float:
    """Whether a link is up. Raises Error."""
    return float(pynvml.nvmlDeviceGetNvLinkState(gpu, link))


def link_count(gpu: Handle) -> int:
    """Number of NVLinks found by asking for each, for drivers that do not tell it. Raises Error."""
    for link in range(MOST_LINKS):
        try:
            link_state(gpu, link)
        except Error as error:
            if code(error) in PERMANENT:
                return link
            raise
    return MOST_LINKS


class FieldValues:
    """Values by number: one call for all, into an array that is used again and again."""

    _ENTRY: Final = struct.Struct("=IIqqIIQ")

    def __init__(self, gpu: Handle, wanted: Sequence[tuple[int, int]]) -> None:
        """`wanted` are field number and scope (such as a link) of each value."""
        self._gpu = gpu
        self._array = (pynvml.c_nvmlFieldValue_t * len(wanted))()
        for entry, (field, scope) in zip(self._array, wanted, strict=True):
            entry.fieldId, entry.scopeId = field, scope
        self._count = ctypes.c_int(len(wanted))
        self._reference = ctypes.byref(self._array)
        self._function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetFieldValues")

    def read(self) -> tuple[list[float], list[int]]:
        """Number and error (0 is none) of each value; NaN where there is an error. Raises Error."""
        if failed := self._function(self._gpu, self._count, self._reference):
            raise pynvml.NVMLError(failed)
        values: list[float] = []
        errors: list[int] = []
        for _, _, _, _, kind, error, raw in self._ENTRY.iter_unpack(self._array):
            values.append(NAN if error else number(kind, raw))
            errors.append(error)
        return values, errors


class GpmSamples:
    """Two samples of a GPU's or a MIG instance's performance monitors, and what happened between them.

    Hopper and later. Raises Error where there are none.
    """

    _METRIC: Final = struct.Struct("=IId24x")

    def __init__(self, gpu: Handle, mig: Handle | None = None) -> None:
        # Support is asked of the whole GPU.
        if not pynvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._gpu = gpu
        self._slice = None if mig is None else pynvml.nvmlDeviceGetGpuInstanceId(mig)
        self._last, self._next = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        self._taken = False
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(GPM_METRICS)
        for entry, metric in zip(self._request.metrics, GPM_METRICS.values(), strict=False):
            entry.metricId = metric
        self._start = type(self._request).metrics.offset
        self._end = self._start + self._METRIC.size * len(GPM_METRICS)

    def read(self) -> Sequence[float]:
        """Values since the last call, in the order of GPM_METRICS; NaN where there are none. Raises Error."""
        if self._slice is None:
            pynvml.nvmlGpmSampleGet(self._gpu, self._next)
        else:
            pynvml.nvmlGpmMigSampleGet(self._gpu, self._slice, self._next)
        self._last, self._next = self._next, self._last
        if not self._taken:
            self._taken = True
            return [NAN] * len(GPM_METRICS)
        # What was `last` before is `next` now.
        self._request.sample1, self._request.sample2 = self._next, self._last
        pynvml.nvmlGpmMetricsGet(self._request)
        found = memoryview(self._request).cast("B")[self._start : self._end]
        return [NAN if error else value for _, error, value in self._METRIC.iter_unpack(found)]

    def close(self) -> None:
        """Give the samples back."""
        for sample in (self._last, self._next):
            with suppress(Error):
                pynvml.nvmlGpmSampleFree(sample)


class XidEvents:
    """XIDs as the driver reports them."""

    def __init__(self, gpus: Sequence[tuple[str, Handle]]) -> None:
        """Register for each GPU that knows such events; `listening` names them. Raises Error."""
        self._set = pynvml.nvmlEventSetCreate()
        self._names: dict[int, str] = {}
        for name, gpu in gpus:
            try:
                if pynvml.nvmlDeviceGetSupportedEventTypes(gpu) & pynvml.nvmlEventTypeXidCriticalError:
                    pynvml.nvmlDeviceRegisterEvents(gpu, pynvml.nvmlEventTypeXidCriticalError, self._set)
                    self._names[_address(gpu)] = name
            except Error:
                # Absent there, and no fault.
                continue

    @property
    def listening(self) -> list[str]:
        """Names of the GPUs that report."""
        return list(self._names.values())

    def wait(self, timeout_ms: int) -> tuple[str, int] | None:
        """GPU and number of the next XID; None when time passed without one. Raises Error."""
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, timeout_ms)
        except Error as error:
            if code(error) == TIMEOUT:
                return None
            raise
        if not event.eventType & pynvml.nvmlEventTypeXidCriticalError:
            return None
        return self._names.get(_address(event.device), ""), int(event.eventData)


@dataclass(frozen=True, slots=True)
class Call:
    """Metrics that one call gives.

    ways    functions that give them, the first that the driver knows counts: old drivers lack the new names, and the
            old names are going to vanish
    what    what it tells, for words about a missing permission
    mig     whether it is worth asking a MIG instance, too
    """

    metrics: tuple[str, ...]
    ways: tuple[Way, ...]
    every_ns: int
    what: str
    mig: bool = False


def _utilization(gpu: Handle) -> Sequence[float]:
    found = pynvml.nvmlDeviceGetUtilizationRates(gpu)
    return found.gpu, found.memory


def _memory(gpu: Handle) -> Sequence[float]:
    found = pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2)
    total = found.total
    return [value if value <= total else math.inf for value in (found.used, found.free, found.reserved)]


def _old_memory(gpu: Handle) -> Sequence[float]:
    # Counts what the driver reserves as used.
    found = pynvml.nvmlDeviceGetMemoryInfo(gpu)
    total = found.total
    return [*(value if value <= total else math.inf for value in (found.used, found.free)), NAN]


def _reasons(mask: int) -> Sequence[float]:
    if mask >> 32:
        return [math.inf] + [NAN] * len(REASONS)
    return [mask, *(1.0 if mask & bit else 0.0 for bit in REASONS.values())]


def _width(gpu: Handle) -> Sequence[float]:
    width = pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)
    return width, pynvml.nvmlDeviceGetMaxPcieLinkWidth(gpu) - width


def _ecc(kind: int, counter: int) -> Way:
    return lambda gpu: (pynvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter),)


def _performance(gpu: Handle) -> Sequence[float]:
    state = pynvml.nvmlDeviceGetPerformanceState(gpu)
    return (NAN if state == pynvml.NVML_PSTATE_UNKNOWN else state,)


def _remapped(gpu: Handle) -> Sequence[float]:
    corrected, uncorrected, pending, failed = pynvml.nvmlDeviceGetRemappedRows(gpu)
    return corrected + uncorrected, pending, failed


CALLS: Final = (
    Call(("gpu.util", "gpu.mem_util"), (_utilization,), FAST, "utilisation", mig=True),
    Call(("gpu.mem_used", "gpu.mem_free", "gpu.mem_reserved"), (_memory, _old_memory), FAST, "memory", mig=True),
    Call(("gpu.power_avg",), (lambda gpu: (pynvml.nvmlDeviceGetPowerUsage(gpu),),), FAST, "power"),
    Call(("gpu.energy",), (lambda gpu: (pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu),),), FAST, "energy"),
    Call(
        ("gpu.temp",),
        (
            lambda gpu: (pynvml.nvmlDeviceGetTemperatureV(gpu, pynvml.NVML_TEMPERATURE_GPU),),
            lambda gpu: (pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),),
        ),
        FAST,
        "temperature",
    ),
    Call(("gpu.clock_sm",), (lambda gpu: (pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),),), FAST, "clocks"),
    Call(
        ("gpu.clock_mem",), (lambda gpu: (pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM),),), FAST, "clocks"
    ),
    Call(("gpu.pstate",), (_performance,), FAST, "performance state"),
    Call(
        ("gpu.clock_reasons", *REASONS),
        (
            lambda gpu: _reasons(pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu)),
            lambda gpu: _reasons(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
        ),
        FAST,
        "reasons of low clocks",
    ),
    Call(("gpu.bar1_used",), (lambda gpu: (pynvml.nvmlDeviceGetBAR1MemoryInfo(gpu).bar1Used,),), MEDIUM, "BAR1", True),
    Call(("gpu.temp_margin",), (lambda gpu: (pynvml.nvmlDeviceGetMarginTemperature(gpu),),), MEDIUM, "temperature"),
    Call(("gpu.fan",), (lambda gpu: (pynvml.nvmlDeviceGetFanSpeed(gpu),),), MEDIUM, "fan"),
    Call(
        ("gpu.encoder_util",), (lambda gpu: (pynvml.nvmlDeviceGetEncoderUtilization(gpu)[0],),), MEDIUM, "utilisation"
    ),
    Call(
        ("gpu.decoder_util",), (lambda gpu: (pynvml.nvmlDeviceGetDecoderUtilization(gpu)[0],),), MEDIUM, "utilisation"
    ),
    Call(("gpu.pcie_gen",), (lambda gpu: (pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),),), MEDIUM, "PCIe"),
    Call(
        ("gpu.pcie_width", "gpu.pcie_width_lost"),
        (_width, lambda gpu: (pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu), NAN)),
        MEDIUM,
        "PCIe",
    ),
    Call(("gpu.pcie_replay",), (lambda gpu: (pynvml.nvmlDeviceGetPcieReplayCounter(gpu),),), MEDIUM, "PCIe"),
    Call(
        ("gpu.ecc_corrected",),
        (_ecc(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC),),
        MEDIUM,
        "ECC errors",
        mig=True,
    ),
    Call(
        ("gpu.ecc_uncorrected",),
        (_ecc(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),),
        MEDIUM,
        "ECC errors",
        mig=True,
    ),
    Call(
        ("gpu.ecc_uncorrected_aggregate",),
        (_ecc(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC),),
        SLOW,
        "ECC errors",
    ),
    Call(("gpu.power_limit",), (lambda gpu: (pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu),),), SLOW, "power limit"),
    Call(
        ("gpu.clock_sm_max",), (lambda gpu: (pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM),),), SLOW,
        "clocks",
    ),
    Call(("gpu.remapped_rows", "gpu.remap_pending", "gpu.remap_failed"), (_remapped,), SLOW, "remapped rows"),
    Call(
        ("gpu.retired_pages_pending",),
        (lambda gpu: (pynvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu),),),
        SLOW,
        "retired pages",
    ),
)  # fmt: skip


def _address(gpu: Handle) -> int:
    return ctypes.cast(gpu, ctypes.c_void_p).value or 0


def _text(found: bytes | str) -> str:
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


def _named(function: Callable[[Handle], bytes | str], symbol: str, gpu: Handle) -> str:
    """A name, even one that is no UTF-8, which the binding refuses to give."""
    try:
        return _text(function(gpu))
    except UnicodeDecodeError:
        buffer = ctypes.create_string_buffer(128)
        if failed := pynvml._nvmlGetFunctionPointer(symbol)(gpu, buffer, ctypes.c_uint(len(buffer))):
            raise pynvml.NVMLError(failed) from None
        return _text(buffer.value)
