"""What ClickHouse has of this machine's episodes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from deploy.demo.findings import Findings
from schemas.settings import ClickHouseSettings
from sinks.warehouse.store import Store, StoreError
from tests.laboratory.judge import Episode

_EPISODES: Final = """
SELECT id, start, opened, closed, subsystem, cause, peak_severity, candidates
FROM anomalies WHERE host = {host:String} ORDER BY start
"""
_EVIDENCE: Final = "SELECT id, metric FROM anomaly_evidence WHERE host = {host:String} ORDER BY id, rank"


class Results:
    """Reads one host's results; `findings` tells how far its windows are."""

    def __init__(self, settings: ClickHouseSettings, host: str) -> None:
        self.findings = Findings(settings, host)
        self._store = Store(settings, timeout_s=10)
        self._database = settings.database
        self._host = host

    def episodes(self) -> list[Episode]:
        """All of them with their evidence, the oldest first. Raises StoreError."""
        metrics: dict[str, list[str]] = {}
        for name, metric in self._rows(_EVIDENCE):
            metrics.setdefault(name, []).append(metric)
        return [
            Episode(
                id=row[0],
                start=row[1].timestamp(),
                opened=row[2].timestamp(),
                closed=_seconds(row[3]),
                subsystem=row[4],
                cause=row[5] or None,
                metrics=tuple(metrics.get(row[0], ())),
                peak_severity=float(row[6]),
                candidates=dict(row[7]),
            )
            for row in self._rows(_EPISODES)
        ]

    def any_open(self, since: float) -> bool:
        """Whether an episode is open, or was until `since`, s since 1970-01-01 UTC, as far as ClickHouse can be asked
        now.
        """
        try:
            return any(row[3] is None or row[3].timestamp() > since for row in self._rows(_EPISODES))
        except StoreError:
            return True

    def close(self) -> None:
        """Let go of the connections."""
        self.findings.close()
        self._store.close()

    def _rows(self, sql: str) -> Any:
        return self._store.query(sql, {"host": self._host}, database=self._database).rows


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
