"""The page docs/sql.md: a warehouse filled by a simulated fleet and the pipeline, and the results of its queries.

    python -m tests.cookbook

runs every query of the page and writes query and result below its marker, an HTML comment such as

    <!-- query: anomalous-hosts since=2026-09-15T00:00:00Z -->

What follows a marker, up to the line `<!-- end -->`, is generated; the rest of the page is written by hand. The same
seed makes the same fleet, so the same page comes out on every machine, but for the last digits.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from deploy.commands.query import moment
from deploy.commands.sql import show
from producers.fleet.schedule import Schedule, make_hosts, parse_fault
from producers.fleet.simulation import Fleet
from schemas.records import DeadLetter, Episode, Event, Feedback, Record, StateRecord, Telemetry, Verdict
from schemas.settings import ClickHouseSettings, PipelineSettings
from sinks.warehouse.messages import MODEL, Accepted
from sinks.warehouse.migrate import Layout, apply, migrations
from sinks.warehouse.preset import Preset, presets
from sinks.warehouse.rollups import HOUR, MINUTE, roll_up
from sinks.warehouse.rows import inserts
from sinks.warehouse.samples import sample_inserts
from sinks.warehouse.store import Store
from stream_processors.pipeline import Pipeline

PAGE: Final = Path(__file__).parents[1] / "docs" / "sql.md"
SEED: Final = 3
SECOND_NS: Final = 1_000_000_000
DAY_NS: Final = 86_400 * SECOND_NS
START: Final = int(datetime(2026, 3, 16, 14, 0, tzinfo=UTC).timestamp())
SECONDS: Final = 420
FLEET: Final = (("hgx-h100", 1), ("small-vm", 6))
FAULTS: Final = (
    "pcie-width=200+60@0",
    "cpu-contention=180+40@1",
    "writeback-storm=240+45@3",
    "packet-loss=300+50@2",
    "packet-loss=302+50@5",
    "memory-pressure=330+60@4",
    "silent-host=380+40@6",
)
DAYS: Final = (5, 3, 2, 0)
"""How many days before the last one the same minutes were seen."""
LATE_MS: Final = 340
SAMPLED: Final = "cpu_contention"
"""Cause of the episode around which samples are kept."""
_MARKER: Final = re.compile(r"^<!-- query: ([a-z-]+)((?: \w+=\S*)*) -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Run:
    """What a fleet sent and what the pipeline said of it."""

    telemetry: list[Telemetry]
    events: list[Event]
    results: list[Verdict | Episode | StateRecord]


def simulate() -> Run:
    """The fleet of the page through the pipeline."""
    hosts = make_hosts(FLEET)
    schedule = Schedule(hosts, SEED, 0.0)
    schedule.add([parse_fault(text) for text in FAULTS])
    fleet = Fleet(hosts, schedule, seed=SEED, start_ns=START * SECOND_NS, agent="1.0.0")
    pipeline = Pipeline(PipelineSettings(warmup_windows=120, rows=128))
    run = Run([], [], [])
    for index in range(SECONDS):
        now = START + index + 1.0
        for record in fleet.records(index):
            run.telemetry.append(record)
            run.results.extend(_kept(pipeline.feed(record, now)))
        for event in fleet.events(index):
            run.events.append(event)
            run.results.extend(_kept(pipeline.feed_event(event, now)))
        run.results.extend(_kept(pipeline.tick(now)))
    return run


def _kept(results: Iterable[Any]) -> Iterator[Verdict | Episode | StateRecord]:
    for result in results:
        if isinstance(result, Verdict | Episode) or (
            isinstance(result, StateRecord) and result.slot.encode().startswith(MODEL)
        ):
            yield result


def fill(store: Store, run: Run) -> None:
    """A week of results, and telemetry with its sums of the last day, into the store's database. Rows are dated as if
    stored at once, so that every query gives the same at every time.
    """
    apply(store, migrations(), Layout(store.database, store.cluster))
    for days in DAYS:
        # Every third host had a quiet day.
        results = [result for result in run.results if days == 0 or (int(result.host[-4:]) + days) % 3]
        _insert(store, [_shift(result, days) for result in results])
    _insert(store, run.events)
    _insert(store, run.telemetry)
    letters = [
        DeadLetter("reveal.telemetry.gpu", 1, 7, "warehouse", "unknown-schema", "no published schema of this name")
    ]
    _insert(store, letters)
    _insert(store, list(_said(run)))
    roll_up(store, MINUTE)
    roll_up(store, HOUR)
    first = next(result for result in run.results if isinstance(result, Episode) and result.cause == SAMPLED)
    around = [
        record
        for record in run.telemetry
        if record.host == first.host and abs(record.start_ns - first.start_ns) < 10 * SECOND_NS
    ]
    for insert in sample_inserts(first.id, around):
        store.insert(insert.table, insert.rows)


SAID: Final = {"writeback_storm": ("false", "true", "expected"), "checkpoint": ("expected",)}


def _said(run: Run) -> Iterator[Feedback]:
    """What somebody says of each episode when it opens."""
    opened = [result for result in run.results if isinstance(result, Episode) and result.state == "opened"]
    for number, episode in enumerate(opened):
        verdicts = SAID.get(episode.cause or "", ("true",))
        yield Feedback(
            id=f"feedback-{number}",
            time_ns=episode.opened_ns,
            alert=f"{episode.host} {episode.cause}",
            verdict=verdicts[number % len(verdicts)],
            host=episode.host,
            subsystem=episode.subsystem,
            cause=episode.cause,
            episode=episode.id,
            by="ann",
        )


def _shift(record: R, days: int) -> R:
    """The same record so many days earlier, under another id."""
    if days == 0 or isinstance(record, StateRecord):
        return record
    by = days * DAY_NS
    times: dict[str, Any] = {
        name: getattr(record, name) - by
        for name in record.__slots__
        if name.endswith("_ns") and getattr(record, name) is not None
    }
    if isinstance(record, Episode):
        times["id"] = f"{days}{record.id[1:]}"
        times["evidence"] = tuple(
            replace(row, since_ns=None if row.since_ns is None else row.since_ns - by) for row in record.evidence
        )
    if isinstance(record, Verdict) and record.episode is not None:
        times["episode"] = f"{days}{record.episode[1:]}"
    return replace(record, **times)


DATES: Final = {
    "telemetry_log": "ts",
    "batches_log": "start",
    "hosts_log": "seen",
    "verdicts_log": "window_end",
    "episodes_log": "updated",
    "evidence_log": "start",
    "events_log": "ts",
}


def _insert(store: Store, records: Sequence[Record]) -> None:
    accepted: list[Accepted] = []
    for offset, record in enumerate(records):
        assert isinstance(record, Telemetry | Verdict | Episode | Event | DeadLetter | StateRecord | Feedback)
        accepted.append(Accepted(record, 0, offset, START * 1000))
    for insert in inserts(accepted):
        rows = insert.rows
        if insert.table in DATES:
            dates = rows.column(DATES[insert.table])
            if pa.types.is_timestamp(dates.type):
                dates = pc.add(dates, pa.scalar(LATE_MS, pa.duration("ms")))
            rows = rows.append_column("stored", dates)
        store.insert(insert.table, rows)


def defaults() -> dict[str, str]:
    """Parameters of the page's queries, where a marker says nothing else: the week that the fleet was seen in."""
    end = datetime.fromtimestamp(START + SECONDS, UTC)
    return {
        "since": moment("7d", end),
        "until": moment("0s", end),
        "host": "",
        "subsystem": "",
        "limit": "10",
    }


