"""/sys/bus/pci/devices: link and errors of what a PCIe link can slow down: network adapters, NVMe disks, accelerators.

Virtual functions are left out: the link is that of the physical one.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Final

from producers.collector import NAN, Collector, Layout, Parser, Reading, number, plain
from producers.collectors.sysfs import Meaning, Sysfs
from producers.optional import optional
from producers.reading import Host, Source, Texts
from producers.source import SECOND_NS

DEVICE: Final = "sys/bus/pci/devices/*"
# Class codes by their first digits: network, NVMe, display (GPUs among them), processing accelerators.
CLASSES: Final = ("0x02", "0x0108", "0x03", "0x12")
CLASSES_LAST_NS: Final = 60 * SECOND_NS
PATH: Final = re.compile(r"/([^/]+)/(\w+)$")
LANES: Final = frozenset({1, 2, 4, 8, 12, 16, 32})
SPEED: Final = re.compile(rb"(\d+(?:\.\d+)?) GT/s")
TOTAL: Final = re.compile(rb"(?:^|\n)TOTAL_ERR_\w+[ \t]+(\d+)")
LINK: Final = ("current_link_width", "max_link_width", "current_link_speed")
AER: Final = {
    "aer_dev_correctable": "pcie.aer_correctable",
    "aer_dev_fatal": "pcie.aer_fatal",
    "aer_dev_nonfatal": "pcie.aer_nonfatal",
}


class Links:
    """Parser of widths and speeds, by path."""

    def __init__(self) -> None:
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """Lanes, lanes that are not used, GT/s; a device without a link tells 0 lanes, a dead one nonsense."""
        found: dict[tuple[str, str], float] = {}
        most: dict[str, float] = {}
        for path, text in texts.items():
            device, name = _parts(path)
            if name == "current_link_width":
                found["pcie.width", device] = lanes(text)
            elif name == "max_link_width":
                most[device] = lanes(text)
            elif name == "current_link_speed":
                match = SPEED.match(text)
                found["pcie.speed", device] = float(match[1]) if match else NAN
        for device, maximum in most.items():
            lost = maximum - found.get(("pcie.width", device), NAN)
            found["pcie.width_lost", device] = lost if lost >= 0 else NAN
        if tuple(found) != self._layout.channels:
            self._layout = Layout(tuple(found))
        return self._layout, list(found.values())


def _describe_errors(texts: Texts) -> Meaning:
    parts = {path: _parts(path) for path in texts}
    return Meaning({(AER[name], device): (path,) for path, (device, name) in parts.items() if name in AER})


def errors(text: bytes) -> float:
    """Errors that a device reports, all kinds together; NaN where the total is missing."""
    match = TOTAL.search(text)
    return number(match[1]) if match else NAN


def _errors() -> Parser:
    return Sysfs(_describe_errors, convert=errors)


def lanes(text: bytes) -> float:
    """A width that a link can have, NaN for any other."""
    width = number(text)
    return width if width in LANES else NAN


def _parts(path: str) -> tuple[str, str]:
    match = PATH.search(path)
    return (match[1], match[2]) if match else ("", "")


def chosen(collector: Collector, host: Host) -> Source:
    """Reads the files of devices of the classes that matter."""
    root = os.path.join(host.roots["sys"], "bus/pci/devices")
    verdicts: dict[str, bool] = {}
    stale_ns = 0

    def wanted(dimension: str, device: str) -> bool:
        nonlocal stale_ns
        # Another card may have come to the same address.
        if (now_ns := host.clock()) >= stale_ns:
            verdicts.clear()
            stale_ns = now_ns + CLASSES_LAST_NS
        if device not in verdicts:
            verdicts[device] = _matters(os.path.join(root, device))
        return verdicts[device]

    return optional(collector, replace(host, wanted=wanted))


def _matters(directory: str) -> bool:
    try:
        with open(os.path.join(directory, "class")) as file:
            code = file.read(20)
    except (OSError, UnicodeDecodeError):
        return False
    return code.startswith(CLASSES) and not os.path.exists(os.path.join(directory, "physfn"))


PCIE: Final = Collector(
    "pcie",
    tuple(f"{DEVICE}/{name}" for name in LINK),
    plain(Links),
    ("pcie.width", "pcie.width_lost", "pcie.speed"),
    every_ms=5000,
    may_block=True,
    per="device",
    source=chosen,
)
PCIE_ERRORS: Final = Collector(
    "pcie_errors",
    tuple(f"{DEVICE}/{name}" for name in AER),
    plain(_errors),
    tuple(AER.values()),
    every_ms=1000,
    may_block=True,
    per="device",
    source=chosen,
)
