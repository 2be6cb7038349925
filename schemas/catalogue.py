"""The metric catalogue, read from the telemetry schemas: one row owns a metric."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

SUBSYSTEMS = ("cpu", "gpu", "memory", "network", "storage")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the catalogue.

    name       dotted name, such as cpu.time.user
    field      its field in the Avro record, such as cpu_time_user
    subsystem  one of SUBSYSTEMS
    unit       unit of the published value; a counter is published as its rate, so its unit ends in /s
    kind       counter, gauge or state
    dimension  what its instances are: host (one, named ""), core, node, interface, disk, gpu, ...
    source     where it is read
    doc        what it reveals
    scored     whether detectors look at it: false for what the agent says of itself and for bit masks
    """

    name: str
    field: str
    subsystem: str
    unit: str
    kind: str
    dimension: str
    source: str
    doc: str
    scored: bool = True


@cache
def schema_text(name: str) -> str:
    """Text of the current schema `name` (cpu, ..., verdict, anomaly, dead, state, event)."""
    return resources.files("schemas").joinpath("avro", f"{name}.avsc").read_text(encoding="utf-8")


@cache
def catalogue() -> Mapping[str, Metric]:
    """All metrics by name, in the order of the schemas."""
    metrics: dict[str, Metric] = {}
    for subsystem in SUBSYSTEMS:
        for metric in metrics_of(subsystem, json.loads(schema_text(subsystem))):
            if metric.name in metrics:
                raise ValueError(f"metric {metric.name} is declared twice")
            metrics[metric.name] = metric
    return metrics


@cache
def subsystem_metrics(subsystem: str) -> Mapping[str, Metric]:
    """Metrics of one subsystem, by name."""
    return {name: metric for name, metric in catalogue().items() if metric.subsystem == subsystem}


def metrics_of(subsystem: str, schema: Mapping[str, Any]) -> list[Metric]:
    """Metrics that a telemetry schema declares: its fields that carry a `metric` attribute."""
    return [
        Metric(
            name=field["metric"],
            field=field["name"],
            subsystem=subsystem,
            unit=field["unit"],
            kind=field["kind"],
            dimension=field["dimension"],
            source=field["source"],
            doc=field["doc"],
            scored=field.get("scored", True),
        )
        for field in schema["fields"]
        if "metric" in field
    ]