def answer(store: Store, preset: Preset, options: str) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """Columns and rows of a preset with the options of its marker, NAME=VALUE and so on."""
    end = datetime.fromtimestamp(START + SECONDS, UTC)
    given = dict(pair.split("=", 1) for pair in options.split())
    for name, kind in preset.types.items():
        if name in given and kind.startswith("DateTime"):
            given[name] = moment(given[name], end)
    result = store.query(preset.sql, preset.bind(defaults() | given), database=store.database)
    return result.columns, result.rows


def block(store: Store, name: str, options: str) -> str:
    """What belongs below a marker."""
    preset = presets()[name]
    columns, rows = answer(store, preset, options)
    lines = ["", "```sql", preset.sql, "```", ""]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join([*lines, "", ""])


def _cell(value: Any) -> str:
    text = show(value).replace("|", "\\|").replace("\n", " ")
    return text if len(text) <= 120 else text[:117] + "..."


def markers(text: str) -> Iterator[tuple[str, str, str]]:
    """Name, options and present content of every marker of a page."""
    for match in _MARKER.finditer(text):
        yield match[1], match[2].strip(), match[3]


def written(store: Store, text: str) -> str:
    """The page with all results as they are now."""
    return _MARKER.sub(
        lambda match: f"<!-- query: {match[1]}{match[2]} -->\n{block(store, match[1], match[2])}<!-- end -->", text
    )


def main() -> int:
    """Regenerates the page."""
    from tests.clickhouse_fixture import ClickHouseProcess

    with tempfile.TemporaryDirectory() as directory:
        server = ClickHouseProcess(Path(directory) / "clickhouse").start()
        store = Store(ClickHouseSettings(port=server.port, database="reveal"), timeout_s=120)
        try:
            fill(store, simulate())
            PAGE.write_text(written(store, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        finally:
            store.close()
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
