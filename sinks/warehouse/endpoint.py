"""The sink's page for probes and scrapers: /healthz, /readyz and /metrics. The only file of it that knows Prometheus'
client.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sinks.warehouse.status import Status

LOG: Final = logging.getLogger(__name__)
TEXT: Final = "text/plain; charset=utf-8"
EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"
PATIENCE_S: Final = 5.0
HANGS_S: Final = 60.0


class Endpoint:
    """Serves what `status` tells on `host`:`port` from a thread of its own until closed. Raises OSError when the port
    cannot be had.
    """

    def __init__(self, host: str, port: int, status: Callable[[], Status]) -> None:
        def answer(path: str) -> tuple[int, str, bytes]:
            now = status()
            if path == "/metrics":
                return 200, EXPOSITION, exposition(list(metrics(now)))
            reason = f"no sign of life for {now.turn_s:.0f} s\n" if now.turn_s > HANGS_S else ""
            if path == "/readyz" and now.waiting:
                reason += f"waiting: {now.waiting}\n"
            return (503 if reason else 200), TEXT, (reason or "ok\n").encode()

        class Handler(BaseHTTPRequestHandler):
            # A client that says nothing does not keep its thread.
            timeout = PATIENCE_S
            server_version = "reveal-warehouse"
            sys_version = ""

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path in ("/metrics", "/healthz", "/readyz"):
                    code, kind, body = answer(path)
                else:
                    code, kind, body = 404, TEXT, b"there is /metrics, /healthz, /readyz\n"
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Scrapes are no news."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

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


def exposition(families: Sequence[Metric]) -> bytes:
    """Prometheus' text of `families`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(families))
    text: bytes = generate_latest(registry)
    return text


def metrics(status: Status) -> Iterator[Metric]:
    """What the sink says of itself."""
    info = GaugeMetricFamily("reveal_warehouse_info", "Name and version of the sink", labels=("instance", "version"))
    info.add_metric((status.instance, status.version), 1)
    yield info
    for name, text, count in (
        ("messages", "Messages read", status.messages),
        ("inserts", "Inserts that ClickHouse confirmed", status.inserts),
        ("insert_seconds", "Time spent in them", status.insert_s),
        ("failures", "Inserts and dead letters that had to be tried again", status.failures),
        ("lost_messages", "Messages that were deleted from their topics before they were read", status.lost),
        ("rejected_uncopied", "Unreadable messages of which no dead letter was made", status.capped),
    ):
        yield CounterMetricFamily(f"reveal_warehouse_{name}", text, value=count)
    for name, text, label, counts in (
        ("rows", "Rows stored", "table", status.rows),
        ("rejected", "Messages that could not be read", "reason", status.rejected),
        ("upkeep", "Chunks of minutes and hours summed up, messages copied around episodes", "work", status.upkeep),
    ):
        counter = CounterMetricFamily(f"reveal_warehouse_{name}", text, labels=(label,))
        for key, count in counts.items():
            counter.add_metric((key,), count)
        yield counter
    lag = GaugeMetricFamily("reveal_warehouse_lag_messages", "Messages that are not read yet", labels=("topic",))
    for topic, count in status.lag.items():
        lag.add_metric((topic,), count)
    yield lag
    for name, text, value in (
        ("lag_seconds", "Age of the oldest message that is not stored yet", status.lag_s),
        ("waiting", "Whether nothing is stored at the moment", float(bool(status.waiting))),
        ("leads", "Whether it sums up minutes and copies samples", float(status.leads)),
        ("since_turn_seconds", "Time since the last turn of its loop", status.turn_s),
    ):
        yield GaugeMetricFamily(f"reveal_warehouse_{name}", text, value=value)
