"""Units that people think in, instead of those that the kernel and devices count in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_HUMANE: Final[Mapping[str, tuple[float, str]]] = {
    "kB": (1024.0, "B"),
    "KiB/s": (1024.0, "B/s"),
    "MiB/s": (1024.0**2, "B/s"),
    "sectors/s": (512.0, "B/s"),
    "kHz": (1e3, "Hz"),
    "MHz": (1e6, "Hz"),
    "mW": (1e-3, "W"),
    "mJ/s": (1e-3, "W"),
    "uW": (1e-6, "W"),
    "uJ/s": (1e-6, "W"),
    "mC": (1e-3, "°C"),
    "C": (1.0, "°C"),
    # Time a second is a share of the time.
    "s/s": (100.0, "%"),
    "ms/s": (0.1, "%"),
    "us/s": (1e-4, "%"),
    "ns/s": (1e-7, "%"),
}
PREFIXED: Final = frozenset({"B", "B/s", "Hz", "W"})
"""Units that take k, M, G and T before them."""
PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def humane(unit: str) -> tuple[float, str]:
    """What a value in `unit` is to be multiplied by, and the unit that it then has."""
    return _HUMANE.get(unit, (1.0, unit))
