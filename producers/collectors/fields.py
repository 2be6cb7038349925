"""Numbers at token positions that are learnt once.

Splitting a text once and picking known positions is twice as fast as building a dictionary a sample. Kernels differ in
which rows and columns they have, so positions come from names, and the names are looked at again in every sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

from producers.collector import Layout, Reading, number


class Found(Protocol):
    """Receives what a text holds."""

    def __call__(self, name: str, position: int, guards: Sequence[int]) -> None:
        """Field `name` has its value at token `position`, as long as the tokens at `guards` stay the same."""


class Fields:
    """Parses texts whose numbers have names.

    find     walks a text and calls `found` for each named number; returns flaws in words
    choose   from the names found to (metric, instance) and the names whose values add up to it
    convert  from a token to a number
    """

    def __init__(
        self,
        find: Callable[[bytes, Found], Sequence[str]],
        choose: Callable[[Sequence[str]], Mapping[tuple[str, str], Sequence[str]]],
        convert: Callable[[bytes], float] = int,
    ) -> None:
        self._find = find
        self._choose = choose
        self._convert = convert
        self._count = -1
        self._guards: tuple[bytes, ...] = ()
        self._guarded: Callable[[Any], Any] = tuple
        self._picked: Callable[[Any], Any] = tuple
        self._sums: tuple[tuple[int, int], ...] = ()
        self._layout = Layout(())

    def __call__(self, text: bytes) -> Reading:
        """Reading of one text."""
        tokens = text.split()
        if len(tokens) != self._count or self._guarded(tokens) != self._guards:
            self._learn(text, tokens)
        try:
            values = list(map(self._convert, self._picked(tokens)))
        except ValueError:
            values = [number(token) for token in self._picked(tokens)]
        if not self._sums:
            return self._layout, values
        # Single values come first, then the terms of each sum.
        start = self._sums[0][0]
        return self._layout, values[:start] + [sum(values[first:last]) for first, last in self._sums]

    def _learn(self, text: bytes, tokens: list[bytes]) -> None:
        positions: dict[str, int] = {}
        guarded: dict[str, Sequence[int]] = {}

        def found(name: str, position: int, guards: Sequence[int]) -> None:
            positions.setdefault(name, position)
            guarded.setdefault(name, guards)

        flaws = tuple(self._find(text, found))
        chosen = {channel: names for channel, names in self._choose(list(positions)).items() if names}
        single = {channel: names[0] for channel, names in chosen.items() if len(names) == 1}
        summed = {channel: names for channel, names in chosen.items() if len(names) > 1}
        order = [*single.values(), *(name for names in summed.values() for name in names)]
        sums, start = [], len(single)
        for names in summed.values():
            sums.append((start, start + len(names)))
            start += len(names)
        self._count = len(tokens)
        self._guarded = _picker(sorted({position for name in order for position in guarded[name]}))
        self._guards = self._guarded(tokens)
        self._picked = _picker([positions[name] for name in order])
        self._sums = tuple(sums)
        channels = (*single, *summed)
        if channels != self._layout.channels or flaws != self._layout.flaws:
            self._layout = Layout(channels, flaws)


def _picker(positions: Sequence[int]) -> Callable[[Sequence[bytes]], tuple[bytes, ...]]:
    """Picks several tokens as a tuple, whatever their number."""
    if not positions:
        return lambda tokens: ()
    if len(positions) == 1:
        (position,) = positions
        return lambda tokens: (tokens[position],)
    pick: Callable[[Sequence[bytes]], tuple[bytes, ...]] = itemgetter(*positions)
    return pick


def host_metrics(names: Mapping[str, str]) -> Callable[[Sequence[str]], dict[tuple[str, str], tuple[str, ...]]]:
    """A `choose` for fields that are one metric of the host each; `names` maps metric to field."""

    def choose(found: Sequence[str]) -> dict[tuple[str, str], tuple[str, ...]]:
        known = frozenset(found)
        return {(metric, ""): (name,) for metric, name in names.items() if name in known}

    return choose


def find_lines(text: bytes, found: Found) -> tuple[str, ...]:
    """Walks lines of `name number`, as in vmstat and numastat."""
    position = 0
    for line in text.splitlines():
        tokens = line.split()
        if len(tokens) == 2:
            found(tokens[0].decode("ascii", "replace"), position + 1, (position,))
        position += len(tokens)
    return ()
