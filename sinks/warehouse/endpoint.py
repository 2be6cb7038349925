"""The sink's pages for probes and scrapers: /healthz, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pages.exposition import Metric, counter, gauge
from pages.site import TEXT, Answer, Site
from sinks.warehouse.status import Status

HANGS_S: Final = 60.0


def site(status: Callable[[], Status]) -> Site:
    """Pages of what `status` tells."""
    pages = {"/healthz": lambda _: _health(status(), ready=False), "/readyz": lambda _: _health(status(), ready=True)}
    return Site("warehouse", lambda: metrics(status()), pages)


def metrics(status: Status) -> Iterator[Metric]:
    """What the sink says of itself."""
    who = {(status.instance, status.version): 1}
    yield gauge("reveal_warehouse_info", "Name and version of the sink", who, ("instance", "version"))
    for name, text, count in (
        ("messages", "Messages read", status.messages),
        ("inserts", "Inserts that ClickHouse confirmed", status.inserts),
        ("insert_seconds", "Time spent in them", status.insert_s),
        ("failures", "Inserts and dead letters that had to be tried again", status.failures),
        ("lost_messages", "Messages that were deleted from their topics before they were read", status.lost),
        ("rejected_uncopied", "Unreadable messages of which no dead letter was made", status.capped),
    ):
        yield counter(f"reveal_warehouse_{name}", text, count)
    for name, text, label, counts in (
        ("rows", "Rows stored", "table", status.rows),
        ("rejected", "Messages that could not be read", "reason", status.rejected),
        ("upkeep", "Chunks of minutes and hours summed up, messages copied around episodes", "work", status.upkeep),
    ):
        yield counter(f"reveal_warehouse_{name}", text, counts, (label,))
    yield gauge("reveal_warehouse_lag_messages", "Messages that are not read yet", status.lag, ("topic",))
    for name, text, value in (
        ("lag_seconds", "Age of the oldest message that is not stored yet", status.lag_s),
        ("waiting", "Whether nothing is stored at the moment", float(bool(status.waiting))),
        ("leads", "Whether it sums up minutes and copies samples", float(status.leads)),
        ("since_turn_seconds", "Time since the last turn of its loop", status.turn_s),
    ):
        yield gauge(f"reveal_warehouse_{name}", text, value)


def _health(status: Status, *, ready: bool) -> Answer:
    reason = f"no sign of life for {status.turn_s:.0f} s\n" if status.turn_s > HANGS_S else ""
    if ready and status.waiting:
        reason += f"waiting: {status.waiting}\n"
    return Answer(503 if reason else 200, TEXT, reason or "ok\n")
