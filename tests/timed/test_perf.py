"""Counters of the machine that the tests run on, whether it has a PMU or not."""

from __future__ import annotations

import math
import mmap
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from producers.collectors.perf import PERF
from producers.frame import Frame, Identity
from producers.perf.events import CYCLES, KERNEL
from producers.perf.kernel import Event, Linux, explain
from producers.perf.source import PerfSource
from producers.reading import Host
from schemas.catalogue import catalogue

ROOTS = {"proc": "/proc", "sys": "/sys"}
SWITCHES = 200
PAGES = 2000


def refusal(event: Event) -> int:
    """Error number with which the kernel refuses `event` on the first CPU that is online; 0 if it counts."""
    kernel = Linux()
    cpu = int(Path("/sys/devices/system/cpu/online").read_text().replace("-", ",").split(",")[0])
    try:
        descriptor = kernel.open(event, cpu, -1)
    except OSError as error:
        return error.errno or -1
    assert not os.get_inheritable(descriptor)
    kernel.close(descriptor)
    return 0


def work() -> None:
    """Some hundred context switches and some thousand page faults."""
    for _ in range(SWITCHES):
        time.sleep(0.0001)
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1


def context_switches() -> int:
    """All of the machine's since its start, as /proc/stat has them."""
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("ctxt "))


@pytest.fixture
def source() -> Iterator[PerfSource]:
    """The counters of this machine, read where they are asked for."""
    host = Host(ROOTS, time.monotonic_ns)
    found = PerfSource(PERF, host, Linux())
    yield found
    found.close()


def totals(source: PerfSource) -> dict[str, float]:
    """Sums over all instances by metric, of what has a value."""
    reading = source.read(time.monotonic_ns())
    assert reading is not None
    layout, values = PERF.parser()(reading[1])
    sums: dict[str, float] = {}
    for (metric, _), value in zip(layout.channels, values, strict=True):
        if not math.isnan(value):
            sums[metric] = sums.get(metric, 0.0) + value
    return sums


def test_software_events_count_what_happens(source: PerfSource) -> None:
    refused = {event.metric: number for event in KERNEL if (number := refusal(event))}
    if len(refused) == len(KERNEL):
        # Not allowed here: then that is what has to be said.
        assert source.read(time.monotonic_ns()) is None
        (problem,) = source.problems(time.monotonic_ns())
        paranoid = Path("/proc/sys/kernel/perf_event_paranoid")
        value = paranoid.read_text().strip() if paranoid.exists() else ""
        assert explain(refused["cpu.perf.minor_faults"], value) in problem.reason
        return
    outer = context_switches()
    before = totals(source)
    inner = context_switches()
    work()
    least = context_switches() - inner
    after = totals(source)
    most = context_switches() - outer
    for event in KERNEL:
        assert (event.metric in after) is (event.metric not in refused)
    assert least >= SWITCHES
    # The same events by two ways; one on each CPU may be under way.
    cpus = os.cpu_count() or 1
    counted = after["cpu.perf.context_switches"] - before["cpu.perf.context_switches"]
    assert least - cpus <= counted <= most + cpus
    assert after["cpu.perf.minor_faults"] - before["cpu.perf.minor_faults"] >= PAGES


def test_the_processor_counts_or_its_absence_is_explained(source: PerfSource) -> None:
    frame = Frame(
        (replace(PERF, source=lambda collector, host: source),),
        Host(ROOTS, time.monotonic_ns),
        100,
        Identity("here", "now"),
    )
    frame.sample(0, 0)
    work()
    frame.sample(36_000, 1)
    metrics = catalogue()
    found = {
        (name, instance): value
        for record in frame.cut(time.time_ns(), 2)
        for name, matrix in record.metrics.items()
        for instance, value in zip(record.instances[metrics[name].dimension], matrix[1].tolist(), strict=True)
        if not math.isnan(value)
    }
    said = "\n".join([*frame.notes(), *(problem.reason for problem in frame.problems())])
    for event in CYCLES:
        values = [value for (metric, _), value in found.items() if metric == event.metric]
        if refusal(event):
            assert not values
            assert event.metric in said
        elif values:
            assert max(values) > 1e5
        else:
            # The kernel takes the event, but others hold the counters.
            assert "nmi_watchdog" in said or found["cpu.perf.running_pct", "cpu0"] == 0
    assert all(0 < value < 12 for (metric, _), value in found.items() if metric == "cpu.perf.ipc")
    assert all(0 <= value <= 101 for (metric, _), value in found.items() if metric == "cpu.perf.running_pct")
    assert not frame.errors()


def test_descriptors_are_given_back() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        source = PerfSource(PERF, Host(ROOTS, time.monotonic_ns), Linux())
        source.read(time.monotonic_ns())
        source.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_kernel_refuses_what_is_not_there() -> None:
    kernel = Linux()
    with pytest.raises(OSError, match=r"."):
        kernel.open(KERNEL[0], 1_000_000, -1)
    with pytest.raises(OSError, match=r"."):
        kernel.open(Event("none", 0xFFFF, 0), 0, -1)
    assert kernel.limit() > 0


def test_a_buffer_that_is_too_short_is_an_error_and_no_short_reading() -> None:
    if refusal(KERNEL[0]):
        pytest.skip("perf_event_open is not permitted here")
    kernel = Linux()
    descriptor = kernel.open(KERNEL[0], 0, -1)
    try:
        number, enabled, running, _ = struct.unpack("4Q", kernel.read(descriptor, 32))
        assert number == 1
        assert 0 < running <= enabled
        with pytest.raises(OSError, match="space"):
            kernel.read(descriptor, 24)
    finally:
        kernel.close(descriptor)
