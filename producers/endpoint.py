"""The agent's pages for probes and scrapers: /healthz, /readyz, /metrics (itself) and /telemetry (the last second)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pages.exposition import Metric, counter, gauge
from pages.site import TEXT, Answer, Site, exposed
from producers.status import Status
from schemas.catalogue import catalogue
from schemas.records import Telemetry


def site(status: Callable[[], Status], latest: Callable[[], Sequence[Telemetry]]) -> Site:
    """Pages of what `status` tells, and of `latest`, the records of the last batch."""

    def alive() -> Answer:
        now = status()
        return _verdict(now.ailments(), now)

    def ready() -> Answer:
        now = status()
        return _verdict(now.obstacles(), now)

    pages = {
        "/telemetry": lambda _: exposed(telemetry_metrics(latest())),
        "/healthz": lambda _: alive(),
        "/readyz": lambda _: ready(),
    }
    return Site("agent", lambda: own_metrics(status()), pages)


def own_metrics(status: Status) -> Iterator[Metric]:
    """What the agent says of itself."""
    who = {(status.host, status.version): 1}
    yield gauge("reveal_agent_info", "Version of the agent and the host it speaks for", who, ("host", "version"))
    vitals = status.vitals
    for name, text, count in (
        ("samples", "Samples taken", status.samples),
        ("missed_samples", "Samples that were due and could not be taken", status.missed),
        ("dropped_samples", "Samples that could not be taken or kept", vitals.dropped),
        ("batches", "Batches published", status.batches),
        ("messages_delivered", "Messages that Kafka acknowledged", status.delivered),
        ("messages_failed", "Messages that Kafka refused for good", status.failed),
    ):
        yield counter(f"reveal_agent_{name}", text, count)
    for name, text, value in (
        ("period_seconds", "Current sampling period", vitals.period_ms / 1000),
        ("sample_duration_seconds", "Time that the last sample took to read", vitals.sample_ms / 1000),
        ("since_sample_seconds", "Time since the last sample", status.since_sample_s),
        ("messages_waiting", "Messages in memory that are not acknowledged yet", status.waiting),
        ("messages_spooled", "Messages that wait on disk", vitals.spooled),
        ("collectors_shed", "Collectors switched off to stay within the budget", vitals.shed),
        ("sources_failing", "Files and devices that cannot be read at the moment", vitals.failing),
        ("sources_hung", "Sources whose answer is overdue", vitals.hung),
        ("kafka_reachable", "Whether Kafka answers", status.reachable),
    ):
        if value is not None:
            yield gauge(f"reveal_agent_{name}", text, float(value))
    by_collector = ("collector",)
    yield counter("reveal_agent_collector_errors", "Failures to read or to understand", status.errors, by_collector)
    yield counter("reveal_agent_collector_cpu_seconds", "Processor time spent", status.costs, by_collector)
    problems = {(found.collector, found.path, found.kind, found.reason): 1 for found in status.problems}
    labels = ("collector", "path", "kind", "reason")
    yield gauge("reveal_agent_problem", "What cannot be read, 1 each", problems, labels)


def telemetry_metrics(records: Sequence[Telemetry]) -> Iterator[Metric]:
    """The mean over the last batch of every channel. Rates are per second, as in the catalogue, so all are gauges."""
    metrics = catalogue()
    for record in records:
        for name, matrix in record.metrics.items():
            metric = metrics[name]
            labels = () if metric.dimension == "host" else (metric.dimension,)
            present = ~np.isnan(matrix)
            sums, counts = np.where(present, matrix, 0).sum(axis=0), present.sum(axis=0)
            instances = record.instances[metric.dimension]
            means: dict[tuple[str, ...], float] = {
                (instance,) if labels else (): total / count
                for instance, total, count in zip(instances, sums.tolist(), counts.tolist(), strict=True)
                if count
            }
            if means:
                yield gauge(f"reveal_{metric.field}", f"{metric.doc} ({metric.unit})", means, labels)


def _verdict(reasons: Sequence[str], status: Status) -> Answer:
    lines = reasons or ["ok"]
    remarks = [
        f"{found.collector}: {found.path} is {found.kind}: {found.reason}"
        for found in status.problems
        if found.kind == "hung"
    ]
    return Answer(503 if reasons else 200, TEXT, "".join(f"{line}\n" for line in [*lines, *remarks, *status.notes]))
