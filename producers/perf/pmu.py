"""Units that count, as /sys/bus/event_source/devices describes them: type, formats, events, scales, CPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from producers.perf.kernel import Event

Bits: TypeAlias = tuple[str, tuple[tuple[int, int], ...]]
"""A field of an event's code: the word it is in, and its ranges of bits, first and last, lowest value bits first."""

WORDS: Final = ("config", "config1", "config2")
DEVICES: Final = "bus/event_source/devices"


def cpu_list(text: bytes) -> tuple[int, ...]:
    """CPUs of a list such as 0-3,8. Raises ValueError for anything else."""
    cpus: set[int] = set()
    for part in text.split(b","):
        first, dash, last = part.strip().partition(b"-")
        if part.strip():
            cpus.update(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(cpus))


def field_bits(text: bytes) -> Bits:
    """Bits of a format file such as "config:0-7,32-35". Raises ValueError."""
    word, colon, ranges = text.decode("ascii").strip().partition(":")
    if word not in WORDS or not colon:
        raise ValueError(f"{text!r} is no format of an event")
    found = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < 64:
            raise ValueError(f"{text!r} names bits that a word has not")
        found.append((low, high))
    return word, tuple(found)


def encode(text: bytes, fields: Mapping[str, Bits]) -> dict[str, int]:
    """Words of an event such as "event=0x3c,umask=0x1,edge": a term without a value is 1. Raises ValueError."""
    words = dict.fromkeys(WORDS, 0)
    for term in text.decode("ascii").strip().split(","):
        name, equals, digits = term.strip().partition("=")
        value = int(digits, 0) if equals else 1
        if value < 0:
            raise ValueError(f"{term!r} has a negative value")
        if name in WORDS:
            words[name] |= value
            continue
        if name not in fields:
            raise ValueError(f"there is no format of {name!r}")
        word, ranges = fields[name]
        for low, high in ranges:
            width = high - low + 1
            words[word] |= (value & ((1 << width) - 1)) << low
            value >>= width
        if value:
            raise ValueError(f"{term!r} is wider than its bits")
    return words


@dataclass(frozen=True, slots=True)
class Pmu:
    """One unit. `cpus` are those that count for what the unit belongs to, such as one a socket; None is every CPU."""

    name: str
    type: int
    fields: Mapping[str, Bits]
    events: frozenset[str]
    cpus: tuple[int, ...] | None
    path: Path

    def event(self, metric: str, name: str, scale: float = 1.0) -> Event:
        """Event `name` of the kernel's list, counted as `metric`. Raises OSError and ValueError."""
        return self.coded(metric, (self.path / "events" / name).read_bytes(), scale)

    def coded(self, metric: str, text: bytes, scale: float = 1.0) -> Event:
        """An event of this unit by its terms. Raises ValueError."""
        words = encode(text, self.fields)
        return Event(metric, self.type, words["config"], words["config1"], words["config2"], scale)

    def scale(self, name: str) -> tuple[float, str]:
        """What a count of event `name` is worth, and the unit: 1 and no unit if the kernel says nothing.

        Raises OSError and ValueError.
        """
        folder = self.path / "events"
        scale = float(folder.joinpath(f"{name}.scale").read_text()) if f"{name}.scale" in self.events else 1.0
        unit = folder.joinpath(f"{name}.unit").read_text().strip() if f"{name}.unit" in self.events else ""
        return scale, unit


def pmu_names(sysfs: str) -> Sequence[str]:
    """Names of all units; none where sysfs does not show them."""
    try:
        return sorted(os.listdir(Path(sysfs, DEVICES)))
    except OSError:
        return ()


def read_pmu(sysfs: str, name: str) -> Pmu:
    """What the kernel says of the unit `name`. Raises OSError and ValueError."""
    path = Path(sysfs, DEVICES, name)
    fields = {}
    for field in _names(path / "format"):
        try:
            fields[field] = field_bits((path / "format" / field).read_bytes())
        except ValueError:
            # A word of a later kernel: events that need it are refused, others are not.
            continue
    cpus = cpu_list((path / "cpumask").read_bytes()) if (path / "cpumask").exists() else None
    return Pmu(name, int((path / "type").read_bytes()), fields, frozenset(_names(path / "events")), cpus, path)


def _names(path: Path) -> Sequence[str]:
    return sorted(os.listdir(path)) if path.is_dir() else ()
