"""Families of metrics, and Prometheus' text of them. The only file that knows Prometheus' client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["KIND", "Metric", "counter", "exposition", "gauge"]

KIND: Final = "text/plain; version=0.0.4; charset=utf-8"

Key = TypeVar("Key", bound=str | tuple[str, ...])
"""Value of the one label of a family, or of all of them."""


def counter(name: str, text: str, values: float | Mapping[Key, float], labels: Sequence[str] = ()) -> Metric:
    """What only grows: one value, or one by its labels. `_total` is added to its name."""
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def gauge(name: str, text: str, values: float | Mapping[Key, float], labels: Sequence[str] = ()) -> Metric:
    """What goes up and down: one value, or one by its labels."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def exposition(families: Iterable[Metric]) -> str:
    """Prometheus' text of `families`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(list(families)))
    return generate_latest(registry).decode()


class _Once(Collector):
    """Hands families to a registry."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: float | Mapping[Key, float]) -> Metric:
    if isinstance(values, Mapping):
        for key, value in values.items():
            family.add_metric((key,) if isinstance(key, str) else key, value)
    else:
        family.add_metric((), values)
    return family
