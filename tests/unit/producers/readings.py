"""Short ways to parse a text and to look at the values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from producers.collector import Collector, Reading
from producers.rates import Rates
from producers.reading import Texts
from schemas.catalogue import catalogue

Values = dict[tuple[str, str], float]


def values(reading: Reading) -> Values:
    """A reading by channel."""
    layout, cells = reading
    assert len(layout.channels) == len(cells) == len(set(layout.channels))
    return dict(zip(layout.channels, cells, strict=True))


def parse(collector: Collector, *texts: bytes) -> Values:
    """Raw values of the first files of `collector`, with a fresh parser."""
    return values(collector.parser()(dict(zip(collector.files, texts, strict=False))))


def rates(collector: Collector, *samples: bytes, seconds: float = 1.0) -> list[Values]:
    """Published values of a source with one file, sampled every `seconds`; derived metrics left out."""
    texts: Sequence[Texts] = [{collector.files[0]: sample} for sample in samples]
    parser, keeper = collector.parser(), Rates(collector, catalogue())
    result = []
    for index, text in enumerate(texts):
        layout, cells = parser(text)
        published = keeper(layout, np.array([100.0 + index * seconds]), np.array([cells], float))
        result.append(dict(zip(layout.channels, published[0].tolist(), strict=True)))
    return result
