"""What happened on a host beside its telemetry: its latest events, as evidence for its episodes.

They say why, and never whether: no verdict looks at them. What is kept depends on which events came and not on their
order, so that a worker that reads some of them again knows what the one before it knew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from schemas.records import Episode, Event, Evidence, StateRecord
from stream_processors.seconds import SECOND_NS

BEFORE_NS: Final = 30 * SECOND_NS
"""An event so long before an episode may be its cause."""
KEPT_NS: Final = 60 * SECOND_NS
MOST_EVENTS: Final = 64
MOST_ROWS: Final = 5
SHORT: Final = 160
SLOT: Final = "events"
DEVIATIONS: Final[Mapping[str, float]] = {"critical": 1000.0, "warning": 100.0, "info": 10.0}
"""An event has no usual value; by its severity it ranks beside metrics that deviate so much."""
OWN: Final = frozenset({"collector_shed", "collector_back", "samples_lost"})
"""What the agent says of itself."""

Identity = tuple[str, int]


@dataclass(slots=True)
class Happenings:
    """Events of one host, by session and sequence; no more than MOST_EVENTS, the most severe and then the newest."""

    events: dict[Identity, Event] = field(default_factory=dict)

    def add(self, event: Event, since_ns: int) -> bool:
        """Keep `event`, and of the others those from `since_ns` on. Says whether anything changed."""
        identity = (event.session, event.sequence)
        if event.time_ns < since_ns or event.kind in OWN or identity in self.events:
            return False
        short = replace(event, message=event.message[:SHORT])
        kept = [each for each in (*self.events.values(), short) if each.time_ns >= since_ns]
        kept = sorted(kept, key=_rank)[:MOST_EVENTS]
        before, self.events = self.events, {(each.session, each.sequence): each for each in kept}
        return self.events.keys() != before.keys()

    def told(self, episode: Episode) -> Episode:
        """`episode` with what happened from BEFORE_NS before its start to its close."""
        until_ns = episode.closed_ns
        mine = [
            event
            for event in self.events.values()
            if event.time_ns >= episode.start_ns - BEFORE_NS and (until_ns is None or event.time_ns <= until_ns)
        ]
        if not mine:
            return episode
        rows = _rows(mine)
        words = "; ".join(f"{row.metric.removeprefix('event.')}{_on(row)}: {row.feature}" for row in rows)
        return replace(
            episode,
            evidence=tuple(sorted((*rows, *episode.evidence), key=lambda row: -abs(row.deviation))),
            explanation=f"{episode.explanation}. Events: {words}",
        )

    def record(self, host: str) -> StateRecord:
        """What is kept, as a record of the models topic."""
        return StateRecord(host, SLOT, json.dumps([asdict(event) for event in self.events.values()]), {})

    @classmethod
    def restore(cls, record: StateRecord) -> Happenings:
        """What `record` came from. Raises TypeError or ValueError for any other record."""
        events = [Event(**values) for values in json.loads(record.manifest)]
        return cls({(event.session, event.sequence): event for event in events})


def _rank(event: Event) -> tuple[float, int, str, int]:
    return -DEVIATIONS.get(event.severity, 0.0), -event.time_ns, event.session, event.sequence


def _rows(events: list[Event]) -> list[Evidence]:
    """A row for each kind, instance and code, in the words of the most severe and newest; MOST_ROWS at most."""
    alike: dict[tuple[str, str, int | None], list[Event]] = {}
    for event in sorted(events, key=_rank):
        alike.setdefault((event.kind, event.instance, event.code), []).append(event)
    return [
        Evidence(
            metric=f"event.{first.kind}",
            subsystem=first.subsystem,
            instance=first.instance,
            feature=first.message,
            unit="events" if first.code is None else "code",
            observed=float(len(same) if first.code is None else first.code),
            expected=0.0,
            deviation=DEVIATIONS.get(first.severity, 0.0),
            direction="up",
            since_ns=min(each.time_ns for each in same),
        )
        for first, *_ in list(alike.values())[:MOST_ROWS]
        for same in [alike[first.kind, first.instance, first.code]]
    ]


def _on(row: Evidence) -> str:
    return f" on {row.instance}" if row.instance else ""
