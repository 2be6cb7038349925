"""One GPU through the real binding, in this process: what is asked, how often, and what is believed."""

from __future__ import annotations

import ctypes
import math
from array import array
from pathlib import Path

import pytest

from producers.gpu import nvml
from producers.gpu.child import Child
from producers.gpu.device import Device
from producers.gpu.fields import SECOND_NS
from producers.gpu.part import Gone
from producers.gpu.wire import HELLO, LOST, VALUES, XID, Frames, Hello, Orders, heard
from tests.nvml import profiles
from tests.nvml.fake import FakeNvml
from tests.nvml.profiles import GIB
from tests.unit.producers.readings import Values

TICK_NS = SECOND_NS // 10


class Bench:
    """The first GPU of a machine, and a clock that a test moves."""

    def __init__(self, machine: FakeNvml, index: int = 0) -> None:
        self.nvml = machine
        self.now_ns = 1000 * SECOND_NS
        nvml.start(str(machine.path))
        self.device = Device(nvml.handle(index), f"gpu{index}", self.now_ns)
        self.values = array("d", [math.nan]) * self.device.place(0)
        self._calls = ctypes.CDLL(str(machine.path)).fake_calls
        self._calls.restype = ctypes.c_ulong

    def read(self, ticks: int = 1) -> Values:
        """Values after so many cycles of 100 ms."""
        for _ in range(ticks):
            self.device.read(self.now_ns, self.values)
            self.now_ns += TICK_NS
        return dict(zip(self.device.channels, self.values.tolist(), strict=True))

    def calls(self, function: str, target: str = "gpu0") -> int:
        """How often the library was asked."""
        return int(self._calls(target.encode(), function.encode()))


@pytest.fixture
def h100(tmp_path: Path) -> Bench:
    """One H100."""
    return Bench(profiles.h100(tmp_path / "nvml", 1))


def test_what_is_not_supported_is_asked_once(h100: Bench) -> None:
    before = h100.calls("nvmlDeviceGetFanSpeed")
    found = h100.read(100)
    assert before == h100.calls("nvmlDeviceGetFanSpeed") == 1
    assert ("gpu.fan", "gpu0") not in found


def test_slow_calls_are_slow(h100: Bench) -> None:
    functions = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetEnforcedPowerLimit")
    before = [h100.calls(function) for function in functions]
    h100.read(100)
    after = [h100.calls(function) for function in functions]
    assert [late - early for late, early in zip(after, before, strict=True)] == [100, 10, 2]
    # All fields of a cycle in one call, and once a second another one with those of the links.
    batches = h100.calls("nvmlDeviceGetFieldValues")
    h100.read(100)
    assert h100.calls("nvmlDeviceGetFieldValues") - batches == 100 + 10


def test_states_hold_and_counts_do_not(h100: Bench) -> None:
    found = h100.read()
    assert found["gpu.power_limit", "gpu0"] == 700_000
    assert found["gpu.ecc_corrected", "gpu0"] == 11
    found = h100.read()
    assert found["gpu.power_limit", "gpu0"] == 700_000
    assert found["gpu.nvlink_state", "gpu0/link4"] == 1
    assert math.isnan(found["gpu.ecc_corrected", "gpu0"])
    assert math.isnan(found["gpu.nvlink_tx", "gpu0/link4"])
    found = h100.read(9)
    assert found["gpu.ecc_corrected", "gpu0"] == 11
    assert found["gpu.nvlink_tx", "gpu0/link4"] == 1_000_004


def test_a_state_does_not_outlive_a_failure(h100: Bench) -> None:
    h100.read()
    h100.nvml.fail("gpu0", "nvmlDeviceGetEnforcedPowerLimit", 17)
    h100.nvml.write()
    assert math.isnan(h100.read(51)["gpu.power_limit", "gpu0"])
    h100.nvml.heal("gpu0", "nvmlDeviceGetEnforcedPowerLimit")
    h100.nvml.write()
    assert h100.read(51)["gpu.power_limit", "gpu0"] == 700_000


def test_a_late_reading_does_not_make_more_of_them(h100: Bench) -> None:
    h100.read()
    before = h100.calls("nvmlDeviceGetEnforcedPowerLimit")
    h100.now_ns += 3600 * SECOND_NS
    h100.read(10)
    assert h100.calls("nvmlDeviceGetEnforcedPowerLimit") - before == 1


def test_performance_monitors_are_not_hurried(h100: Bench) -> None:
    # The clock of this test runs fast.
    h100.nvml.answer("lib", "gpm_ms", 0)
    h100.nvml.write()
    before = h100.calls("nvmlGpmSampleGet")
    h100.read(100)
    assert h100.calls("nvmlGpmSampleGet") - before == 49


