"""What is asked by number, how often, and which values of a metric can be true."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

NAN: Final = float("nan")
SECOND_NS: Final = 1_000_000_000
FAST: Final = 0
"""Every cycle."""
MEDIUM: Final = SECOND_NS
SLOW: Final = 5 * SECOND_NS
GPM_NS: Final = SECOND_NS // 5

LINK_COUNT: Final = 91
LINK_STATE: Final = 165


@dataclass(frozen=True, slots=True)
class Field:
    """A metric that nvmlDeviceGetFieldValues gives.

    ids       field numbers: the first that the driver knows counts. Generations of GPUs count links differently
    per_link  each link is an instance
    summed    field numbers to add up over all links where none of `ids` is known
    """

    metric: str
    ids: tuple[int, ...]
    every_ns: int = FAST
    per_link: bool = False
    summed: tuple[int, ...] = ()


FIELDS: Final = (
    Field("gpu.power_instant", (186,)),
    Field("gpu.pcie_tx_bytes", (197,)),
    Field("gpu.pcie_rx_bytes", (198,)),
    Field("gpu.throttle_ns.power_cap", (74,)),
    Field("gpu.throttle_ns.sw_thermal", (269,)),
    Field("gpu.throttle_ns.hw_thermal", (270,)),
    Field("gpu.throttle_ns.power_brake", (271,)),
    Field("gpu.throttle_ns.board_limit", (77,), MEDIUM),
    Field("gpu.throttle_ns.reliability", (79,), MEDIUM),
    Field("gpu.mem_temp", (82,), MEDIUM),
    Field("gpu.pcie_l0_recovery", (169,), MEDIUM),
    Field("gpu.pcie_correctable", (173,), MEDIUM),
    Field("gpu.pcie_fatal", (180,), MEDIUM),
    Field("gpu.recovery_action", (230,), MEDIUM),
    # Totals of the older generations; Hopper counts at each link, and Blackwell only recoveries (field 215).
    Field("gpu.nvlink_crc_flit", (38,), MEDIUM, summed=(163,)),
    Field("gpu.nvlink_crc_data", (45,), MEDIUM),
    Field("gpu.nvlink_replay", (52,), MEDIUM, summed=(161,)),
    Field("gpu.nvlink_recovery", (59,), MEDIUM, summed=(162,)),
    Field("gpu.nvlink_tx", (138,), MEDIUM, per_link=True),
    Field("gpu.nvlink_rx", (139,), MEDIUM, per_link=True),
    Field("gpu.nvlink_state", (LINK_STATE,), MEDIUM, per_link=True),
    Field("gpu.nvlink_link_recovery_events", (215,), MEDIUM, per_link=True),
    Field("gpu.nvlink_effective_errors", (219,), MEDIUM, per_link=True),
)

GPM_METRICS: Final[Mapping[str, int]] = {
    "gpu.gpm.sm_util": 2,
    "gpu.gpm.sm_occupancy": 3,
    "gpu.gpm.tensor_util": 5,
    "gpu.gpm.dram_bw_util": 10,
    "gpu.gpm.fp32_util": 12,
    "gpu.gpm.pcie_tx": 20,
    "gpu.gpm.pcie_rx": 21,
    "gpu.gpm.nvlink_rx": 60,
    "gpu.gpm.nvlink_tx": 61,
}

REASONS: Final[Mapping[str, int]] = {
    "gpu.throttled.idle": 0x01,
    "gpu.throttled.app_clocks": 0x02,
    "gpu.throttled.sw_power_cap": 0x04,
    "gpu.throttled.hw_slowdown": 0x08,
    "gpu.throttled.sync_boost": 0x10,
    "gpu.throttled.sw_thermal": 0x20,
    "gpu.throttled.hw_thermal": 0x40,
    "gpu.throttled.hw_power_brake": 0x80,
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons."""

PERCENT: Final = (0.0, 100.0)
# A ratio of two counters that are not read at the very same moment may be a little more than one.
RATIO: Final = (0.0, 101.0)
CELSIUS: Final = (-50.0, 200.0)
MEGAHERTZ: Final = (0.0, 20_000.0)
MOST_MILLIWATTS: Final = 2e6
MILLIWATTS: Final = (0.0, MOST_MILLIWATTS)
BYTES: Final = (0.0, 2.0**50)
COUNT: Final = (0.0, 2.0**63)
BOOL: Final = (0.0, 1.0)
# MiB/s: a TiB/s on all links, and some.
THROUGHPUT: Final = (0.0, 2.0**24)

RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "gpu.util": PERCENT,
    "gpu.mem_util": PERCENT,
    "gpu.encoder_util": PERCENT,
    "gpu.decoder_util": PERCENT,
    # "May exceed 100 % in certain cases", says its documentation.
    "gpu.fan": (0.0, 200.0),
    "gpu.mem_used": BYTES,
    "gpu.mem_free": BYTES,
    "gpu.mem_reserved": BYTES,
    "gpu.bar1_used": BYTES,
    "gpu.power_avg": MILLIWATTS,
    "gpu.power_instant": MILLIWATTS,
    "gpu.power_limit": (1.0, MOST_MILLIWATTS),
    "gpu.energy": COUNT,
    "gpu.temp": CELSIUS,
    "gpu.mem_temp": CELSIUS,
    "gpu.temp_margin": CELSIUS,
    "gpu.clock_sm": MEGAHERTZ,
    "gpu.clock_mem": MEGAHERTZ,
    "gpu.clock_sm_max": (1.0, 20_000.0),
    "gpu.pstate": (0.0, 15.0),
    "gpu.clock_reasons": (0.0, 2.0**32 - 1),
    **dict.fromkeys(REASONS, BOOL),
    "gpu.pcie_gen": (1.0, 10.0),
    "gpu.pcie_width": (1.0, 32.0),
    "gpu.pcie_width_lost": (0.0, 31.0),
    "gpu.pcie_replay": COUNT,
    "gpu.pcie_tx_bytes": COUNT,
    "gpu.pcie_rx_bytes": COUNT,
    "gpu.pcie_l0_recovery": COUNT,
    "gpu.pcie_correctable": COUNT,
    "gpu.pcie_fatal": COUNT,
    "gpu.ecc_corrected": COUNT,
    "gpu.ecc_uncorrected": COUNT,
    "gpu.ecc_uncorrected_aggregate": COUNT,
    "gpu.remapped_rows": (0.0, 2.0**20),
    "gpu.remap_pending": BOOL,
    "gpu.remap_failed": BOOL,
    "gpu.retired_pages_pending": BOOL,
    "gpu.recovery_action": (0.0, 31.0),
    "gpu.throttle_ns.power_cap": COUNT,
    "gpu.throttle_ns.sw_thermal": COUNT,
    "gpu.throttle_ns.hw_thermal": COUNT,
    "gpu.throttle_ns.power_brake": COUNT,
    "gpu.throttle_ns.board_limit": COUNT,
    "gpu.throttle_ns.reliability": COUNT,
    "gpu.nvlink_crc_flit": COUNT,
    "gpu.nvlink_crc_data": COUNT,
    "gpu.nvlink_replay": COUNT,
    "gpu.nvlink_recovery": COUNT,
    "gpu.nvlink_tx": COUNT,
    "gpu.nvlink_rx": COUNT,
    "gpu.nvlink_state": (0.0, 15.0),
    "gpu.nvlink_link_recovery_events": COUNT,
    "gpu.nvlink_effective_errors": COUNT,
    **{metric: THROUGHPUT if metric.endswith(("_rx", "_tx")) else RATIO for metric in GPM_METRICS},
}
"""Plausible raw values of every metric that the child reads."""

IMPLAUSIBLE: Final = "gpu.implausible"
POWERS: Final = ("gpu.power_avg", "gpu.power_instant")
LIMIT: Final = "gpu.power_limit"

COUNTERS: Final = frozenset(
    {
        *("gpu.energy", "gpu.pcie_replay", "gpu.pcie_tx_bytes", "gpu.pcie_rx_bytes", "gpu.pcie_l0_recovery"),
        *("gpu.pcie_correctable", "gpu.pcie_fatal", "gpu.remapped_rows", IMPLAUSIBLE),
        *("gpu.ecc_corrected", "gpu.ecc_uncorrected", "gpu.ecc_uncorrected_aggregate"),
        *(metric for metric in RANGES if metric.startswith("gpu.throttle_ns.")),
        *(metric for metric in RANGES if metric.startswith("gpu.nvlink_") and metric != "gpu.nvlink_state"),
    }
)
"""Metrics that count. Between two readings of a slow one there is nothing to say, whereas a state holds."""

DOUBLE: Final = 0
NARROW: Final[Mapping[int, tuple[int, bool]]] = {1: (32, False), 5: (32, True), 6: (16, False)}
WIDE: Final = frozenset({2, 3, 4})
WIDE_SIGNED: Final = 4
# What NVIDIA's tools write for "no value", and for several kinds of it, is one of the highest numbers of its type.
BLANK32: Final = 0x7FFFFFF0
BLANK64: Final = 0x7FFFFFFFFFFFFFF0
BLANK_DOUBLE: Final = 2.0**47


def number(value_type: int, raw: int) -> float:
    """Number in the 8 bytes of an nvmlValue_t, given as an unsigned number, by its nvmlValueType_t.

    Infinite, which no range holds, for blanks and types unknown.
    """
    if value_type in WIDE:
        if value_type == WIDE_SIGNED and raw >> 63:
            return raw - (1 << 64)
        return raw if raw < BLANK64 else math.inf
    if value_type in NARROW:
        bits, signed = NARROW[value_type]
        value = raw & ((1 << bits) - 1)
        if BLANK32 <= value < 1 << 31 or (value == 0xFFFFFFFF and not signed):
            return math.inf
        return value - (1 << bits) if signed and value >> (bits - 1) else value
    if value_type == DOUBLE:
        (found,) = struct.unpack("<d", struct.pack("<Q", raw))
        return float(found) if found < BLANK_DOUBLE else math.inf
    return math.inf


def power_bound(limit: float) -> float:
    """Highest plausible power of a GPU that may take `limit` mW: twice that, and never above 2 kW."""
    low, high = RANGES[LIMIT]
    return min(2 * limit, MOST_MILLIWATTS) if low <= limit <= high else MOST_MILLIWATTS
