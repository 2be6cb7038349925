"""/proc/interrupts: interrupts of each CPU by kind, and of the busiest devices by themselves."""

from __future__ import annotations

import re
from typing import Final

from producers.collector import Collector, Layout, Parser, Reading, plain
from producers.collectors.cputable import CpuTable
from producers.collectors.irqsources import IrqSources
from producers.reading import Texts

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
    "cpu.irq.source",
    "cpu.irq.source_top_pct",
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


class Interrupts:
    """Parser of /proc/interrupts."""

    def __init__(self) -> None:
        self._table = CpuTable(classify)
        self._sources = IrqSources()
        self._parts: tuple[Layout, tuple[tuple[str, str], ...]] = (Layout(()), ())
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Counts of the table, then of the sources."""
        table, values = self._table(texts)
        values += self._sources(self._table.rows)
        channels = self._sources.channels
        if table is not self._parts[0] or channels is not self._parts[1]:
            self._parts = table, channels
            self._layout = Layout(table.channels + channels, table.flaws, table.notes)
        return self._layout, values


def _parser() -> Parser:
    return Interrupts()


INTERRUPTS = Collector("interrupts", ("proc/interrupts",), plain(_parser), METRICS)
