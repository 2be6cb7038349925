"""The agent's page for probes and scrapers: /healthz, /readyz, /metrics (itself) and /telemetry (the last second).

The only file of this service that knows Prometheus' client.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from producers.status import Status
from schemas.catalogue import catalogue
from schemas.records import Telemetry

log = logging.getLogger(__name__)

TEXT: Final = "text/plain; charset=utf-8"
EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE_S: Final = 5.0


class Endpoint:
    """Serves on `host`:`port` from a thread of its own until closed. Raises OSError when the port cannot be had.

    status  makes the picture that is served
    latest  the records of the last batch
    """

    def __init__(
        self, host: str, port: int, status: Callable[[], Status], latest: Callable[[], Sequence[Telemetry]]
    ) -> None:
        def metrics() -> tuple[int, str, bytes]:
            return 200, EXPOSITION, exposition(own_metrics(status()))

        def telemetry() -> tuple[int, str, bytes]:
            return 200, EXPOSITION, exposition(telemetry_metrics(latest()))

        def alive() -> tuple[int, str, bytes]:
            return _verdict(status().ailments(), status())

        def ready() -> tuple[int, str, bytes]:
            return _verdict(status().obstacles(), status())

        pages = {"/metrics": metrics, "/telemetry": telemetry, "/healthz": alive, "/readyz": ready}

        class Handler(BaseHTTPRequestHandler):
            # A client that says nothing does not keep its thread.
            timeout = PATIENCE_S
            server_version = "reveal-agent"
            sys_version = ""

            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                if page is None:
                    code, kind, body = 404, TEXT, f"there is {', '.join(pages)}\n".encode()
                else:
                    try:
                        code, kind, body = page()
                    except Exception:
                        log.exception("%s cannot be served", self.path)
                        code, kind, body = 500, TEXT, b"a fault of the agent; its log says which\n"
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Scrapes are no news."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """A client that went away is no news either."""

        self._server = Server((host, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)


class _Once(Collector):
    """Hands families to a registry."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def exposition(families: Iterator[Metric]) -> bytes:
    """Prometheus' text of `families`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(list(families)))
    text: bytes = generate_latest(registry)
    return text


def own_metrics(status: Status) -> Iterator[Metric]:
    """What the agent says of itself."""
    build = GaugeMetricFamily(
        "reveal_agent_info", "Version of the agent and the host it speaks for", labels=("host", "version")
    )
    build.add_metric((status.host, status.version), 1)
    yield build
    vitals = status.vitals
    for name, text, count in (
        ("samples", "Samples taken", status.samples),
        ("missed_samples", "Samples that were due and could not be taken", status.missed),
        ("dropped_samples", "Samples that could not be taken or kept", vitals.dropped),
        ("batches", "Batches published", status.batches),
        ("messages_delivered", "Messages that Kafka acknowledged", status.delivered),
        ("messages_failed", "Messages that Kafka refused for good", status.failed),
    ):
        yield CounterMetricFamily(f"reveal_agent_{name}", text, value=count)
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
            yield GaugeMetricFamily(f"reveal_agent_{name}", text, value=float(value))
    errors = CounterMetricFamily(
        "reveal_agent_collector_errors", "Failures to read or to understand", labels=("collector",)
    )
    for name, count in status.errors.items():
        errors.add_metric((name,), count)
    yield errors
    costs = CounterMetricFamily("reveal_agent_collector_cpu_seconds", "Processor time spent", labels=("collector",))
    for name, seconds in status.costs.items():
        costs.add_metric((name,), seconds)
    yield costs
    problems = GaugeMetricFamily(
        "reveal_agent_problem", "What cannot be read, 1 each", labels=("collector", "path", "kind", "reason")
    )
    for found in status.problems:
        problems.add_metric((found.collector, found.path, found.kind, found.reason), 1)
    yield problems


def telemetry_metrics(records: Sequence[Telemetry]) -> Iterator[Metric]:
    """The mean over the last batch of every channel. Rates are per second, as in the catalogue, so all are gauges."""
    metrics = catalogue()
    for record in records:
        for name, matrix in record.metrics.items():
            metric = metrics[name]
            labels = () if metric.dimension == "host" else (metric.dimension,)
            family = GaugeMetricFamily(f"reveal_{metric.field}", f"{metric.doc} ({metric.unit})", labels=labels)
            present = ~np.isnan(matrix)
            sums, counts = np.where(present, matrix, 0).sum(axis=0), present.sum(axis=0)
            for instance, total, count in zip(
                record.instances[metric.dimension], sums.tolist(), counts.tolist(), strict=True
            ):
                if count:
                    family.add_metric((instance,) if labels else (), total / count)
            if family.samples:
                yield family


def _verdict(reasons: Sequence[str], status: Status) -> tuple[int, str, bytes]:
    lines = reasons or ["ok"]
    remarks = [
        f"{found.collector}: {found.path} is {found.kind}: {found.reason}"
        for found in status.problems
        if found.kind == "hung"
    ]
    return (503 if reasons else 200), TEXT, "".join(f"{line}\n" for line in [*lines, *remarks, *status.notes]).encode()
