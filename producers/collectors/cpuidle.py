"""/sys/devices/system/cpu/cpuN/cpuidle: time that each CPU spends asleep, and in its deepest sleep.

One channel a CPU and state would be hundreds on a large host, so states are added up. A state that waits in a loop
saves nothing and does not count. The kernel counts a sleep when it is over.
"""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Parser, plain
from producers.collectors.sysfs import Channel, Meaning, Sysfs, words
from producers.collectors.topology import CPU
from producers.reading import Texts

PATH: Final = re.compile(r"/(cpu\d+)/cpuidle/state(\d+)/time$")
# What drivers call the loop, which is state 0 where there is one.
LOOPS: Final = frozenset({"poll", "snooze"})


def describe(texts: Texts) -> Meaning:
    """Files of the states of each CPU."""
    states: dict[str, list[tuple[int, str]]] = {}
    for path in texts:
        if match := PATH.search(path):
            name = texts.get(f"{path.removesuffix('time')}name", b"")
            if words(name).lower() not in LOOPS:
                states.setdefault(match[1], []).append((int(match[2]), path))
    channels: dict[Channel, list[str]] = {
        ("cpu.cstate.residency", cpu): [path for _, path in found] for cpu, found in states.items()
    }
    channels |= {("cpu.cstate.deepest", cpu): [max(found)[1]] for cpu, found in states.items()}
    return Meaning(channels)


def _parser() -> Parser:
    return Sysfs(describe)


CPUIDLE = Collector(
    "cpuidle",
    (f"{CPU}/cpuidle/state[0-9]*/time",),
    plain(_parser),
    ("cpu.cstate.residency", "cpu.cstate.deepest"),
    constants=(f"{CPU}/cpuidle/state0/name",),
    every_ms=1000,
)
