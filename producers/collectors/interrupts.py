"""/proc/interrupts: interrupts of each CPU by kind."""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Parser, plain
from producers.collectors.cputable import CpuTable

LABELS: Final = {
    "CAL": ("cpu.irq.call",),
    "LOC": ("cpu.irq.local_timer",),
    "MCE": ("cpu.irq.mce",),
    "MCP": ("cpu.irq.mce",),
    "RES": ("cpu.irq.resched",),
    "TLB": ("cpu.irq.tlb",),
    "TRM": ("cpu.irq.thermal",),
}
# arm64 numbers its inter-processor interrupts differently from kernel to kernel, but calls them the same.
WORDS: Final = {
    "Rescheduling interrupts": ("cpu.irq.resched",),
    "Function call interrupts": ("cpu.irq.call",),
}
METRICS: Final = (
    "cpu.irq.device",
    "cpu.irq.nic",
    "cpu.irq.call",
    "cpu.irq.local_timer",
    "cpu.irq.mce",
    "cpu.irq.resched",
    "cpu.irq.thermal",
    "cpu.irq.tlb",
)
# Names that network interfaces, adapters and their drivers give to their interrupts.
NIC: Final = re.compile(
    r"(?:^|[\s,])(?:eth\d|en[opsxP]\d|em\d|ib\d|ibp|bond\d|wl[opx]\d|p\d+p\d|mlx[45]_|mlx[45]-|virtio\d+-(?:in|out)put\.\d"
    r"|ena-|bnxt|hfi1|irdma|iavf|i40e|ice-|igb|ixgbe|vmxnet|qede|cxgb|gve|mana|enic|sfc|tg3|be2net|hv_netvsc)"
)


def classify(label: str, words: str) -> tuple[str, ...]:
    """Metrics that a row counts for."""
    if label in LABELS:
        return LABELS[label]
    if label.isdigit():
        if words.endswith("arch_timer"):
            # The local timer of arm64 is a numbered interrupt.
            return ("cpu.irq.local_timer",)
        return ("cpu.irq.device", "cpu.irq.nic") if NIC.search(words) else ("cpu.irq.device",)
    if label.startswith("IPI"):
        return WORDS.get(words.strip(), ())
    return ()


def _parser() -> Parser:
    return CpuTable(classify)


INTERRUPTS = Collector("interrupts", ("proc/interrupts",), plain(_parser), METRICS)
