"""Hosts that the pipeline is measured with, and their telemetry as messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from producers.fleet.profiles import Profile, profiles
from producers.fleet.schedule import Schedule, SimulatedHost
from producers.fleet.simulation import Fleet
from schemas.codec import encode
from tests import synthetic
from tests.simulated.test_case_studies import STEADY

SETTLE_S: Final = 20
Messages = Iterator[list[bytes]]
"""Those of one second after the other, one message a subsystem."""


def small() -> Messages:
    """Two cores, a disk and two interfaces, without a GPU; made up, every value noise."""
    for index in itertools.count():
        yield [encode(synthetic.second("bench", name, index)) for name in synthetic.SUBSYSTEMS]


def simulated(profile: Profile) -> Messages:
    """A host of the simulated fleet that does one job all the time."""
    hosts = [SimulatedHost(0, f"bench-{profile.short}", profile, 0, None)]
    fleet = Fleet(hosts, Schedule(hosts), start_ns=synthetic.START * 10**9, timing=STEADY)
    for index in itertools.count():
        records = [encode(record) for record in fleet.records(index)]
        if index >= SETTLE_S:  # temperatures and caches settle
            yield records


def seven_hundred() -> Profile:
    """A virtual machine of 8 cores with 2 GPUs: 700 channels of five subsystems."""
    vm, gpu = profiles()["small-vm"], profiles()["hgx-h100"].gpu
    assert gpu is not None
    return replace(
        vm,
        name="gpu-vm",
        short="gpu-vm",
        cores=8,
        interfaces=("eth0", "eth1"),
        disks=("vda", "vdb"),
        filesystems=("/", "/data"),
        ports=("mlx5_0/1",),
        port_gbit=100,
        features=vm.features | {"cpufreq", "nvme", "conntrack", "ampere"},
        gpu=replace(gpu, count=2, links=4),
    )


HOSTS: Final[Mapping[str, Callable[[], Messages]]] = {
    "small": small,
    "700": lambda: simulated(seven_hundred()),
    "hgx-h100": lambda: simulated(profiles()["hgx-h100"]),
}
