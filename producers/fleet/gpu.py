"""Metrics of subsystem gpu: power follows load and clock, temperature follows power, clocks obey limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from producers.fleet.activity import Flow
from producers.fleet.group import Group
from producers.fleet.knobs import Turned
from producers.fleet.profiles import Gpu
from producers.fleet.sheet import Sheet

Floats = NDArray[np.floating[Any]]
GB: Final = 2.0**30
AMBIENT_C: Final = 30.0
REASON: Final = {"idle": 0x1, "app_clocks": 0x2, "sw_power_cap": 0x4, "sw_thermal": 0x20, "hw_thermal": 0x40}
QUIET: Final = (
    *(
        "gpu.decoder_util",
        "gpu.encoder_util",
        "gpu.ecc_uncorrected_aggregate",
        "gpu.implausible",
        "gpu.nvlink_recovery",
    ),
    *("gpu.pcie_fatal", "gpu.recovery_action", "gpu.remap_failed", "gpu.retired_pages_pending", "gpu.lost"),
    *("gpu.throttle_ns.board_limit", "gpu.throttle_ns.power_brake", "gpu.throttle_ns.reliability"),
    *("gpu.throttled.hw_power_brake", "gpu.throttled.hw_slowdown", "gpu.throttled.sync_boost"),
)


def fill_gpu(group: Group, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    """Set all metrics of the subsystem; nothing for hosts without GPUs."""
    gpu = group.profile.gpu
    if gpu is None:
        return
    sheet.zero(*QUIET)
    _power(group, gpu, flow, knobs, sheet)
    _memory(group, gpu, flow, knobs, sheet)
    _links(group, gpu, flow, knobs, sheet)
    gone = knobs["gpu_lost"]
    sheet["gpu.missing"] = (gone > 0).sum(axis=2, keepdims=True)
    sheet["gpu.stale"] = 0.05
    sheet.finish()
    _derive(gpu, sheet)
    sheet.seal()
    if knobs.turned("gpu_lost"):
        sheet.silence({"gpu": gone, "link": np.repeat(gone, gpu.links, axis=2)})
        sheet["gpu.lost"] = (gone > 0).astype(np.float32)


def _power(group: Group, gpu: Gpu, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    shape = (*flow.compute.shape[:2], gpu.count)
    build = group.weights("gpu", gpu.count, 0.015)
    # Kernels of the collectives occupy the GPU without using much of it.
    occupied = np.clip(flow.compute + 0.97 * flow.communicate, 0, 1)
    util = group.slow("gpu_util", np.broadcast_to(100 * occupied, shape), 0.17)
    sheet["gpu.util"] = np.minimum(util, 100)
    active = group.slow("gpu_active", np.broadcast_to((occupied > 0.02) * flow.working, shape), 2.0)
    cap = np.clip(knobs["gpu_clock"], 0.2, 1)
    last = group.last("gpu_temp")
    temp_now = np.full((len(group), 1, gpu.count), AMBIENT_C, np.float32) if last is None else last
    # Above its limit a GPU takes its clock back, some per cent a degree.
    hot = np.clip(0.05 * (temp_now - gpu.limit_c), 0, 0.6)
    limit = gpu.tdp_w * np.clip(knobs["gpu_power_limit"], 0.1, 1)
    load = (0.95 * flow.intensity * flow.compute + 0.22 * flow.communicate) * build
    speed = cap * (1 - hot)
    asked = gpu.idle_w + (gpu.tdp_w - gpu.idle_w) * load * speed**1.6
    # A power limit works by the clock: what is above it is taken back.
    squeezed = np.where(asked > limit, ((limit - gpu.idle_w) / np.maximum(asked - gpu.idle_w, 1)) ** 0.6, 1)
    watts = np.minimum(asked, limit)
    clock = gpu.idle_mhz + (gpu.sm_mhz - gpu.idle_mhz) * active
    sheet["gpu.clock_sm"] = np.minimum(clock, gpu.sm_mhz * speed) * group.slow(
        "squeeze", np.broadcast_to(squeezed, shape), 0.5
    )
    sheet["gpu.clock_sm_max"] = float(gpu.sm_mhz)
    sheet["gpu.clock_mem"] = float(gpu.mem_mhz)
    mw = 1000 * group.slow("gpu_watts", np.broadcast_to(watts, shape), 0.05)
    mw = mw * (1 + sheet.noise("gpu.power_avg"))
    sheet["gpu.power_instant"] = mw
    sheet["gpu.energy"] = mw
    sheet["gpu.power_avg"] = group.slow("gpu_average", mw, 0.5)
    sheet["gpu.power_limit"] = 1000 * limit
    heat = AMBIENT_C + 38 * (watts / gpu.tdp_w) * group.weights("cooling", gpu.count, 0.05) + knobs["gpu_heat"]
    temp = group.slow("gpu_temp", np.broadcast_to(heat, shape), 10.0)
    sheet["gpu.temp"] = temp
    sheet["gpu.mem_temp"] = temp + 6
    sheet["gpu.temp_margin"] = np.maximum(gpu.limit_c + 2 - temp, 0)
    over = np.broadcast_to(asked > limit, shape) & (knobs["gpu_power_limit"] < 0.99)
    _limits(
        sheet,
        {
            "idle": np.broadcast_to(occupied < 0.01, shape),
            "app_clocks": np.broadcast_to(cap < 0.99, shape),
            "sw_power_cap": over,
            "sw_thermal": np.broadcast_to(hot > 0, shape),
            # Only far above the limit does the hardware step in.
            "hw_thermal": np.broadcast_to(temp_now > gpu.limit_c + 12, shape),
        },
    )


def _limits(sheet: Sheet, reasons: Mapping[str, NDArray[np.bool_]]) -> None:
    """Why clocks are below their maximum, as flags, as bits of one mask and as time."""
    mask: Floats = np.zeros((1, 1, 1), np.float32)
    for name, active in reasons.items():
        sheet[f"gpu.throttled.{name}"] = active
        mask = mask + active * np.float32(REASON[name])
    sheet["gpu.clock_reasons"] = mask
    sheet["gpu.throttle_ns.sw_thermal"] = 1e9 * reasons["sw_thermal"]
    sheet["gpu.throttle_ns.hw_thermal"] = 1e9 * reasons["hw_thermal"]
    sheet["gpu.throttle_ns.power_cap"] = 1e9 * reasons["sw_power_cap"]
    sheet["gpu.pstate"] = 0.0


def _memory(group: Group, gpu: Gpu, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    total = gpu.memory_gb * GB
    share = 0.93 * group.slow("gpu_memory", flow.memory, 4.0) * group.weights("gpu_memory", gpu.count, 0.01)
    used = np.minimum(0.006 + share, 0.985) * total
    reserved = 0.008 * total
    sheet["gpu.mem_used"] = used
    sheet["gpu.mem_reserved"] = reserved
    sheet["gpu.mem_free"] = total - used - reserved
    sheet["gpu.mem_util"] = np.minimum(100 * (0.55 * flow.intensity * flow.compute + 0.08 * flow.communicate), 100)
    sheet["gpu.bar1_used"] = (0.02 + 0.2 * flow.working) * GB
    for name in ("ecc_corrected", "ecc_uncorrected"):
        sheet[f"gpu.{name}"] = knobs[f"gpu_{name}"]
    sheet["gpu.remapped_rows"] = knobs["gpu_remap"]
    sheet["gpu.remap_pending"] = (knobs["gpu_remap"] > 0).astype(np.float32)


def _links(group: Group, gpu: Gpu, flow: Flow, knobs: Turned, sheet: Sheet) -> None:
    shape = (*flow.compute.shape[:2], gpu.count * gpu.links)
    rate = np.repeat(np.clip(knobs["nvlink_rate"], 0, 1), gpu.links, axis=2) if knobs.turned("nvlink_rate") else 1
    kib = gpu.link_gb * 1e9 / 1024 * 0.55 * flow.communicate * group.weights("link", shape[2], 0.01) * rate
    sheet["gpu.nvlink_tx"] = np.broadcast_to(kib, shape)
    sheet["gpu.nvlink_rx"] = np.broadcast_to(kib, shape)
    sheet["gpu.nvlink_state"] = 1.0
    errors = knobs["nvlink_errors"]
    for name, part in (("crc_flit", 1.0), ("crc_data", 0.4), ("replay", 0.5)):
        sheet[f"gpu.nvlink_{name}"] = part * errors
    lanes = np.clip(knobs["gpu_lanes"], 0, 1)
    width = np.maximum(np.rint(16 * lanes), 1)
    sheet["gpu.pcie_width"] = width
    sheet["gpu.pcie_width_lost"] = 16 - width
    sheet["gpu.pcie_gen"] = float(gpu.pcie_gen)
    # Memory on the other socket is fed through the link between the sockets.
    through = gpu.pcie_bytes * lanes * (1 - 0.4 * np.clip(knobs["remote"], 0, 1))
    each = group.weights("pcie", gpu.count, 0.03)
    network = flow.port_bytes.mean(axis=2, keepdims=True) if group.profile.ports else 0.0
    sheet["gpu.pcie_rx_bytes"] = np.minimum((0.22 * flow.input + 0.0008) * through * each + network, through)
    sheet["gpu.pcie_tx_bytes"] = np.minimum(
        (0.02 * flow.input + 0.35 * flow.write + 0.0008) * through * each + network, through
    )
    for name in ("replay", "correctable", "l0_recovery"):
        sheet[f"gpu.pcie_{name}"] = knobs["gpu_pcie_errors"] * (0.05 if name == "l0_recovery" else 1.0)
    sm = 100 * flow.compute * group.weights("sm", gpu.count, 0.01)
    sheet["gpu.gpm.sm_util"] = np.minimum(sm + 18 * flow.communicate, 100)
    sheet["gpu.gpm.sm_occupancy"] = np.minimum(0.45 * sm + 5 * flow.communicate, 100)
    sheet["gpu.gpm.tensor_util"] = np.minimum(0.72 * sm * flow.intensity, 100)
    sheet["gpu.gpm.fp32_util"] = np.minimum(0.12 * sm, 100)
    sheet["gpu.gpm.dram_bw_util"] = np.minimum(0.6 * sm * flow.intensity + 8 * flow.communicate, 100)


def _derive(gpu: Gpu, sheet: Sheet) -> None:
    for name in ("gpu.util", "gpu.mem_util"):
        sheet[name] = np.minimum(np.rint(sheet[name]), 100)
    for name in ("sm_util", "sm_occupancy", "tensor_util", "fp32_util", "dram_bw_util"):
        if f"gpu.gpm.{name}" in sheet:
            sheet[f"gpu.gpm.{name}"] = np.minimum(sheet[f"gpu.gpm.{name}"], 100)
    if "gpu.gpm.nvlink_tx" not in sheet:
        return
    hosts, samples, links = sheet["gpu.nvlink_tx"].shape
    for way in ("tx", "rx"):
        each = sheet[f"gpu.nvlink_{way}"].reshape(hosts, samples, links // gpu.links, gpu.links)
        sheet[f"gpu.gpm.nvlink_{way}"] = each.sum(axis=3) / 1024
        sheet[f"gpu.gpm.pcie_{way}"] = sheet[f"gpu.pcie_{way}_bytes"] / 2.0**20
