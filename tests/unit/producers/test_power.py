"""Collectors of idle states, throttling, energy, temperatures, fans and cooling."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import pytest

from producers.collector import Collector, ParseError
from producers.collectors.cpuidle import CPUIDLE
from producers.collectors.hwmon import HWMON
from producers.collectors.nvmetemp import NVME_TEMP
from producers.collectors.online import ONLINE
from producers.collectors.powercap import POWERCAP
from producers.collectors.sysfs import distinct
from producers.collectors.thermal import COOLING, THERMAL
from producers.collectors.throttle import THROTTLE
from producers.files import KeptFile
from producers.frame import Frame, Identity
from producers.reading import Host
from tests.unit.producers.readings import parse, rates
from tests.unit.producers.sysfstree import LOOK_S, Watched
from tests.unit.producers.tree import FakeClock

CPU = "sys/devices/system/cpu"
RAPL = "sys/class/powercap"
HWMON_DIR = "sys/class/hwmon"
THERMAL_DIR = "sys/class/thermal"
NAN = math.nan


def topology(cpu: int, package: int, core: int) -> dict[str, str]:
    """Where a CPU is."""
    base = f"{CPU}/cpu{cpu}/topology"
    return {f"{base}/physical_package_id": f"{package}\n", f"{base}/core_id": f"{core}\n"}


def idle(cpu: int, *states: tuple[str, int]) -> dict[str, str]:
    """Idle states of a CPU: name and time, us."""
    files = {}
    for index, (name, time_us) in enumerate(states):
        files[f"{CPU}/cpu{cpu}/cpuidle/state{index}/name"] = f"{name}\n"
        files[f"{CPU}/cpu{cpu}/cpuidle/state{index}/time"] = f"{time_us}\n"
    return files


def refuse(monkeypatch: pytest.MonkeyPatch, broken: dict[str, int]) -> None:
    """Reading a file whose path ends so fails with that number, as a driver would have it."""
    read = KeptFile.read

    def refused(file: KeptFile) -> bytes:
        for end, code in broken.items():
            if file.path.endswith(end):
                raise OSError(code, os.strerror(code))
        return read(file)

    monkeypatch.setattr(KeptFile, "read", refused)


def test_idle_time_leaves_out_the_loop_and_shows_the_deepest_state(tmp_path: Path) -> None:
    host = Watched(CPUIDLE, tmp_path)
    host.write(idle(0, ("POLL", 7), ("C1", 100), ("C1E", 200), ("C6", 3000)))
    # arm64: the first state is a real one. POWER: the loop is called snooze.
    host.write(idle(2, ("WFI", 50), ("cpu-sleep-0", 70)) | idle(10, ("snooze", 9), ("stop0", 20)))
    assert host.read() == {
        ("cpu.cstate.residency", "cpu0"): 3300,
        ("cpu.cstate.residency", "cpu2"): 120,
        ("cpu.cstate.residency", "cpu10"): 20,
        ("cpu.cstate.deepest", "cpu0"): 3000,
        ("cpu.cstate.deepest", "cpu2"): 70,
        ("cpu.cstate.deepest", "cpu10"): 20,
    }


def test_a_long_sleep_is_no_impossible_rate(tmp_path: Path) -> None:
    host = Watched(CPUIDLE, tmp_path)
    host.write(idle(0, ("POLL", 0), ("C6", 1000)))
    host.rates()
    assert host.rates()["cpu.cstate.residency", "cpu0"] == 0
    host.write(idle(0, ("POLL", 0), ("C6", 9_001_000)))
    assert host.rates()["cpu.cstate.residency", "cpu0"] == 9e6
    assert host.keeper.implausible == 0


def test_cpu_that_goes_and_comes_back_with_less_idle_time(tmp_path: Path) -> None:
    host = Watched(CPUIDLE, tmp_path)
    host.write(idle(0, ("POLL", 0), ("C1", 1000)) | idle(1, ("POLL", 0), ("C1", 5000)))
    host.rates()
    for state in (0, 1):
        host.remove(f"{CPU}/cpu1/cpuidle/state{state}/time")
    assert {cpu for _, cpu in host.rates(LOOK_S)} == {"cpu0"}
    host.write(idle(0, ("POLL", 0), ("C1", 1500)) | idle(1, ("POLL", 0), ("C1", 40)))
    back = host.rates(LOOK_S)
    assert back["cpu.cstate.residency", "cpu0"] == pytest.approx(500 / LOOK_S)
    assert math.isnan(back["cpu.cstate.residency", "cpu1"])
    host.write(idle(1, ("POLL", 0), ("C1", 140)))
    assert host.rates()["cpu.cstate.residency", "cpu1"] == 100


def throttled(cpu: int, core: int, package: int, time_ms: int | None = None) -> dict[str, str]:
    """Counts of a CPU; older kernels keep no times."""
    base = f"{CPU}/cpu{cpu}/thermal_throttle"
    files = {f"{base}/core_throttle_count": f"{core}\n", f"{base}/package_throttle_count": f"{package}\n"}
    return files | ({} if time_ms is None else {f"{base}/package_throttle_total_time_ms": f"{time_ms}\n"})


def test_throttling_of_cores_and_packages(tmp_path: Path) -> None:
    host = Watched(THROTTLE, tmp_path)
    for cpu, package in ((0, 0), (1, 0), (8, 1)):
        host.write(topology(cpu, package, cpu))
    # CPU 1 was off line while its package was throttled.
    host.write(throttled(0, 5, 30, 900) | throttled(1, 0, 12, 300) | throttled(8, 1, 2, 4))
    assert host.read() == {
        ("cpu.throttle.core", "cpu0"): 5,
        ("cpu.throttle.core", "cpu1"): 0,
        ("cpu.throttle.core", "cpu8"): 1,
        ("cpu.throttle.package", "package0"): 30,
        ("cpu.throttle.package", "package1"): 2,
        ("cpu.throttle.package_time", "package0"): 900,
        ("cpu.throttle.package_time", "package1"): 4,
    }
    host.rates()
    host.write(throttled(0, 5, 33, 950) | throttled(1, 0, 15, 350))
    found = host.rates()
    assert found["cpu.throttle.package", "package0"] == 3
    assert found["cpu.throttle.package_time", "package0"] == 50
    assert found["cpu.throttle.core", "cpu0"] == 0


def test_package_of_a_cpu_is_unknown(tmp_path: Path) -> None:
    host = Watched(THROTTLE, tmp_path)
    host.write(topology(0, -1, 0) | throttled(0, 1, 2) | throttled(1, 3, 4))
    assert host.read() == {("cpu.throttle.core", "cpu0"): 1, ("cpu.throttle.core", "cpu1"): 3}


def zone(path: str, name: str, energy: int | None, highest: int | None = None) -> dict[str, str]:
    """A powercap zone; without energy, one that only root may read."""
    files = {f"{RAPL}/{path}/name": f"{name}\n"}
    if energy is not None:
        files[f"{RAPL}/{path}/energy_uj"] = f"{energy}\n"
    return files | ({} if highest is None else {f"{RAPL}/{path}/max_energy_range_uj": f"{highest}\n"})


def test_energy_of_packages_and_memory(tmp_path: Path) -> None:
    host = Watched(POWERCAP, tmp_path)
    host.write(zone("intel-rapl:0", "package-1", 100) | zone("intel-rapl:0:0", "core", 1))
    host.write(zone("intel-rapl:0:1", "dram", 20) | zone("intel-rapl:1", "psys", 7))
    host.write(zone("intel-rapl:2", "package-0-die-1", 300) | zone("intel-rapl:2:0", "dram", 40))
    # The same package by another interface, and one that only this one has.
    host.write(zone("intel-rapl-mmio:0", "package-1", 999) | zone("intel-rapl-mmio:1", "package-3", 5))
    assert host.read() == {
        ("power.rapl.package", "package1"): 100,
        ("power.rapl.package", "package0-die1"): 300,
        ("power.rapl.package", "package3"): 5,
        ("power.rapl.dram", "package1"): 20,
        ("power.rapl.dram", "package0-die1"): 40,
    }


def test_energy_comes_round_where_its_own_zone_says(tmp_path: Path) -> None:
    host = Watched(POWERCAP, tmp_path)
    host.write(zone("intel-rapl:0", "package-0", 262_143_000_000, 262_143_328_850))
    host.write(zone("intel-rapl:0:0", "dram", 65_712_000_000, 65_712_999_613))
    host.write(zone("intel-rapl:1", "package-1", 4_000_000_000))
    host.rates()
    host.write(zone("intel-rapl:0", "package-0", 100_000_000) | zone("intel-rapl:0:0", "dram", 10_000))
    host.write(zone("intel-rapl:1", "package-1", 10_000))
    found = host.rates()
    assert found["power.rapl.package", "package0"] == 100_328_850
    assert found["power.rapl.dram", "package0"] == 1_009_613
    # Its range is not known, so what fell was reset.
    assert math.isnan(found["power.rapl.package", "package1"])
    host.write(zone("intel-rapl:1", "package-1", 50_010_000))
    assert host.rates()["power.rapl.package", "package1"] == 50e6


def test_energy_that_only_root_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Watched(POWERCAP, tmp_path)
    host.write(zone("intel-rapl:0", "package-0", 5) | zone("intel-rapl:1", "package-1", 6))
    refuse(monkeypatch, {"intel-rapl:0/energy_uj": errno.EACCES})
    assert host.read() == {("power.rapl.package", "package1"): 6}
    (problem,) = host.problems()
    assert (problem.path, problem.kind) == ("sys/class/powercap/intel-rapl:0/energy_uj", "missing")
    # Root only, so it is not tried again at every reading.
    before = host.source.errors
    host.read()
    assert host.source.errors == before


def test_power_beyond_belief_is_left_out_and_counted(tmp_path: Path) -> None:
    host = Watched(POWERCAP, tmp_path)
    energy, found = 10**9, []
    for watts in (0.0, 6.16, 702.41, 64826.19, 6.51, 6.25):
        energy += round(watts * 1e6)
        host.write(zone("intel-rapl:0", "package-0", energy, 65_532_610_987))
        found.append(host.rates()["power.rapl.package", "package0"] / 1e6)
    assert found == [pytest.approx(watts, nan_ok=True) for watts in (NAN, 6.16, 702.41, NAN, 6.51, 6.25)]
    assert host.keeper.implausible == 1


def test_frame_counts_what_is_beyond_belief(tmp_path: Path) -> None:
    clock = FakeClock()
    host = Watched(POWERCAP, tmp_path)
    host.write(zone("intel-rapl:0", "package-0", 0))
    inline = Collector("powercap", POWERCAP.files, POWERCAP.parser, POWERCAP.metrics, constants=POWERCAP.constants)
    roots = {"proc": str(tmp_path / "proc"), "sys": str(tmp_path / "sys")}
    frame = Frame((inline,), Host(roots, clock.monotonic_ns), 1000, Identity("host-1", "session-1"))
    for tick, energy in enumerate((0, 5_000_000, 10**11)):
        host.write(zone("intel-rapl:0", "package-0", energy))
        clock.pass_ns(10**9)
        frame.sample(tick, tick)
    (record,) = frame.cut(clock.wall_ns(), 3)
    assert record.metrics["power.rapl.package"][:, 0].tolist() == [
        pytest.approx(value, rel=1e-3, nan_ok=True) for value in (NAN, 5e6, NAN)
    ]
    assert frame.errors() == {"powercap": 1}
    frame.close()


def chip(index: int, name: str, sensors: dict[str, tuple[str, str]], place: str = "") -> dict[str, str]:
    """A chip: text and label of each sensor by its file, such as temp1_input."""
    base = f"{HWMON_DIR}/hwmon{index}{place}"
    files = {f"{base}/name": f"{name}\n"} if name else {}
    for file, (text, label) in sensors.items():
        files[f"{base}/{file}"] = f"{text}\n"
        if label:
            files[f"{base}/{file.partition('_')[0]}_label"] = f"{label}\n"
    return files


def test_temperatures_of_intel_packages_and_cores(tmp_path: Path) -> None:
    host = Watched(HWMON, tmp_path)
    # Two threads a core; numbers of cores and of sensors have gaps.
    for cpu, package, core in ((0, 0, 0), (1, 0, 9), (2, 1, 0), (3, 1, 9), (4, 0, 0), (5, 0, 9), (6, 1, 0), (7, 1, 9)):
        host.write(topology(cpu, package, core))
    package1 = {
        "temp1_input": ("52000", "Package id 1"),
        "temp2_input": ("51000", "Core 0"),
        "temp11_input": ("50000", "Core 9"),
    }
    package0 = {"temp1_input": ("42000", "Physical id 0"), "temp2_input": ("41000", "Core 0")}
    host.write(chip(3, "coretemp", package1) | chip(4, "coretemp", package0))
    assert host.read() == {
        ("temp.package", "package1"): 52000,
        ("temp.package", "package0"): 42000,
        ("cpu.temp.core", "cpu2"): 51000,
        ("cpu.temp.core", "cpu3"): 50000,
        ("cpu.temp.core", "cpu0"): 41000,
    }


def test_temperatures_without_labels_or_topology(tmp_path: Path) -> None:
    host = Watched(HWMON, tmp_path)
    host.write(chip(0, "coretemp", {"temp1_input": ("40000", ""), "temp2_input": ("39000", "Core 0")}))
    host.write(chip(1, "", {"temp1_input": ("30000", "")}))
    assert host.read() == {
        ("temp.package", "package0"): 40000,
        ("temp.sensor", "coretemp/Core 0"): 39000,
        ("temp.sensor", "hwmon1/temp1"): 30000,
    }


def test_temperatures_of_amd_packages(tmp_path: Path) -> None:
    host = Watched(HWMON, tmp_path)
    host.write(topology(0, 0, 0) | topology(1, 1, 0))
    # Four chips in two packages: the hottest die is the package's temperature.
    for index, text in enumerate(("41000", "47000", "52000", "50000")):
        host.write(chip(index, "k10temp", {"temp1_input": (text, "Tctl"), "temp3_input": ("30000", "Tccd1")}))
    found = host.read()
    assert found["temp.package", "package0"] == 47000
    assert found["temp.package", "package1"] == 52000
    assert found["temp.sensor", "k10temp#4/Tccd1"] == 30000
    assert ("temp.package", "package2") not in found


@pytest.mark.parametrize("name", ["k10temp", "zenpower"])
def test_truest_temperature_of_an_amd_package(tmp_path: Path, name: str) -> None:
    host = Watched(HWMON, tmp_path)
    host.write(chip(0, name, {"temp1_input": ("71000", "Tctl"), "temp2_input": ("44000", "Tdie")}))
    assert host.read()["temp.package", "package0"] == 44000
    host = Watched(HWMON, tmp_path / "old")
    host.write(chip(0, name, {"temp1_input": ("38125", "")}))
    assert host.read() == {("temp.package", "package0"): 38125}


def test_fans_power_and_other_chips_by_name_and_label(tmp_path: Path) -> None:
    host = Watched(HWMON, tmp_path)
    board = {
        "fan1_input": ("4200", ""),
        "fan3_input": ("0", "Rear"),
        "temp1_input": ("-3000", "SYSTIN"),
        "in0_input": ("990", ""),
        "fan3_min": ("100", ""),
    }
    host.write(chip(0, "nct6775", board))
    host.write(chip(1, "jc42", {"temp1_input": ("36500", "")}) | chip(2, "jc42", {"temp1_input": ("37250", "")}))
    host.write(chip(3, "power_meter", {"power1_average": ("245000000", ""), "power1_input": ("999", "")}))
    host.write(chip(10, "ucd9000", {"power2_input": ("12000000", "Module Power Socket 0")}))
    # What ACPI says comes with the thermal zones, what a disk says with the disks.
    host.write(chip(11, "acpitz", {"temp1_input": ("20000", "")}) | chip(12, "nvme", {"temp1_input": ("30000", "")}))
    assert host.read() == {
        ("fan.rpm", "nct6775/fan1"): 4200,
        ("fan.rpm", "nct6775/Rear"): 0,
        ("temp.sensor", "nct6775/SYSTIN"): -3000,
        ("temp.sensor", "jc42/temp1"): 36500,
        ("temp.sensor", "jc42#2/temp1"): 37250,
        ("power.board", "power_meter/power1"): 245e6,
        ("power.board", "ucd9000/Module Power Socket 0"): 12e6,
    }


def test_chip_of_an_old_driver_keeps_its_files_below_the_device(tmp_path: Path) -> None:
    host = Watched(HWMON, tmp_path)
    host.write(topology(0, 0, 0))
    sensors = {"temp1_input": ("44000", "Physical id 0"), "temp2_input": ("43000", "Core 0")}
    host.write(chip(0, "coretemp", sensors, place="/device"))
    assert host.read() == {("temp.package", "package0"): 44000, ("cpu.temp.core", "cpu0"): 43000}


@pytest.mark.parametrize("code", [errno.ENODATA, errno.EINVAL, errno.EAGAIN, errno.EIO, errno.ENXIO])
def test_sensor_that_fails_is_left_out_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    host = Watched(HWMON, tmp_path)
    host.write(chip(0, "nct6775", {"temp1_input": ("41000", ""), "temp2_input": ("0", "")}))
    with monkeypatch.context() as patch:
        refuse(patch, {"temp2_input": code})
        assert host.read() == {("temp.sensor", "nct6775/temp1"): 41000}
        (problem,) = host.problems()
        assert problem.reason == os.strerror(code)
    host.write(chip(0, "nct6775", {"temp2_input": ("39000", "")}))
    assert host.read(LOOK_S)["temp.sensor", "nct6775/temp2"] == 39000


def test_reading_that_is_no_temperature_is_never_zero(tmp_path: Path) -> None:
    host = Watched(HWMON, tmp_path)
    texts = {"temp1_input": "N/A", "temp2_input": "-273200", "temp3_input": "2147483647", "fan1_input": "65535"}
    host.write(chip(0, "nct6775", {file: (text, "") for file, text in texts.items()}))
    found = host.rates()
    assert len(found) == 4
    assert all(math.isnan(value) for value in found.values())
    assert host.keeper.implausible == 3


def test_chip_that_is_added_and_removed(tmp_path: Path) -> None:
    host = Watched(HWMON, tmp_path)
    assert host.read() == {}
    host.write(chip(1, "mlx5", {"temp1_input": ("55000", "asic")}))
    assert host.read(LOOK_S) == {("temp.sensor", "mlx5/asic"): 55000}
    host.write(chip(2, "mlx5", {"temp1_input": ("56000", "asic")}))
    assert host.read(LOOK_S)["temp.sensor", "mlx5#2/asic"] == 56000
    host.remove(f"{HWMON_DIR}/hwmon1/temp1_input")
    assert host.read(LOOK_S) == {("temp.sensor", "mlx5/asic"): 56000}


def test_empty_file_of_a_sensor_is_absent(tmp_path: Path) -> None:
    host = Watched(HWMON, tmp_path)
    host.write(chip(0, "a", {"temp1_input": ("1000", "")}) | {f"{HWMON_DIR}/hwmon0/temp2_input": ""})
    assert host.read() == {("temp.sensor", "a/temp1"): 1000}


def test_thermal_zones_by_type(tmp_path: Path) -> None:
    host = Watched(THERMAL, tmp_path)
    for index, (kind, text) in enumerate((("acpitz", "-44000"), ("x86_pkg_temp", "49925"), ("acpitz", "27800"))):
        host.write({f"{THERMAL_DIR}/thermal_zone{index}/type": f"{kind}\n"})
        host.write({f"{THERMAL_DIR}/thermal_zone{index}/temp": f"{text}\n"})
    host.write({f"{THERMAL_DIR}/thermal_zone10/temp": "31000\n"})
    assert host.rates() == {
        ("temp.thermal_zone", "acpitz"): -44000,
        ("temp.thermal_zone", "x86_pkg_temp"): 49925,
        ("temp.thermal_zone", "acpitz#2"): 27800,
        ("temp.thermal_zone", "thermal_zone10"): 31000,
    }


@pytest.mark.parametrize("code", [errno.ENODATA, errno.EINVAL, errno.EAGAIN])
def test_thermal_zone_that_fails_is_absent_and_not_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    host = Watched(THERMAL, tmp_path)
    host.write({f"{THERMAL_DIR}/thermal_zone{index}/temp": "30000\n" for index in (0, 1)})
    refuse(monkeypatch, {"thermal_zone0/temp": code})
    assert host.read() == {("temp.thermal_zone", "thermal_zone1"): 30000}


def test_cooling_devices_of_one_type_show_the_highest_state(tmp_path: Path) -> None:
    host = Watched(COOLING, tmp_path)
    states = (("Processor", "0"), ("Processor", "3"), ("intel_powerclamp", "-1"), ("Fan", "<unknown>"))
    for index, (kind, text) in enumerate(states):
        base = f"{THERMAL_DIR}/cooling_device{index}"
        host.write({f"{base}/type": f"{kind}\n", f"{base}/cur_state": f"{text}\n"})
    found = host.rates()
    assert found["cooling.state", "Processor"] == 3
    assert math.isnan(found["cooling.state", "intel_powerclamp"])
    assert math.isnan(found["cooling.state", "Fan"])
    assert host.keeper.implausible == 0


def test_power_clamp_that_does_not_work_has_no_state(tmp_path: Path) -> None:
    host = Watched(COOLING, tmp_path)
    host.write({f"{THERMAL_DIR}/cooling_device0/type": "intel_powerclamp\n"})
    host.write({f"{THERMAL_DIR}/cooling_device0/cur_state": "-1\n"})
    assert math.isnan(host.read()["cooling.state", "intel_powerclamp"])
    host.write({f"{THERMAL_DIR}/cooling_device0/cur_state": "12\n"})
    assert host.read() == {("cooling.state", "intel_powerclamp"): 12}


def test_temperature_of_nvme_disks_by_controller(tmp_path: Path) -> None:
    host = Watched(NVME_TEMP, tmp_path)
    host.write({"sys/class/nvme/nvme0/hwmon3/temp1_input": "36850\n", "sys/class/nvme/nvme0/hwmon3/temp2_input": "1\n"})
    host.write({"sys/class/nvme/nvme10/device/hwmon/hwmon4/temp1_input": "41850\n"})
    assert host.read() == {("nvme.temp", "nvme0"): 36850, ("nvme.temp", "nvme10"): 41850}


@pytest.mark.parametrize(("text", "cpus"), [(b"0\n", 1), (b"0-95\n", 96), (b"0-3,8,10-11\n", 7), (b"2,4\n", 2)])
def test_cpus_online(text: bytes, cpus: int) -> None:
    assert parse(ONLINE, text) == {("cpu.online", ""): cpus}


@pytest.mark.parametrize("text", [b"\n", b"0-\n", b"all\n", b"5-2\n", b"0,,3\n"])
def test_list_of_cpus_that_is_none(text: bytes) -> None:
    with pytest.raises(ParseError, match="no range of CPUs"):
        parse(ONLINE, text)


def test_cpu_that_goes_off_line() -> None:
    before, after = rates(ONLINE, b"0-3\n", b"0-1,3\n")
    assert before["cpu.online", ""] == 4
    assert after["cpu.online", ""] == 3


def test_constants_are_read_at_a_look_and_not_kept_open(tmp_path: Path) -> None:
    host = Watched(THERMAL, tmp_path)
    host.write({f"{THERMAL_DIR}/thermal_zone0/temp": "30000\n", f"{THERMAL_DIR}/thermal_zone0/type": "old\n"})
    host.read()
    opened = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
    assert str(tmp_path / THERMAL_DIR / "thermal_zone0/temp") in opened
    assert str(tmp_path / THERMAL_DIR / "thermal_zone0/type") not in opened
    host.write({f"{THERMAL_DIR}/thermal_zone0/type": "new\n"})
    assert host.read() == {("temp.thermal_zone", "old"): 30000}
    assert host.read(LOOK_S) == {("temp.thermal_zone", "new"): 30000}


def test_names_made_distinct() -> None:
    assert distinct(["a", "b", "a", "a#2", "a"]) == ["a", "b", "a#2", "a#2#2", "a#3"]
