"""Machines with GPUs: what each kind answers. Values differ by GPU, so that a mix-up shows."""

from __future__ import annotations

from pathlib import Path

from tests.nvml.fake import FakeNvml

GIB = 1 << 30
LINKS = 18
FEW_LINKS = 6


def address(index: int) -> str:
    """PCI address of a GPU, as sysfs writes it."""
    return f"0000:{0x19 + 0x10 * index:02x}:00.0"


def uuid(index: int) -> str:
    """UUID of a GPU."""
    return f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd"


def _common(nvml: FakeNvml, count: int, model: str) -> None:
    nvml.answer("lib", "nvmlDeviceGetCount_v2", count)
    nvml.answer("lib", "nvmlSystemGetDriverVersion", "570.86.15")
    for index in range(count):
        gpu = f"gpu{index}"
        nvml.plug(address(index))
        nvml.answer(gpu, "nvmlDeviceGetUUID", uuid(index))
        nvml.answer(gpu, "nvmlDeviceGetName", model)
        nvml.answer(gpu, "nvmlDeviceGetPciInfo_v3", f"0000{address(index).upper()}")
        nvml.answer(gpu, "nvmlDeviceGetSupportedEventTypes", 8)
        nvml.answer(gpu, "nvmlDeviceGetUtilizationRates", 90 + index, 40 + index)
        nvml.answer(gpu, "nvmlDeviceGetMemoryInfo", 80 * GIB, GIB // 2, 9 * GIB, (60 + index) * GIB)
        nvml.answer(gpu, "nvmlDeviceGetBAR1MemoryInfo", 128 * GIB, 127 * GIB, (1 + index) * GIB)
        nvml.answer(gpu, "nvmlDeviceGetPowerUsage", 600_000 + index)
        nvml.answer(gpu, "nvmlDeviceGetEnforcedPowerLimit", 700_000)
        nvml.answer(gpu, "nvmlDeviceGetTotalEnergyConsumption", 5_000_000_000_000 + index)
        nvml.answer(gpu, "nvmlDeviceGetTemperature", 60 + index)
        nvml.answer(gpu, "nvmlDeviceGetClockInfo", 1900, 1980, 2619, 1500)
        nvml.answer(gpu, "nvmlDeviceGetMaxClockInfo", 1980, 1981, 2619, 1500)
        nvml.answer(gpu, "nvmlDeviceGetPerformanceState", 0)
        nvml.answer(gpu, "nvmlDeviceGetCurrentClocksEventReasons", 0x44)
        nvml.answer(gpu, "nvmlDeviceGetCurrPcieLinkGeneration", 5)
        nvml.answer(gpu, "nvmlDeviceGetCurrPcieLinkWidth", 8 if index == 1 else 16)
        nvml.answer(gpu, "nvmlDeviceGetMaxPcieLinkWidth", 16)
        nvml.answer(gpu, "nvmlDeviceGetPcieReplayCounter", 3 + index)
        nvml.answer(gpu, "nvmlDeviceGetTotalEccErrors", 11, 0, 100, 2 + index)
        nvml.answer(gpu, "nvmlDeviceGetEncoderUtilization", 7, 167000)
        nvml.answer(gpu, "nvmlDeviceGetDecoderUtilization", 8, 167000)


def h100(directory: Path, count: int = 8) -> FakeNvml:
    """HGX H100: all metrics but a fan and retired pages, which such a board does not have."""
    nvml = FakeNvml(directory)
    _common(nvml, count, "NVIDIA H100 80GB HBM3")
    for index in range(count):
        gpu = f"gpu{index}"
        nvml.answer(gpu, "nvmlDeviceGetMarginTemperature", 27 - index)
        nvml.answer(gpu, "nvmlDeviceGetRemappedRows", 1, index, 0, 0)
        nvml.answer(gpu, "nvmlDeviceGetMigMode", 0, 0)
        nvml.answer(gpu, "nvmlDeviceGetMaxMigDeviceCount", 7)
        nvml.answer(gpu, "nvmlGpmQueryDeviceSupport", 1)
        nvml.field(gpu, 186, 650_000 + index, kind=1)
        nvml.field(gpu, 82, 70 + index, kind=1)
        for number in (74, 77, 79, 269, 270, 271):
            nvml.field(gpu, number, 1000 * number + index)
        for number in (197, 198, 169, 173, 180):
            nvml.field(gpu, number, 10 * number + index)
        nvml.field(gpu, 230, 0, kind=1)
        nvml.field(gpu, 45, 5 + index)
        nvml.field(gpu, 91, LINKS, kind=1)
        for link in range(LINKS):
            # At each link: replays, recoveries and CRC errors add up to those of the GPU.
            for number, value in ((161, 2), (162, 1), (163, 3)):
                nvml.field(gpu, number, value, scope=link)
            nvml.field(gpu, 138, 1_000_000 * (index + 1) + link, scope=link)
            nvml.field(gpu, 139, 2_000_000 * (index + 1) + link, scope=link)
            nvml.field(gpu, 165, int(not (index == 2 and link == 3)), scope=link, kind=1)
            nvml.field(gpu, 219, link, scope=link)
        for number in (2, 3, 5, 10, 12, 20, 21, 60, 61):
            nvml.gpm(gpu, number, number + index / 8)
    nvml.write()
    return nvml


def a100_mig(directory: Path) -> FakeNvml:
    """Two A100: MIG is on at the second, with instances 0 and 2. There the utilisation of the whole is not known."""
    nvml = FakeNvml(directory)
    _common(nvml, 2, "NVIDIA A100-SXM4-80GB")
    for index in range(2):
        nvml.answer(f"gpu{index}", "nvmlDeviceGetMigMode", index, index)
        nvml.answer(f"gpu{index}", "nvmlDeviceGetMaxMigDeviceCount", 7)
        nvml.answer(f"gpu{index}", "nvmlDeviceGetRemappedRows", 1, 2, 1, 0)
    for function in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetRemappedRows"):
        nvml.unsupport("gpu1", function)
    for instance in (0, 2):
        add_instance(nvml, instance)
    nvml.write()
    return nvml


def add_instance(nvml: FakeNvml, instance: int) -> None:
    """A MIG instance of the second GPU."""
    mig = f"gpu1/mig{instance}"
    nvml.answer(mig, "nvmlDeviceGetUUID", f"MIG-{instance}")
    nvml.answer(mig, "nvmlDeviceGetGpuInstanceId", 3 + instance)
    nvml.answer(mig, "nvmlDeviceGetMemoryInfo", 10 * GIB, 0, 7 * GIB, (2 + instance) * GIB)
    nvml.answer(mig, "nvmlDeviceGetTotalEccErrors", instance, 0, 0, 0)


def v100(directory: Path, count: int = 4, *, old: bool = False) -> FakeNvml:
    """V100: NVLink totals, retired pages, no fields of newer boards; with `old` a driver of its time."""
    nvml = FakeNvml(directory, old=old)
    _common(nvml, count, "Tesla V100-SXM2-32GB")
    for index in range(count):
        gpu = f"gpu{index}"
        nvml.answer(gpu, "nvmlDeviceGetRetiredPagesPendingStatus", int(index == 1))
        nvml.answer(gpu, "nvmlDeviceGetNvLinkState", FEW_LINKS, 1, 1, 1, 1, 0, 1)
        for number, value in ((74, 74_000), (77, 77_000), (79, 79_000), (38, 1), (45, 2), (52, 3), (59, 4)):
            nvml.field(gpu, number, value + index)
        nvml.field(gpu, 82, 50 + index, kind=1)
    nvml.write()
    return nvml
