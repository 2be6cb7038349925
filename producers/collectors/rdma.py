"""Queue pairs of each RDMA device, which the kernel tells by netlink alone.

The kernel counts them by device; one with a single port, as nearly all are, gives them under the name of that port.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from producers.collector import Collector, Layout, Reading, number, plain
from producers.netlink import rdma_resources
from producers.probe import Probe
from producers.reading import Host, Source, Texts

DIRECTORY: Final = "sys/class/infiniband"


class Rdma:
    """Parser of counts by port or device."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Queue pairs."""
        names = tuple(path.removeprefix(f"{DIRECTORY}/") for path in texts)
        if names != self._names:
            self._names = names
            self._layout = Layout(tuple(("ib.qp_count", name) for name in names))
        return self._layout, [number(text) for text in texts.values()]


def queue_pairs(
    collector: Collector, host: Host, resources: Callable[[], Mapping[str, Mapping[str, int]]] = rdma_resources
) -> Source:
    """Asks for the counts of all devices at once, where there is any device."""
    root = os.path.join(host.roots["sys"], "class/infiniband")
    counts: dict[str, bytes] = {}

    def find() -> Iterator[str]:
        counts.clear()
        # Without a device, asking would make the kernel load its RDMA modules.
        if not os.path.isdir(root) or not os.listdir(root):
            return
        for device, kinds in resources().items():
            if "qp" in kinds:
                counts[f"{DIRECTORY}/{_instance(root, device)}"] = b"%d" % kinds["qp"]
        yield from list(counts)

    return Probe(collector, host, find, lambda key: counts[key])


def _instance(root: str, device: str) -> str:
    try:
        ports = os.listdir(os.path.join(root, device, "ports"))
    except OSError:
        ports = []
    return f"{device}/{ports[0]}" if len(ports) == 1 else device


RDMA: Final = Collector(
    "rdma", (DIRECTORY,), plain(Rdma), ("ib.qp_count",), every_ms=2000, may_block=True, source=queue_pairs
)
