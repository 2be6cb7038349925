"""Numbers that have a file each, and names for them in constant files beside them, as /sys has it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from producers.collector import NAN, Layout, Reading, number
from producers.reading import Texts

LABELS: Final = ("/name", "/type", "_id", "_label", "_range_uj")
"""Ends of the paths of constant files."""
LONGEST: Final = 60

Channel: TypeAlias = tuple[str, str]
Combine: TypeAlias = Callable[[Sequence[float]], float]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What files mean.

    channels  the paths whose numbers make a channel
    wraps     range of a counter, by channel, where a file names it
    """

    channels: Mapping[Channel, Sequence[str]]
    wraps: Mapping[Channel, float] = field(default_factory=dict)


class Sysfs:
    """Parser of such files.

    describe  says what they mean: asked anew when there are other files or other constants
    combine   from the numbers of a channel's files to the one that it shows
    convert   from the text of a file to its number
    """

    def __init__(
        self,
        describe: Callable[[Texts], Meaning],
        combine: Combine = sum,
        convert: Callable[[bytes], float] = number,
    ) -> None:
        self._describe = describe
        self._combine = combine
        self._convert = convert
        self._paths: tuple[str, ...] = ()
        self._constants: dict[str, bytes] = {}
        self._groups: tuple[tuple[str, ...], ...] = ()
        self._single = True
        self._layout = Layout(())

    def __call__(self, texts: Texts) -> Reading:
        """A number for each channel; a text that is none is NaN."""
        if tuple(texts) != self._paths or any(texts[path] != text for path, text in self._constants.items()):
            self._learn(texts)
        convert = self._convert
        if self._single:
            return self._layout, [convert(texts[path]) for (path,) in self._groups]
        return self._layout, [self._combine([convert(texts[path]) for path in group]) for group in self._groups]

    def _learn(self, texts: Texts) -> None:
        meaning = self._describe(texts)
        self._paths = tuple(texts)
        self._constants = {path: text for path, text in texts.items() if path.endswith(LABELS)}
        self._groups = tuple(tuple(paths) for paths in meaning.channels.values())
        self._single = self._combine is sum and all(len(group) == 1 for group in self._groups)
        channels = tuple(meaning.channels)
        if channels != self._layout.channels or meaning.wraps != self._layout.wraps:
            self._layout = Layout(channels, wraps=meaning.wraps)


def highest(numbers: Sequence[float]) -> float:
    """The highest of those that are there, NaN if none is."""
    return max((value for value in numbers if not math.isnan(value)), default=NAN)


def words(text: bytes) -> str:
    """What a name or label says, on one line and of bounded length."""
    return " ".join(text.replace(b"\0", b" ").decode("utf-8", "replace").split())[:LONGEST]


def distinct(names: Iterable[str]) -> list[str]:
    """`names` made different from each other: the second fan is fan#2."""
    result: list[str] = []
    seen: Counter[str] = Counter()
    taken: set[str] = set()
    for name in names:
        seen[name] += 1
        unique = name if seen[name] == 1 else f"{name}#{seen[name]}"
        while unique in taken:
            seen[name] += 1
            unique = f"{name}#{seen[name]}"
        taken.add(unique)
        result.append(unique)
    return result