def test_a_call_that_worked_may_be_refused_now_and_then(h100: Bench) -> None:
    h100.read()
    for _ in range(4):
        h100.nvml.fail("gpu0", "nvmlDeviceGetTemperature", 2)
        h100.nvml.write()
        assert math.isnan(h100.read(2)["gpu.temp", "gpu0"])
        h100.nvml.heal("gpu0", "nvmlDeviceGetTemperature")
        h100.nvml.write()
        assert h100.read()["gpu.temp", "gpu0"] == 60
    h100.nvml.fail("gpu0", "nvmlDeviceGetTemperature", 3)
    h100.nvml.write()
    h100.read(3)
    before = h100.calls("nvmlDeviceGetTemperature")
    h100.read(20)
    assert h100.calls("nvmlDeviceGetTemperature") == before


@pytest.mark.parametrize(
    ("function", "answer", "metrics"),
    [
        ("nvmlDeviceGetUtilizationRates", (2619, 40), ("gpu.util",)),
        ("nvmlDeviceGetUtilizationRates", (4294967295, 808334905), ("gpu.util", "gpu.mem_util")),
        ("nvmlDeviceGetPowerUsage", (3_700_000,), ("gpu.power_avg",)),
        ("nvmlDeviceGetPowerUsage", (1_400_001,), ("gpu.power_avg",)),
        ("nvmlDeviceGetTemperature", (-51,), ("gpu.temp",)),
        ("nvmlDeviceGetTemperature", (255,), ("gpu.temp",)),
        ("nvmlDeviceGetMemoryInfo", (80 * GIB, 0, 9 * GIB, 2**64 - 4096), ("gpu.mem_used",)),
        ("nvmlDeviceGetClockInfo", (0, 4294967295, 2619), ("gpu.clock_sm",)),
        ("nvmlDeviceGetCurrentClocksEventReasons", (2**63,), ("gpu.clock_reasons",)),
        ("nvmlDeviceGetTotalEnergyConsumption", (2**63 + 2**12,), ("gpu.energy",)),
        ("nvmlDeviceGetPerformanceState", (16,), ("gpu.pstate",)),
    ],
)
def test_garbage_is_absent_and_counted(
    h100: Bench, function: str, answer: tuple[int, ...], metrics: tuple[str, ...]
) -> None:
    good = h100.read()
    assert good["gpu.implausible", "gpu0"] == 0
    h100.nvml.answer("gpu0", function, *answer)
    h100.nvml.write()
    found = h100.read()
    assert all(math.isnan(found[metric, "gpu0"]) for metric in metrics)
    assert found["gpu.implausible", "gpu0"] == len(metrics)
    others = [key for key in good if key[0] not in metrics and not key[0].startswith("gpu.throttled.")]
    assert others
    fast = ("gpu.util", "gpu.power_avg", "gpu.temp", "gpu.clock_mem", "gpu.energy", "gpu.power_instant")
    assert all(not math.isnan(found[key]) for key in others if key[0] in fast)


def test_throttling_is_unknown_with_its_mask(h100: Bench) -> None:
    h100.nvml.answer("gpu0", "nvmlDeviceGetCurrentClocksEventReasons", 0xA1)
    h100.nvml.write()
    found = h100.read()
    flags = {metric.rpartition(".")[2]: value for (metric, _), value in found.items() if "throttled" in metric}
    assert {name for name, value in flags.items() if value} == {"idle", "sw_thermal", "hw_power_brake"}
    h100.nvml.answer("gpu0", "nvmlDeviceGetCurrentClocksEventReasons", 0x7FFFFFFFFFFFFFF0)
    h100.nvml.write()
    assert all(math.isnan(value) for (metric, _), value in h100.read().items() if "throttled" in metric)


def test_unknown_performance_state_is_no_garbage(h100: Bench) -> None:
    h100.nvml.answer("gpu0", "nvmlDeviceGetPerformanceState", 32)
    h100.nvml.write()
    found = h100.read()
    assert math.isnan(found["gpu.pstate", "gpu0"])
    assert found["gpu.implausible", "gpu0"] == 0


def test_single_fields_fail(h100: Bench) -> None:
    h100.nvml.field("gpu0", 186, 650_000, kind=1, error=999)
    h100.nvml.field("gpu0", 197, 9223372036854775794)
    h100.nvml.write()
    found = h100.read()
    assert math.isnan(found["gpu.power_instant", "gpu0"])
    assert math.isnan(found["gpu.pcie_tx_bytes", "gpu0"])
    assert found["gpu.pcie_rx_bytes", "gpu0"] == 1980
    assert found["gpu.implausible", "gpu0"] == 1


def test_a_field_may_say_that_the_gpu_is_lost(h100: Bench) -> None:
    h100.read()
    h100.nvml.field("gpu0", 186, 0, kind=1, error=15)
    h100.nvml.write()
    with pytest.raises(Gone):
        h100.read()


