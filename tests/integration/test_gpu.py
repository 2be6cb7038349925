"""GPUs through the real process and NVIDIA's real binding; only the library below it is a fake."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from producers.gpu.fields import SECOND_NS
from producers.gpu.patience import PATIENCE, Patience
from schemas.catalogue import catalogue
from tests.nvml import profiles
from tests.nvml.driven import Driven, driven
from tests.nvml.profiles import GIB, address, uuid
from tests.unit.producers.readings import Values

NAN = float("nan")
# What an H100 does not have, or what tells of other generations.
NOT_ON_H100 = {
    *("gpu.fan", "gpu.retired_pages_pending", "gpu.nvlink_link_recovery_events"),
    *("gpu.stale", "gpu.missing"),  # of the host
}
PROMPT = replace(
    PATIENCE,
    **dict.fromkeys(("restart", "longest_restart", "look"), SECOND_NS // 20),
    **dict.fromkeys(("again", "longest_again", "late", "hung"), SECOND_NS // 4),
    starting=20 * SECOND_NS,
)


def has(metric: str, instance: str) -> Any:
    """Whether values hold a number for a channel."""
    return lambda found: not math.isnan(found.get((metric, instance), NAN))


def collect(source: Driven, rounds: int = 3) -> Values:
    """Values of several readings, the last number of each channel."""
    total: Values = {}
    for _ in range(rounds):
        found = source.until(lambda found: True, "values")
        total |= {key: value for key, value in found.items() if not math.isnan(value) or key not in total}
        time.sleep(0.25)
    return total


def test_every_metric_of_eight_h100(tmp_path: Path) -> None:
    with driven(profiles.h100(tmp_path / "nvml")) as source:
        found = collect(source)
        assert source.kinds() == []
        assert source.notes == ()
    metrics = {name: metric for name, metric in catalogue().items() if metric.subsystem == "gpu"}
    for index in range(8):
        gpu = f"gpu{index}"
        expected = {
            "gpu.util": 90 + index,
            "gpu.mem_util": 40 + index,
            "gpu.encoder_util": 7,
            "gpu.decoder_util": 8,
            "gpu.mem_used": (60 + index) * GIB,
            "gpu.mem_free": 9 * GIB,
            "gpu.mem_reserved": GIB // 2,
            "gpu.bar1_used": (1 + index) * GIB,
            "gpu.power_avg": 600_000 + index,
            "gpu.power_instant": 650_000 + index,
            "gpu.power_limit": 700_000,
            "gpu.energy": 5_000_000_000_000 + index,
            "gpu.temp": 60 + index,
            "gpu.temp_margin": 27 - index,
            "gpu.mem_temp": 70 + index,
            "gpu.clock_sm": 1980,
            "gpu.clock_mem": 2619,
            "gpu.clock_sm_max": 1981,
            "gpu.pstate": 0,
            "gpu.clock_reasons": 0x44,
            **{f"gpu.throttled.{name}": 0 for name in ("idle", "app_clocks", "hw_slowdown", "sync_boost")},
            "gpu.throttled.sw_thermal": 0,
            "gpu.throttled.hw_power_brake": 0,
            "gpu.throttled.sw_power_cap": 1,
            "gpu.throttled.hw_thermal": 1,
            "gpu.pcie_gen": 5,
            "gpu.pcie_width": 8 if index == 1 else 16,
            "gpu.pcie_width_lost": 8 if index == 1 else 0,
            "gpu.pcie_replay": 3 + index,
            "gpu.pcie_tx_bytes": 1970 + index,
            "gpu.pcie_rx_bytes": 1980 + index,
            "gpu.pcie_l0_recovery": 1690 + index,
            "gpu.pcie_correctable": 1730 + index,
            "gpu.pcie_fatal": 1800 + index,
            "gpu.ecc_corrected": 11,
            "gpu.ecc_uncorrected": 0,
            "gpu.ecc_uncorrected_aggregate": 2 + index,
            "gpu.remapped_rows": 1 + index,
            "gpu.remap_pending": 0,
            "gpu.remap_failed": 0,
            "gpu.recovery_action": 0,
            "gpu.throttle_ns.power_cap": 74_000 + index,
            "gpu.throttle_ns.board_limit": 77_000 + index,
            "gpu.throttle_ns.reliability": 79_000 + index,
            "gpu.throttle_ns.sw_thermal": 269_000 + index,
            "gpu.throttle_ns.hw_thermal": 270_000 + index,
            "gpu.throttle_ns.power_brake": 271_000 + index,
            # This board counts these at each of 18 links.
            "gpu.nvlink_replay": 2 * 18,
            "gpu.nvlink_recovery": 18,
            "gpu.nvlink_crc_flit": 3 * 18,
            "gpu.nvlink_crc_data": 5 + index,
            "gpu.gpm.sm_util": 2 + index / 8,
            "gpu.gpm.sm_occupancy": 3 + index / 8,
            "gpu.gpm.tensor_util": 5 + index / 8,
            "gpu.gpm.dram_bw_util": 10 + index / 8,
            "gpu.gpm.fp32_util": 12 + index / 8,
            "gpu.gpm.pcie_tx": 20 + index / 8,
            "gpu.gpm.pcie_rx": 21 + index / 8,
            "gpu.gpm.nvlink_rx": 60 + index / 8,
            "gpu.gpm.nvlink_tx": 61 + index / 8,
            "gpu.lost": 0,
            "gpu.implausible": 0,
        }
        assert {metric for metric, metric_of in metrics.items() if metric_of.dimension == "gpu"} == {
            *expected,
            *(name for name in NOT_ON_H100 if metrics[name].dimension == "gpu"),
        }
        assert {metric: found.get((metric, gpu)) for metric in expected} == expected
        for link in range(18):
            at = f"{gpu}/link{link}"
            assert found["gpu.nvlink_tx", at] == 1_000_000 * (index + 1) + link
            assert found["gpu.nvlink_rx", at] == 2_000_000 * (index + 1) + link
            assert found["gpu.nvlink_state", at] == (0 if (index, link) == (2, 3) else 1)
            assert found["gpu.nvlink_effective_errors", at] == link
    assert found["gpu.missing", ""] == 0
    assert found["gpu.stale", ""] == 0
    assert NOT_ON_H100.isdisjoint({metric for metric, _ in found} - {"gpu.stale", "gpu.missing"})


def test_mig_instances_are_instances(tmp_path: Path) -> None:
    nvml = profiles.a100_mig(tmp_path / "nvml")
    with driven(nvml) as source:
        found = collect(source)
    assert found["gpu.util", "gpu0"] == 90
    # Of a GPU that is divided, utilisation and remapped rows are not known; power and temperature are.
    assert ("gpu.util", "gpu1") not in found
    assert ("gpu.remapped_rows", "gpu1") not in found
    assert found["gpu.temp", "gpu1"] == 61
    assert found["gpu.mem_used", "gpu1"] == 61 * GIB
    assert found["gpu.mem_used", "gpu1/mig0"] == 2 * GIB
    assert found["gpu.mem_used", "gpu1/mig2"] == 4 * GIB
    assert found["gpu.mem_free", "gpu1/mig2"] == 7 * GIB
    assert found["gpu.ecc_corrected", "gpu1/mig2"] == 2
    assert ("gpu.mem_used", "gpu1/mig1") not in found
    assert ("gpu.power_avg", "gpu1/mig0") not in found
    assert not any(instance.startswith("gpu0/mig") for _, instance in found)


def test_performance_monitors_of_mig_instances(tmp_path: Path) -> None:
    nvml = profiles.a100_mig(tmp_path / "nvml")
    nvml.answer("gpu1", "nvmlGpmQueryDeviceSupport", 1)
    # Instance 2 is called GPU instance 5 by the driver.
    nvml.gpm("gpu1/gi5", 2, 33.5)
    nvml.gpm("gpu1/gi3", 2, 44.5)
    nvml.write()
    with driven(nvml) as source:
        found = source.until(has("gpu.gpm.sm_util", "gpu1/mig2"), "monitors of an instance")
    assert found["gpu.gpm.sm_util", "gpu1/mig2"] == 33.5
    assert found["gpu.gpm.sm_util", "gpu1/mig0"] == 44.5
    assert math.isnan(found["gpu.gpm.tensor_util", "gpu1/mig0"])


def test_old_driver_without_the_new_functions(tmp_path: Path) -> None:
    with driven(profiles.v100(tmp_path / "nvml", old=True)) as source:
        found = collect(source)
    assert found["gpu.temp", "gpu2"] == 62
    assert found["gpu.clock_reasons", "gpu2"] == 0x44
    assert found["gpu.throttled.hw_thermal", "gpu2"] == 1
    # The old call counts what the driver reserves as used, and does not tell how much that is.
    assert found["gpu.mem_used", "gpu2"] == 62 * GIB + GIB // 2
    assert math.isnan(found["gpu.mem_reserved", "gpu2"])
    assert found["gpu.retired_pages_pending", "gpu1"] == 1
    assert found["gpu.nvlink_crc_flit", "gpu1"] == 2
    assert found["gpu.nvlink_replay", "gpu1"] == 4
    assert found["gpu.nvlink_recovery", "gpu1"] == 5
    assert found["gpu.mem_temp", "gpu3"] == 53
    assert [found["gpu.nvlink_state", f"gpu1/link{link}"] for link in range(6)] == [1, 1, 1, 1, 0, 1]
    assert ("gpu.nvlink_state", "gpu1/link6") not in found
    for metric in ("gpu.temp_margin", "gpu.power_instant", "gpu.gpm.sm_util", "gpu.nvlink_tx", "gpu.remapped_rows"):
        assert (metric, "gpu1") not in found


def test_dying_gpu_talks_nonsense_then_is_lost_and_comes_back(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 4)
    with driven(nvml, PROMPT) as source:
        source.until(has("gpu.temp", "gpu2"), "temperature")
        first = source.pid
        nvml.answer("gpu2", "nvmlDeviceGetTemperature", 2619)
        nvml.answer("gpu2", "nvmlDeviceGetUtilizationRates", 127622, 41)
        nvml.write()
        found = source.until(lambda found: found["gpu.mem_util", "gpu2"] == 41, "the nonsense")
        found = source.until(lambda found: True, "whole of it")
        assert math.isnan(found["gpu.temp", "gpu2"])
        assert math.isnan(found["gpu.util", "gpu2"])
        assert found["gpu.implausible", "gpu2"] >= 2
        assert found["gpu.implausible", "gpu1"] == 0
        assert source.kinds() == []

        # Fallen off the bus: no call answers, and the next start of the library does not list it.
        nvml.fail("gpu2", "*", 15)
        nvml.write()
        found = source.until(lambda found: found["gpu.lost", "gpu2"] == 1, "a lost GPU")
        assert math.isnan(found["gpu.power_avg", "gpu2"])
        assert found["gpu.temp", "gpu3"] == 63
        (lost,) = source.seen
        assert (lost.kind, lost.severity, lost.instance) == ("gpu_lost", "critical", "gpu2")
        assert uuid(2) in lost.message
        assert address(2) in lost.message
        nvml.answer("lib", "nvmlDeviceGetCount_v2", 3)
        nvml.answer("lib", "order", 0, 1, 3)
        nvml.write()
        found = source.until(lambda found: found["gpu.missing", ""] == 1, "a missing GPU")
        assert source.pid != first
        # Names stay, whatever number the library gives them now.
        assert found["gpu.temp", "gpu3"] == 63
        assert found["gpu.lost", "gpu2"] == 1
        assert found["gpu.lost", "gpu3"] == 0
        assert ("gpu.temp", "gpu2") not in found
        assert source.kinds() == ["gpu_lost"]
        assert source.host.gpus.instance(address(2)) == "gpu2"
        (problem,) = source.source.problems(time.monotonic_ns(), 5 * SECOND_NS)
        assert (problem.path, problem.kind) == ("gpu2", "failing")

        nvml.heal("gpu2", "*")
        nvml.answer("gpu2", "nvmlDeviceGetTemperature", 55)
        nvml.answer("lib", "nvmlDeviceGetCount_v2", 4)
        nvml.answer("lib", "order", 0, 1, 2, 3)
        nvml.write()
        found = source.until(has("gpu.temp", "gpu2"), "the GPU back")
        assert found["gpu.temp", "gpu2"] == 55
        assert (found["gpu.lost", "gpu2"], found["gpu.missing", ""]) == (0, 0)
        assert source.kinds() == ["gpu_lost", "gpu_back"]


def test_gpu_that_gives_no_handle(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 4)
    nvml.fail("gpu1", "nvmlDeviceGetHandleByIndex_v2", 999)
    nvml.write()
    with driven(nvml) as source:
        found = source.until(has("gpu.temp", "gpu0"), "values")
        assert found["gpu.missing", ""] == 1
        assert {instance for metric, instance in found if metric == "gpu.temp"} == {"gpu0", "gpu2", "gpu3"}
        (lost,) = source.seen
        assert (lost.kind, lost.severity) == ("gpu_lost", "critical")
        assert address(1) in lost.message
        assert "999" in lost.message


def test_gpu_of_which_every_call_fails(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 2)
    with driven(nvml) as source:
        source.until(has("gpu.temp", "gpu1"), "values")
        # One call alone that fails so is no reason to give a GPU up.
        nvml.fail("gpu0", "nvmlDeviceGetTemperature", 999)
        nvml.fail("gpu1", "*", 999)
        nvml.write()
        source.until(lambda found: found["gpu.lost", "gpu1"] == 1, "a lost GPU")
        found = source.until(lambda found: True, "the next values")
        assert math.isnan(found["gpu.temp", "gpu0"])
        assert found["gpu.power_avg", "gpu0"] == 600_000
        assert found["gpu.lost", "gpu0"] == 0
        nvml.heal("gpu0", "nvmlDeviceGetTemperature")
        nvml.write()
        source.until(has("gpu.temp", "gpu0"), "temperature again")


@pytest.mark.parametrize(
    ("number", "kind", "word"),
    [(18, "failing", "different versions"), (4, "failing", "no permission"), (9, "missing", "not loaded")],
)
def test_library_that_does_not_start(tmp_path: Path, number: int, kind: str, word: str) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 2)
    nvml.fail("lib", "nvmlInitWithFlags", number)
    nvml.write()
    with driven(nvml, replace(PROMPT, again=SECOND_NS, longest_again=SECOND_NS)) as source:
        source.wait(lambda: source.source.problems(time.monotonic_ns(), 5 * SECOND_NS), "a problem")
        (problem,) = source.source.problems(time.monotonic_ns(), 5 * SECOND_NS)
        assert problem.kind == kind
        assert word in problem.reason
        assert source.source.idle() == (kind == "missing")
        assert source.source.errors == (0 if kind == "missing" else 1)
        # Nothing else is said, and no child waits for better times.
        assert source.step() is None
        source.wait(lambda: source.source._process is None, "an end of the child")
        assert source.kinds() == []
        nvml.heal("lib", "nvmlInitWithFlags")
        nvml.write()
        assert source.until(has("gpu.temp", "gpu1"), "values")["gpu.temp", "gpu1"] == 61
        assert not source.source.problems(time.monotonic_ns(), 5 * SECOND_NS)


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 1)
    nvml.path.write_bytes(b"no library")
    with driven(nvml) as source:
        source.wait(lambda: source.source.problems(time.monotonic_ns(), 5 * SECOND_NS), "a problem")
        assert source.source.idle()
        (problem,) = source.source.problems(time.monotonic_ns(), 5 * SECOND_NS)
        assert "there is no library" in problem.reason


def test_calls_without_permission_are_told(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 2)
    nvml.fail("gpu1", "nvmlDeviceGetTotalEccErrors", 4)
    nvml.write()
    with driven(nvml) as source:
        found = collect(source)
        assert found["gpu.ecc_corrected", "gpu0"] == 11
        assert ("gpu.ecc_corrected", "gpu1") not in found
        assert source.notes == ("gpu1: no permission for ECC errors",)


def test_xids_become_notices(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 4)
    nvml.fail("gpu1", "nvmlDeviceRegisterEvents", 3)
    nvml.write()
    with driven(nvml) as source:
        source.until(has("gpu.temp", "gpu3"), "values")
        assert source.notes == ("no XIDs from the library for gpu1",)
        nvml.xid("gpu3", 79)
        nvml.xid("gpu0", 13)
        nvml.write()
        source.wait(lambda: len(source.seen) == 2, "two XIDs")
        first, second = source.seen
        assert (first.kind, first.subsystem, first.code, first.instance) == ("xid", "gpu", 79, "gpu3")
        assert (first.severity, first.source) == ("critical", "nvml")
        assert address(3) in first.message
        assert abs(first.time_ns - time.time_ns()) < 60 * SECOND_NS
        assert (second.code, second.instance, second.severity) == (13, "gpu0", "warning")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 2)
    nvml.answer("gpu0", "nvmlDeviceGetName", "NVIDIA \udcf8 L4")
    nvml.write()
    with driven(nvml) as source:
        assert source.until(has("gpu.temp", "gpu0"), "values")["gpu.temp", "gpu0"] == 60


def test_unwanted_gpus_are_not_read(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 4)
    nvml.delay("gpu2", "nvmlDeviceGetTemperature", 600)
    nvml.write()
    with driven(nvml, wanted=lambda dimension, name: name != "gpu2") as source:
        found = source.until(has("gpu.temp", "gpu3"), "values")
        assert not any(instance.startswith("gpu2") for _, instance in found)
        assert found["gpu.missing", ""] == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_crash_is_told_and_mended(tmp_path: Path, how: signal.Signals) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 2)
    with driven(nvml, PROMPT) as source:
        source.until(has("gpu.temp", "gpu1"), "values")
        first = source.pid
        if how == signal.SIGKILL:
            os.kill(first, signal.SIGKILL)
        else:
            nvml.crash("gpu1", "nvmlDeviceGetPowerUsage")
            nvml.write()
        source.wait(lambda: source.seen, "a notice")
        (problem,) = source.source.problems(time.monotonic_ns(), 5 * SECOND_NS)
        assert problem.kind == "failing"
        assert how.name in problem.reason
        nvml.heal("gpu1", "nvmlDeviceGetPowerUsage")
        nvml.write()
        source.wait(lambda: "source_back" in source.kinds(), "a recovery")
        source.until(has("gpu.temp", "gpu1"), "values again")
        assert source.pid != first
        assert source.kinds() == ["source_hung", "source_back"]
        assert how.name in source.seen[0].message


def test_a_hang_is_ended_once_and_another_process_started(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 2)
    patience = replace(PROMPT, kill=SECOND_NS)
    with driven(nvml, patience) as source:
        source.until(has("gpu.temp", "gpu1"), "values")
        first = source.pid
        nvml.delay("gpu0", "nvmlDeviceGetPowerUsage", 600)
        nvml.write()
        found = source.until(lambda found: found["gpu.stale", ""] > 0.9, "a growing age", stale=True)
        # All channels are there, and absent.
        assert math.isnan(found["gpu.temp", "gpu1"])
        source.wait(lambda: not psutil.pid_exists(first), "an end of the process")
        problems = {problem.kind: problem for problem in source.source.problems(time.monotonic_ns(), 5 * SECOND_NS)}
        assert "gpu0" in problems["hung"].reason
        # The others are read again, even while that call still hangs.
        source.until(has("gpu.temp", "gpu1"), "values again")
        assert source.source.problems(time.monotonic_ns(), 5 * SECOND_NS)[0].path == "gpu0"
        # The frame makes notices of hangs that come and go.
        assert source.kinds() == ["gpu_lost"]
        nvml.heal("gpu0", "nvmlDeviceGetPowerUsage")
        nvml.write()
        source.until(has("gpu.temp", "gpu0"), "all values again")
        assert source.kinds() == ["gpu_lost", "gpu_back"]


def test_mig_instances_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = profiles.a100_mig(tmp_path / "nvml")
    with driven(nvml) as source:
        source.until(has("gpu.mem_used", "gpu1/mig0"), "an instance")
        first = source.pid
        profiles.add_instance(nvml, 1)
        nvml.unsupport("gpu1/mig0", "nvmlDeviceGetUUID")
        nvml.write()
        found = source.until(has("gpu.mem_used", "gpu1/mig1"), "another instance")
        assert ("gpu.mem_used", "gpu1/mig0") not in found
        assert found["gpu.mem_used", "gpu1/mig2"] == 4 * GIB
        assert source.pid == first


PARENT = """
import sys, time
from pathlib import Path
from tests.nvml.driven import Driven
from tests.nvml.fake import FakeNvml

