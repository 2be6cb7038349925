"""What ClickHouse knows of one host: how far the warm-up is, and which episodes there were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from schemas.records import Evidence
from schemas.settings import ClickHouseSettings
from sinks.warehouse.store import Result, Store, StoreError

MARGIN_S: Final = 2.0
"""An episode belongs to a fault when it starts at most so much before the fault's begin or after its end: the agent's
batches are a second long, and their edges lie where they like.
"""

_PROGRESS: Final = """
SELECT count(), countIf(state = 'scored'), countIf(state = 'withheld'),
       dateDiff('millisecond', maxIf(window_end, anomalous), maxIf(window_end, state != 'withheld')) / 1000,
       max(window_end)
FROM verdicts WHERE host = {host:String}
"""
_ANOMALIES: Final = """
SELECT id, state, subsystem, start, opened, closed, windows, votes, shares, peak_severity, explanation
FROM anomalies WHERE host = {host:String} ORDER BY start
"""
_EVIDENCE: Final = """
SELECT metric, subsystem, instance, feature, unit, observed, expected, deviation, instance_observed, instance_expected
FROM anomaly_evidence WHERE id = {id:String} ORDER BY rank
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """Windows of the host so far, those of them that were scored or withheld, and how long before the last one that was
    not withheld the last anomalous one was, s: very long if there was none. What is withheld is not known to be calm.
    `until` is the end of the last one, s since 1970-01-01 UTC.
    """

    windows: int
    scored: int
    withheld: int
    calm_s: float
    until: float


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An episode in its latest state. start, opened, closed: s since 1970-01-01 UTC."""

    id: str
    state: str
    subsystem: str
    start: float
    opened: float
    closed: float | None
    windows: int
    votes: Mapping[str, int]
    shares: Mapping[str, float]
    peak_severity: float
    explanation: str

    def belongs_to(self, began: float, ended: float) -> bool:
        """Whether it started while a fault ran, give or take MARGIN_S."""
        return began - MARGIN_S <= self.start <= ended + MARGIN_S


class Findings:
    """Reads one host's results. Nothing is found while there are no tables yet or ClickHouse is away."""

    def __init__(self, settings: ClickHouseSettings, host: str) -> None:
        self._store = Store(settings, timeout_s=10)
        self._database = settings.database
        self.host = host

    def progress(self) -> Progress:
        """How far the host has come."""
        rows = self._query(_PROGRESS, {"host": self.host}).rows
        if not rows:
            return Progress(0, 0, 0, 0.0, 0.0)
        windows, scored, withheld, calm_s, until = rows[0]
        return Progress(int(windows), int(scored), int(withheld), float(calm_s), until.timestamp())

    def anomalies(self) -> list[Anomaly]:
        """All episodes of the host, the oldest first."""
        return [
            Anomaly(
                id=row[0],
                state=row[1],
                subsystem=row[2],
                start=_seconds(row[3]),
                opened=_seconds(row[4]),
                closed=None if row[5] is None else _seconds(row[5]),
                windows=int(row[6]),
                votes=dict(row[7]),
                shares=dict(row[8]),
                peak_severity=float(row[9]),
                explanation=row[10],
            )
            for row in self._query(_ANOMALIES, {"host": self.host}).rows
        ]

    def evidence(self, anomaly: Anomaly) -> list[Evidence]:
        """Of the episode's peak, the strongest first."""
        return [Evidence(*row) for row in self._query(_EVIDENCE, {"id": anomaly.id}).rows]

    def close(self) -> None:
        """Let go of the connection."""
        self._store.close()

    def _query(self, sql: str, parameters: Mapping[str, Any]) -> Result:
        try:
            return self._store.query(sql, parameters, database=self._database)
        except StoreError:
            return Result((), ())


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
