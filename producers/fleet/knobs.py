"""Knobs: all that can be wrong with a simulated host, as numbers. Faults turn them; models read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Knob:
    """What is right, and of which dimension's instances there is one each."""

    neutral: float
    dimension: str = "host"


KNOBS: Final[Mapping[str, Knob]] = {
    # The whole host: share of all activity that is missing; share of a step in which GPUs wait.
    "quiet": Knob(0.0),
    "stall": Knob(0.0),
    # Speed of collective communication, as a share of what it should be.
    "communication_rate": Knob(1.0),
    # cpu: tasks that want to run beside the job, a CPU; clock as a share; share of the adapters' interrupts that go to
    # a core; more interrupts, as a share; share of a core that soft interrupts take; share of some cores that polls.
    "contention": Knob(0.0),
    "cpu_clock": Knob(1.0),
    "interrupt_skew": Knob(0.0, "core"),
    "interrupts": Knob(0.0),
    "softirq": Knob(0.0, "core"),
    "polling": Knob(0.0),
    # memory: share of accesses to the other node; share of memory in unused huge pages; share of the job's memory in
    # small pages; how far memory is used up; share of the disks' speed at which pages get dirty; corrected errors/s.
    "remote": Knob(0.0),
    "huge_reserved": Knob(0.0),
    "small_pages": Knob(0.0),
    "pressure": Knob(0.0),
    "dirtying": Knob(0.0),
    "memory_errors": Knob(0.0, "controller"),
    # network: share of segments lost; share of received packets dropped; queue pairs as a share; events/s; errors/s.
    "loss": Knob(0.0),
    "rx_drop": Knob(0.0, "interface"),
    "queue_pairs": Knob(1.0),
    "receiver_not_ready": Knob(0.0, "port"),
    "port_errors": Knob(0.0, "port"),
    "port_rate": Knob(1.0, "port"),
    "congestion": Knob(0.0),
    # gpu: °C above what its power explains; limits as shares; errors/s; rows/s; lanes and links as shares.
    "gpu_heat": Knob(0.0, "gpu"),
    "gpu_power_limit": Knob(1.0, "gpu"),
    "gpu_clock": Knob(1.0, "gpu"),
    "gpu_ecc_corrected": Knob(0.0, "gpu"),
    "gpu_ecc_uncorrected": Knob(0.0, "gpu"),
    "gpu_remap": Knob(0.0, "gpu"),
    "gpu_lost": Knob(0.0, "gpu"),
    "gpu_lanes": Knob(1.0, "gpu"),
    "gpu_pcie_errors": Knob(0.0, "gpu"),
    "nvlink_errors": Knob(0.0, "gpu"),
    "nvlink_rate": Knob(1.0, "gpu"),
    # storage: service time as a multiple.
    "disk_latency": Knob(1.0, "disk"),
}


class Turned:
    """Knobs of some hosts over a batch of samples.

    What nobody turned is one number of shape (1, 1, 1), so that healthy hosts cost nothing; else (hosts, samples,
    instances of the knob's dimension).
    """

    def __init__(self, hosts: int, samples: int, instances: Mapping[str, int]) -> None:
        self._shape = (hosts, samples)
        self._instances = instances
        self._values: dict[str, Floats] = {}

    def __getitem__(self, name: str) -> Floats:
        found = self._values.get(name)
        return np.full((1, 1, 1), KNOBS[name].neutral, np.float32) if found is None else found

    def turned(self, name: str) -> bool:
        """Whether any host's knob is off its neutral value."""
        return name in self._values

    def turn(self, name: str, host: int, columns: NDArray[np.intp] | slice, change: Floats) -> None:
        """Add `change` (samples,) to the knob on `host` at some instances of its dimension; does nothing for a
        dimension that the hosts lack. Raises KeyError for an unknown knob.
        """
        knob = KNOBS[name]
        width = self._instances.get(knob.dimension, 0)
        if not width:
            return
        if name not in self._values:
            self._values[name] = np.full((*self._shape, width), knob.neutral, np.float32)
        self._values[name][host, :, columns] += change[:, None] if isinstance(columns, slice) else change[None, :]
