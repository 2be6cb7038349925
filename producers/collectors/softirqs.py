"""/proc/softirqs: software interrupts of each CPU. It lists every possible CPU, online or not."""

from __future__ import annotations

from typing import Final

from producers.collector import Collector, Parser, plain
from producers.collectors.cputable import CpuTable

LABELS: Final = {
    "BLOCK": ("cpu.softirq.block",),
    "NET_RX": ("cpu.softirq.net_rx",),
    "NET_TX": ("cpu.softirq.net_tx",),
    "RCU": ("cpu.softirq.rcu",),
    "SCHED": ("cpu.softirq.sched",),
    "TASKLET": ("cpu.softirq.tasklet",),
    "TIMER": ("cpu.softirq.timer",),
}


def classify(label: str, words: str) -> tuple[str, ...]:
    """Metrics that a row counts for."""
    return LABELS.get(label, ())


def _parser() -> Parser:
    return CpuTable(classify)


# The kernel counts softirqs in unsigned 32 bit.
SOFTIRQS = Collector(
    "softirqs",
    ("proc/softirqs",),
    plain(_parser),
    tuple(metric for (metric,) in LABELS.values()),
    wraps={metric: 2.0**32 for (metric,) in LABELS.values()},
)