def test_links_of_blackwell(tmp_path: Path) -> None:
    machine = profiles.h100(tmp_path / "nvml", 1)
    for link in range(profiles.LINKS):
        for number in (161, 162, 163):
            machine.field("gpu0", number, 0, scope=link, error=3)
        machine.field("gpu0", 215, 40 + link, scope=link)
    machine.write()
    found = Bench(machine).read()
    assert [found["gpu.nvlink_link_recovery_events", f"gpu0/link{link}"] for link in (0, 17)] == [40, 57]
    assert not {metric for metric, _ in found} & {"gpu.nvlink_replay", "gpu.nvlink_recovery", "gpu.nvlink_crc_flit"}


def test_one_link_that_is_not_there(tmp_path: Path) -> None:
    machine = profiles.h100(tmp_path / "nvml", 1)
    for number in (138, 139, 165, 219):
        machine.field("gpu0", number, 0, scope=5, error=3)
    machine.write()
    found = Bench(machine).read()
    assert ("gpu.nvlink_tx", "gpu0/link5") not in found
    assert found["gpu.nvlink_tx", "gpu0/link6"] == 1_000_006


def test_old_driver_refuses_a_whole_batch(tmp_path: Path) -> None:
    bench = Bench(profiles.v100(tmp_path / "nvml", 1, old=True))
    found = bench.read()
    assert found["gpu.throttle_ns.power_cap", "gpu0"] == 74_000
    assert found["gpu.nvlink_replay", "gpu0"] == 3
    assert found["gpu.nvlink_state", "gpu0/link4"] == 0
    # What this driver does not know is asked no more: each batch is one call that succeeds.
    before = bench.calls("nvmlDeviceGetFieldValues")
    bench.read(10)
    assert bench.calls("nvmlDeviceGetFieldValues") - before == 10 + 1


def test_a_child_of_no_gpu_says_so(tmp_path: Path) -> None:
    machine = profiles.h100(tmp_path / "nvml", 1)
    machine.answer("lib", "nvmlDeviceGetCount_v2", 0)
    machine.write()
    said: list[bytes] = []
    child = Child(Orders(str(machine.path), {}, (), 0), said.append)
    assert child.start()
    child.cycle()
    (hello, values) = Frames().feed(b"".join(said))
    assert heard(*hello) == Hello((), (), (), ())
    assert values[0] == VALUES
    assert len(values[1]) == 8


def test_a_lost_gpu_is_not_looked_up_again(tmp_path: Path) -> None:
    machine = profiles.h100(tmp_path / "nvml", 2)
    now_ns = [SECOND_NS]
    said: list[bytes] = []
    child = Child(Orders(str(machine.path), {}, (), 0), said.append, lambda: now_ns[0])
    assert child.start()
    child.cycle()
    machine.fail("gpu1", "*", 15)
    machine.write()
    child.cycle()
    machine.heal("gpu1", "*")
    # A change of MIG instances makes it look for all GPUs again.
    machine.answer("gpu0", "nvmlDeviceGetMigMode", 1, 1)
    machine.answer("gpu0/mig0", "nvmlDeviceGetUUID", "MIG-0")
    machine.write()
    now_ns[0] += 11 * SECOND_NS
    child.cycle()
    frames = list(Frames().feed(b"".join(said)))
    assert [kind for kind, _ in frames if kind != XID] == [HELLO, VALUES, LOST, VALUES, HELLO, VALUES]
    first, second = (heard(*frame) for frame in frames if frame[0] == HELLO)
    assert isinstance(first, Hello)
    assert isinstance(second, Hello)
    assert [gpu.name for gpu in first.gpus] == ["gpu0", "gpu1"]
    assert [gpu.name for gpu in second.gpus] == ["gpu0"]
    assert second.failed[0][0] == "gpu1"


@pytest.mark.parametrize("error", [2, 3, 4, 13, 17, 999])
@pytest.mark.parametrize("function", ["nvmlDeviceGetFieldValues", "nvmlGpmSampleGet", "nvmlDeviceGetMigMode"])
def test_a_gpu_is_found_whatever_is_refused_at_first(tmp_path: Path, function: str, error: int) -> None:
    machine = profiles.h100(tmp_path / "nvml", 1)
    machine.fail("gpu0", function, error)
    machine.write()
    found = Bench(machine).read()
    assert found["gpu.temp", "gpu0"] == 60
    assert found["gpu.power_avg", "gpu0"] == 600_000


def test_a_binding_that_stumbles_over_one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = profiles.h100(tmp_path / "nvml", 2)
    real = nvml.uuid

    def stumble(gpu: nvml.Handle) -> str:
        found = real(gpu)
        if found == profiles.uuid(0):
            raise ValueError("no such thing")
        return found

    monkeypatch.setattr(nvml, "uuid", stumble)
    said: list[bytes] = []
    child = Child(Orders(str(machine.path), {}, (), 0), said.append)
    assert child.start()
    (hello,) = (heard(*frame) for frame in Frames().feed(said[0]))
    assert isinstance(hello, Hello)
    assert [gpu.name for gpu in hello.gpus] == ["gpu1"]
    assert hello.failed == (("", "no such thing"),)
