"""What a collector is: which files to read, how to parse them, which metrics come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from producers.reading import Host, Source, Texts, Wanted, everything

NAN: Final = float("nan")
Derive: TypeAlias = Callable[[Mapping[str, NDArray[np.float64]]], Mapping[str, NDArray[np.float64]]]


class ParseError(ValueError):
    """A text that the source's parser cannot use at all; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Which channels a reading has; compared by identity, so a parser keeps one as long as it stays the same.

    channels  (metric, instance) of each value
    flaws     parts of the text that had to be left out, in words
    notes     what a person should know of the source, in words
    wraps     range of a counter, by channel, where the source itself names it
    """

    channels: tuple[tuple[str, str], ...]
    flaws: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    wraps: Mapping[tuple[str, str], float] = field(default_factory=dict)


Reading: TypeAlias = tuple[Layout, list[float]]


class Parser(Protocol):
    """Texts of the files of a source, by path, to a reading: raw counter values and gauges, NaN where absent.

    Values depend on the texts alone; what a parser remembers (positions, the last lines) makes it faster, and may
    decide which of many instances, such as sources of interrupts, are worth a channel.
    Raises ParseError, ValueError or IndexError when nothing can be used.
    """

    def __call__(self, texts: Texts) -> Reading:
        """Parse one sample."""


class MakeParser(Protocol):
    """What makes a parser."""

    def __call__(self, wanted: Wanted = everything) -> Parser:
        """A parser that may leave out what is not wanted."""


@dataclass(frozen=True, slots=True)
class Collector:
    """One source, or a few files of one kind.

    name       as used in the setting `disable`
    files      paths such as proc/stat or sys/devices/system/node/node[0-9]*/meminfo; the first part names a root
    parser     makes the parser, which leaves out instances that are not wanted if it can save work by that; `plain`
               for one that cannot
    metrics    every metric it can fill, derived ones included
    constants  files beside them that say what they are (names, labels, ranges): read at every look for files, not at
               every reading, and not kept open. Nobody misses one that is not there
    every_ms   time between readings; 0 is every sample
    may_block  reading can hang in a driver, so it has a thread of its own
    per        dimension whose instances the first `*` of the files stands for: unwanted ones are not even opened
    source     makes the source when it is no set of files: counters of the processor, a process, a socket. Its `read`
               gives bytes under keys of its own, which `parser` takes apart
    defines    dimension whose instances are those that this collector sees, whatever other sources list
    scales     factor from raw to published unit, by metric
    wraps      range of counters that are declared narrower than 64 bit, by metric
    falls      how far a counter may fall and still be no reset, raw unit, by metric
    derive     rates and gauges by metric, (samples, instances) each, to the metrics made from them
    """

    name: str
    files: tuple[str, ...]
    parser: MakeParser
    metrics: tuple[str, ...]
    constants: tuple[str, ...] = ()
    every_ms: int = 0
    may_block: bool = False
    per: str = ""
    source: Callable[[Collector, Host], Source] | None = None
    defines: str = ""
    scales: Mapping[str, float] = field(default_factory=dict)
    wraps: Mapping[str, float] = field(default_factory=dict)
    falls: Mapping[str, float] = field(default_factory=dict)
    derive: Derive | None = None


def plain(parser: Callable[[], Parser]) -> MakeParser:
    """A maker of parsers that have no use for what is wanted."""
    return lambda wanted=everything: parser()


def number(token: bytes) -> float:
    """Integer in `token`, NaN for any other text: unreadable is absent."""
    try:
        return int(token)
    except ValueError:
        return NAN


def only(texts: Texts) -> bytes:
    """The text of a source that has one file."""
    (text,) = texts.values()
    return text
