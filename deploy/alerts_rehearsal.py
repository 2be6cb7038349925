"""`reveal alerts test`: the engine over the episodes that ClickHouse holds, in their own time, sending nothing."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from deploy.alerts import AlertsError, unpadded, width
from deploy.answers import AnswerError, opened
from schemas.records import Alert, Episode
from schemas.settings import ClickHouseSettings
from sinks.alerts.channels.options import missing_variables
from sinks.alerts.duration import SECOND_NS, in_words
from sinks.alerts.engine import Engine
from sinks.alerts.notification import DELIVERED, Notification, Outcome
from sinks.alerts.routing import Routing
from sinks.alerts.routing_file import read_routing
from sinks.alerts.text import headline, iso

TIMES: Final = frozenset({"start", "opened", "updated", "closed", "peak"})
QUERY: Final = """
SELECT id, revision, host, state, start, opened, updated, closed, subsystem, shares, windows, votes, severity,
       peak_severity, peak, model_version, cause, explanation, confidence, checks, remedy
FROM episodes
WHERE updated >= fromUnixTimestamp64Milli({since:Int64})
ORDER BY updated, id, revision
"""
STEP_S: Final = 1.0


@dataclass(slots=True)
class Rehearsal:
    """What would have been told: notifications with their times, and all states of alerts."""

    episodes: int = 0
    hosts: int = 0
    told: list[tuple[int, Notification]] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)


def rehearse(
    path: Path, settings: ClickHouseSettings, environ: Mapping[str, str], since_s: float, now_ns: int, *, as_json: bool
) -> str:
    """What to print. Raises RoutingError, AlertsError."""
    routing = read_routing(path)
    episodes = read_episodes(settings, now_ns - int(since_s * SECOND_NS))
    done = play(routing, episodes, now_ns)
    absent = {
        name: missing_variables(receiver.options, environ)
        for name, receiver in routing.receivers.items()
        if missing_variables(receiver.options, environ)
    }
    if as_json:
        rows = [
            {
                "time": iso(at_ns),
                "receiver": notification.receiver,
                "digest": notification.digest,
                "alerts": [
                    {"key": alert.key, "state": alert.state, "text": headline(alert)} for alert in notification.alerts
                ],
            }
            for at_ns, notification in done.told
        ]
        return json.dumps({"episodes": done.episodes, "hosts": done.hosts, "told": rows, "not_set": absent}, indent=2)
    return shown(routing, done, in_words(since_s), absent)


def read_episodes(settings: ClickHouseSettings, since_ns: int) -> list[Episode]:
    """States of episodes that ClickHouse holds, in the order of their time. Raises AlertsError."""
    try:
        with opened(settings, timeout_s=60) as store:
            answer = store.query(QUERY, {"since": since_ns // 1_000_000}, database=settings.database)
    except AnswerError as error:
        raise AlertsError(str(error)) from None
    return [_episode(dict(zip(answer.columns, row, strict=True))) for row in answer.rows]


def play(routing: Routing, episodes: list[Episode], end_ns: int) -> Rehearsal:
    """Run the engine over `episodes`, each at its own time, until everything that can end by `end_ns` has ended."""
    engine, done = Engine(routing, lambda: 0.5), Rehearsal(len(episodes), len({each.host for each in episodes}))
    free = dict.fromkeys(routing.receivers, 1 << 20)
    step_ns = int(STEP_S * SECOND_NS)
    rest_ns = int((routing.timing.keep_firing + routing.timing.wait + routing.timing.stale) * SECOND_NS) + step_ns
    quiet_ns = 0
    now_ns = 0
    for episode in [*episodes, None]:
        until_ns = episode.updated_ns if episode is not None else min(now_ns + rest_ns, end_ns)
        while now_ns and now_ns < until_ns:
            # Long pauses are passed in one step: nothing is left to happen in them.
            now_ns = min(until_ns, now_ns + step_ns) if now_ns < quiet_ns else until_ns
            _turn(engine, done, free, now_ns)
        now_ns = max(now_ns, until_ns)
        if episode is not None:
            engine.episode(episode, now_ns)
            quiet_ns = now_ns + rest_ns
    return done


def _turn(engine: Engine, done: Rehearsal, free: Mapping[str, int], now_ns: int) -> None:
    engine.tick(now_ns)
    for notification in engine.due(now_ns, free):
        # What only keeps a receiver from forgetting tells nobody anything.
        if not notification.again:
            done.told.append((now_ns, notification))
        engine.outcome(notification, Outcome(DELIVERED, 0.0), now_ns)
    done.alerts += engine.drain().alerts


def shown(routing: Routing, done: Rehearsal, span: str, absent: Mapping[str, list[str]]) -> str:
    """The rehearsal as a table."""
    out = io.StringIO()
    console = Console(file=out, width=width())
    say = partial(console.print, markup=False, highlight=False)
    say(f"{done.episodes} states of episodes of {done.hosts} hosts in the last {span}; nothing was sent")
    if done.told:
        table = Table("time (UTC)", "receiver", "what", box=None, pad_edge=False)
        for at_ns, notification in done.told:
            text = headline(notification.alerts[0])
            if len(notification.alerts) > 1:
                text += f" and {len(notification.alerts) - 1} more"
            table.add_row(iso(at_ns)[:19].replace("T", " "), notification.receiver, text)
        console.print(table)
    counts = Counter(notification.receiver for _, notification in done.told)
    for name, receiver in routing.receivers.items():
        say(f"{name} ({receiver.channel}): {counts[name]} messages")
    folded = len({alert.key for alert in done.alerts if alert.parent})
    quiet = Counter(alert.state for alert in done.alerts if alert.state in ("silenced", "expired"))
    say(f"{folded} alerts told within a group, {quiet['silenced']} silenced, {quiet['expired']} expired")
    for name, variables in absent.items():
        say(f"not set here: {', '.join(variables)}, which receivers.{name} needs")
    return unpadded(out.getvalue())


def _episode(row: Mapping[str, Any]) -> Episode:
    values = {f"{name}_ns" if name in TIMES else name: _value(name, value) for name, value in row.items()}
    return Episode(**{**values, "checks": tuple(values["checks"])})


def _value(name: str, value: Any) -> Any:
    if name not in TIMES or value is None:
        return value
    moment: datetime = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000) * 1_000_000