class Existing(FakeNvml):
    def __init__(self, directory):
        self.path, self.sys, self.proc = directory / "libnvidia-ml.so.1", directory / "sys", directory / "proc"

source = Driven(Existing(Path(sys.argv[1])))
source.until(lambda found: True, "values")
print(source.pid, flush=True)
while True:
    found = source.step()
    if found and found["gpu.stale", ""] > 0:
        print("hangs", flush=True)
    time.sleep(0.02)
"""


@pytest.mark.parametrize("hangs", [False, True])
def test_the_process_ends_with_its_parent(tmp_path: Path, *, hangs: bool) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 1)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(nvml.directory)], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        if hangs:
            nvml.delay("gpu0", "nvmlDeviceGetPowerUsage", 600)
            nvml.write()
            assert parent.stdout.readline() == "hangs\n"
        assert child.is_running()
        parent.kill()
        parent.wait(10)
        psutil.wait_procs([child], timeout=10)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    finally:
        parent.kill()
        parent.wait(10)
        if parent.stdout is not None:
            parent.stdout.close()


def test_the_process_is_small(tmp_path: Path) -> None:
    with driven(profiles.h100(tmp_path / "nvml")) as source:
        source.until(has("gpu.temp", "gpu7"), "values")
        maps = Path(f"/proc/{source.pid}/maps").read_text()
        assert "numpy" not in maps
        assert "confluent" not in maps
        assert psutil.Process(source.pid).memory_info().rss < 40e6


def test_once_shows_the_gpus(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 2)
    values: dict[tuple[str, str], float] = {}
    # One look takes a second, in which the process may not get going on a busy machine.
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-m", "deploy.cli", "agent", "--once", "--json"],
            env={**os.environ, "REVEAL_AGENT_NVML": str(nvml.path), "REVEAL_AGENT_SYSFS": str(nvml.sys)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        values = {(row["metric"], row["instance"]): row["value"] for row in json.loads(done.stdout)}
        if ("gpu.ecc_corrected", "gpu1") in values:
            break
    assert values["gpu.temp", "gpu1"] == 61
    assert values["gpu.power_limit", "gpu0"] == 700_000
    assert values["gpu.nvlink_state", "gpu0/link17"] == 1
    assert values["gpu.missing", ""] == 0
    # Rates need a second reading, which there is time for.
    assert values["gpu.ecc_corrected", "gpu1"] == values["gpu.nvlink_tx", "gpu0/link0"] == 0


def test_a_machine_without_gpus_says_so_once(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 1)
    nvml.unplug(address(0))
    nvml.path.unlink()
    with driven(nvml) as source:
        assert source.step() is None
        assert source.source.idle()
        assert source.source._process is None
        (problem,) = source.source.problems(time.monotonic_ns(), 5 * SECOND_NS)
        assert problem.kind == "missing"
        assert (source.kinds(), source.source.errors) == ([], 0)


def test_patience_is_in_order() -> None:
    times = Patience()
    assert times.late < times.hung < times.starting < times.kill < times.leave


def test_a_gpu_that_ends_the_process_does_not_hide_the_others(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 3)
    with driven(nvml, replace(PROMPT, again=5 * SECOND_NS, longest_again=5 * SECOND_NS)) as source:
        source.until(has("gpu.temp", "gpu1"), "values")
        nvml.crash("gpu1", "nvmlDeviceGetPowerUsage")
        nvml.write()
        found = source.until(lambda found: found["gpu.lost", "gpu1"] == 1 and has("gpu.temp", "gpu2")(found), "others")
        assert found["gpu.temp", "gpu0"] == 60
        assert ("gpu.temp", "gpu1") not in found
        assert found["gpu.missing", ""] == 0
        lost = [notice for notice in source.seen if notice.kind == "gpu_lost"]
        assert [notice.instance for notice in lost] == ["gpu1"]
        assert "SIGSEGV" in lost[0].message
        nvml.heal("gpu1", "nvmlDeviceGetPowerUsage")
        nvml.write()
        source.until(lambda found: has("gpu.temp", "gpu1")(found) and found["gpu.lost", "gpu1"] == 0, "it again")
        assert "gpu_back" in source.kinds()
