"""GPUs beside the CPUs of this machine in one frame, ten samples a second, and a call that hangs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from producers.collectors.gpu import GPU
from producers.collectors.loadavg import LOADAVG
from producers.collectors.stat import STAT
from producers.frame import Frame, Identity
from producers.gpu.fields import SECOND_NS
from schemas.codec import decode, encode
from schemas.records import Telemetry
from tests.nvml import profiles
from tests.nvml.driven import Driven
from tests.nvml.fake import FakeNvml


def frame_over(nvml: FakeNvml, *, gpus: tuple[str, ...] = ()) -> tuple[Frame, Driven]:
    """A frame that reads GPUs and this machine's CPUs."""
    driver = Driven(nvml, wanted=lambda dimension, name: not gpus or name in gpus)
    host = replace(driver.host, roots={"proc": "/proc", "sys": str(nvml.sys)})
    return Frame((STAT, LOADAVG, GPU), host, 100, Identity("host-1", "session-1")), driver


def second(frame: Frame, number: int) -> dict[str, Telemetry]:
    """One batch, sampled on time."""
    for row in range(10):
        began = time.monotonic()
        frame.sample(10 * number + row, row)
        assert time.monotonic() - began < 1
        time.sleep(max(0.0, began + 0.1 - time.monotonic()))
    return {record.subsystem: record for record in frame.cut(number * SECOND_NS, 10)}


def settled(frame: Frame) -> int:
    """Seconds until GPUs are read on time, but for some samples on a busy machine."""
    for number in range(20):
        gpu = second(frame, number).get("gpu")
        if gpu is not None and np.nanmax(gpu.metrics["gpu.stale"]) == 0:
            assert gpu.metrics["gpu.stale"].shape == (10, 1)
            if np.isnan(gpu.metrics["gpu.temp"][:, 0]).sum() < 5:
                return number + 1
    raise AssertionError("GPUs are not read on time")


def test_a_call_that_hangs_stops_nothing_else(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 2)
    frame, driver = frame_over(nvml)
    try:
        begun = settled(frame)
        nvml.delay("gpu1", "nvmlDeviceGetTemperature", 45)
        nvml.write()
        stale = []
        for number in range(begun, begun + 7):
            records = second(frame, number)
            # The CPUs go on at 100 ms.
            assert not np.isnan(records["cpu"].metrics["cpu.time.user"]).any()
            again = decode(encode(records["gpu"])) if "gpu" in records else None
            assert again is None or isinstance(again, Telemetry)
            stale.append(np.nan if again is None else float(np.nanmax(again.metrics["gpu.stale"])))
        assert 4.5 < stale[-1] < 9
        assert stale[-2] < stale[-1]
        (problem,) = [problem for problem in frame.problems() if problem.collector == "gpu"]
        assert problem.kind == "hung"
        (notice,) = driver.notices.drain("host-1", "session-1", "")
        assert (notice.kind, notice.subsystem) == ("source_hung", "gpu")
        assert "no answer of gpu1" in notice.message
        nvml.heal("gpu1", "nvmlDeviceGetTemperature")
        nvml.write()
        second(frame, begun + 7)
        temperatures = second(frame, begun + 8)["gpu"].metrics["gpu.temp"]
        assert temperatures[-1].tolist() == [60, 61]
        (notice,) = driver.notices.drain("host-1", "session-1", "")
        assert notice.kind == "source_back"
        assert not frame.problems()
    finally:
        frame.close()


def test_rates_of_counters(tmp_path: Path) -> None:
    nvml = profiles.h100(tmp_path / "nvml", 1)
    frame, _ = frame_over(nvml)
    try:
        begun = settled(frame)
        nvml.answer("gpu0", "nvmlDeviceGetTotalEnergyConsumption", 5_000_000_000_000 + 650_000)
        nvml.write()
        seconds = [second(frame, begun + number)["gpu"].metrics["gpu.energy"][:, 0] for number in range(2)]
        energy = np.concatenate(seconds)
        # 650 J more, all of them within one sample.
        assert np.nansum(energy) * 0.1 == pytest.approx(650_000, rel=0.6)
        assert (energy > 0).sum() == 1
    finally:
        frame.close()
