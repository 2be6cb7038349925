"""NVMe controllers: their state from /sys/class/nvme, their wear and errors from their own health log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

from producers.collector import NAN, Collector, Layout, ParseError, Parser, Reading, plain
from producers.collectors.sysfs import Meaning, Sysfs
from producers.optional import optional
from producers.probe import Probe
from producers.reading import Host, Source, Texts
from producers.smart import SIZE, health_log

DIRECTORY: Final = "sys/class/nvme"
CONTROLLER: Final = re.compile(r"/?(nvme\d+)(?:/|$)")
STATES: Final = {
    b"live": 1.0,
    b"new": 2.0,
    b"connecting": 3.0,
    b"reconnecting": 3.0,
    b"resetting": 4.0,
    b"deleting": 5.0,
    b"deleting (no IO)": 5.0,
    b"dead": 6.0,
}
HEALTH: Final = (
    "nvme.critical_warning",
    "nvme.available_spare",
    "nvme.percentage_used",
    "nvme.media_errors",
)


def _describe(texts: Texts) -> Meaning:
    return Meaning({("nvme.state", _controller(path)): (path,) for path in texts})


def _states() -> Parser:
    return Sysfs(_describe, convert=lambda text: STATES.get(text.strip(), NAN))


class Smart:
    """Parser of health logs: NVM Express Base Specification 2.0, figure 207."""

    def __init__(self) -> None:
        self._paths: tuple[str, ...] = ()
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Warnings as a bit mask, shares in %, errors; a log of ones alone comes from a controller that is gone."""
        values: list[float] = []
        for log in texts.values():
            if len(log) != SIZE:
                raise ParseError(f"a health log of {len(log)} bytes, not {SIZE}")
            if log == b"\xff" * SIZE:
                values += [NAN] * len(HEALTH)
                continue
            spare = log[3] if log[3] <= 100 else NAN
            # Wear may go beyond 100 %; 255 stands for that and more.
            values += [log[0], spare, log[5], int.from_bytes(log[160:176], "little")]
        if tuple(texts) != self._paths:
            self._paths = tuple(texts)
            self._layout = Layout(tuple((metric, _controller(path)) for path in texts for metric in HEALTH))
        return self._layout, values


def _controller(path: str) -> str:
    match = CONTROLLER.search(path)
    return match[1] if match else path


def health(collector: Collector, host: Host) -> Source:
    """Asks each wanted controller on the PCIe bus; those across a network have their own host to look after them."""
    root = os.path.join(host.roots["sys"], "class/nvme")
    devices = os.path.join(host.settings.rootfs, "dev")

    def find() -> Iterator[str]:
        try:
            names = sorted(os.listdir(root))
        except FileNotFoundError:
            return
        for name in names:
            if CONTROLLER.fullmatch(name) and host.wanted("disk", name) and _local(os.path.join(root, name)):
                yield f"{DIRECTORY}/{name}"

    return Probe(collector, host, find, lambda key: health_log(os.path.join(devices, os.path.basename(key))))


def _local(directory: str) -> bool:
    try:
        with open(os.path.join(directory, "transport"), "rb") as file:
            return file.read(20).strip() in (b"pcie", b"apple-nvme")
    except OSError:
        # Kernels before 4.8 knew no other.
        return True


NVME: Final = Collector(
    "nvme",
    (f"{DIRECTORY}/nvme[0-9]*/state",),
    plain(_states),
    ("nvme.state",),
    every_ms=1000,
    source=optional,
)
SMART: Final = Collector("smart", (DIRECTORY,), plain(Smart), HEALTH, every_ms=60_000, may_block=True, source=health)
