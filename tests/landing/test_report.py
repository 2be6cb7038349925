"""`reveal report` over the real ClickHouse, of rows that the sink's own code stored."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from schemas.records import Episode, Event, Evidence, Record, Telemetry, Verdict
from schemas.settings import ClickHouseSettings, PipelineSettings
from sinks.warehouse.messages import Accepted, Stored
from sinks.warehouse.migrate import Layout, apply, migrations
from sinks.warehouse.report.choice import ReportError, find, find_last
from sinks.warehouse.report.content import Report
from sinks.warehouse.report.queries import POINTS, read_report
from sinks.warehouse.report.render import FORMATS, render
from sinks.warehouse.rows import inserts
from sinks.warehouse.samples import sample_inserts
from sinks.warehouse.store import Store, StoreError
from stream_processors.backtest import backtest
from tests.clickhouse_fixture import ClickHouseProcess
from tests.synthetic import START, SUBSYSTEMS, Fault, run

pytestmark = pytest.mark.stack

SECOND = 1_000_000_000
BEGIN = START + 200
"""When the example's episode begins, s."""
LENGTH = 30
HOST = "o'brien\x1b[31m\"; DROP TABLE x <b>|"
"""A host that would do harm if its name were ever more than text."""


class Bench:
    """A database of one test."""

    def __init__(self, clickhouse: ClickHouseProcess) -> None:
        self.settings = ClickHouseSettings(port=clickhouse.port, database=f"t{uuid.uuid4().hex[:12]}")
        self.store = Store(self.settings)
        self.ask = partial(self.store.query, database=self.settings.database)
        self.offset = 0

    def migrate(self) -> Bench:
        apply(self.store, migrations(), Layout(self.settings.database))
        return self

    def put(self, records: Iterable[Record]) -> None:
        accepted = []
        for record in records:
            assert isinstance(record, Stored)
            self.offset += 1
            accepted.append(Accepted(record, 0, self.offset, BEGIN * 1000))
        for insert in inserts(accepted):
            self.store.insert(insert.table, insert.rows)

    def report(self, id_: str, before: float = 120.0, after: float = 120.0) -> Report:
        return read_report(self.ask, find(self.ask, id_), before, after)

    def reveal(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "deploy.cli", "report", *arguments],
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("REVEAL_")},
                "REVEAL_CLICKHOUSE_PORT": str(self.settings.port),
                "REVEAL_CLICKHOUSE_DATABASE": self.settings.database,
                **environ,
            },
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )


@pytest.fixture
def bench(clickhouse: ClickHouseProcess) -> Iterator[Bench]:
    made = Bench(clickhouse).migrate()
    yield made
    made.store.close()


def episode(id_: str, host: str, start: int = BEGIN, state: str = "closed", revision: int = 0) -> Episode:
    end = start + LENGTH
    return Episode(
        id=id_,
        revision=revision,
        host=host,
        state=state,
        start_ns=start * SECOND,
        opened_ns=(start + 2) * SECOND,
        updated_ns=(start + 2 if state == "opened" else end + 5) * SECOND,
        closed_ns=end * SECOND if state == "closed" else None,
        subsystem="cpu",
        shares={"cpu": 0.8, "memory": 0.2},
        windows=1 if state == "opened" else 28,
        votes={"zscore": 1},
        severity=2.5,
        peak_severity=4.0 if state == "opened" else 7.5,
        peak_ns=(start + 10) * SECOND,
        model_version=7,
        cause=None if state == "opened" else "cpu_contention",
        explanation="something ran beside the job",
        evidence=(
            Evidence("cpu.load1", "cpu", "", "level", "tasks", 90.0, 10.0, 12.0),
            Evidence("cpu.time.user", "cpu", "1", "level of the spread over cores", "s/s", 0.4, 0.01, 9.0, 0.9, 0.1),
            Evidence("event.oom_kill", "memory", "", "Killed process 7", "events", 1.0, 0.0, 1000.0),
            Evidence("cpu.never.stored", "cpu", "", "trend", "", 1.0, 0.0, 5.0),
        ),
    )


def verdict(host: str, index: int, state: str = "scored", version: int = 7) -> Verdict:
    start = START + index
    strange = BEGIN <= start + 2 < BEGIN + LENGTH
    return Verdict(
        host=host,
        window_start_ns=start * SECOND,
        window_end_ns=(start + 3) * SECOND,
        state=state,
        reason="" if state == "scored" else f"too little of window {index}",
        coverage=1.0,
        model_version=version,
        severity=(7.0 if strange else 0.5) if state == "scored" else 0.0,
        anomalous=strange and state == "scored",
    )


def telemetry(host: str, index: int) -> Telemetry:
    """A second of the host's CPU: the load is 10, and 90 in the episode, the second core far ahead of the first."""
    strange = BEGIN <= START + index < BEGIN + LENGTH
    load = np.full((10, 1), 90.0 if strange else 10.0, np.float32)
    user = np.tile(np.array([[0.1, 0.9 if strange else 0.1]], np.float32), (10, 1))
    return Telemetry(
        subsystem="cpu",
        host=host,
        session="s1",
        sequence=index,
        start_ns=(START + index) * SECOND,
        period_ms=100,
        count=10,
        instances={"host": ("",), "core": ("0", "1")},
        metrics={"cpu.load1": load, "cpu.time.user": user},
        dropped=0 if index < 250 else 40,
        agent="1.2.3",
    )


def event(host: str, at: int, sequence: int, severity: str = "critical", message: str = "Killed process 7") -> Event:
    return Event(host, "s1", sequence, at * SECOND, "oom_kill", "memory", severity, message, "kernel log")


def story(host: str) -> list[Record]:
    """All there is about one host: seconds 50 to 399, of which five are lost."""
    lost = range(300, 305)
    records: list[Record] = [telemetry(host, index) for index in range(50, 400) if index not in lost]
    records += [verdict(host, index) for index in range(50, 400) if index not in (*lost, 100, 101)]
    records += [verdict(host, index, "withheld") for index in (100, 101)]
    records += [event(host, BEGIN + 3, 0), event(host, BEGIN - 5000, 1)]
    records += [episode("aaaa-1", host, state="opened"), episode("aaaa-1", host, revision=1)]
    return records


def test_the_report_tells_what_was_stored(bench: Bench) -> None:
    bench.put(story(HOST))
    report = bench.report("aaaa-1")
    incident = report.incident
    assert (incident.host, incident.revision, incident.state) == (HOST, 1, "closed")
    assert (incident.start, incident.end, incident.peak) == (BEGIN, BEGIN + LENGTH, BEGIN + 10)
    assert (incident.cause, incident.peak_severity, incident.model_version) == ("cpu_contention", 7.5, 7)
    assert incident.shares == {"cpu": 0.8, "memory": 0.2}
    assert (report.span.begin, report.span.end, report.span.step_s) == (BEGIN - 120, BEGIN + LENGTH + 120, 1.0)
    assert [proof.metric for proof in report.evidence] == [row.metric for row in episode("", "").evidence]
    load, user = report.plots
    assert len(load.series.at) == 120 + LENGTH + 120 - 5
    levels = dict(zip(load.series.at, load.series.line, strict=True))
    assert (levels[BEGIN - 1], levels[BEGIN], levels[BEGIN + LENGTH - 1], levels[BEGIN + LENGTH]) == (10, 90, 90, 10)
    assert (load.expected, load.expected_words) == (10.0, "usual level")
    # In per cent of the time; the evidence names the core, so the mean is shown with its band and the core as a dot.
    during = user.series.at.index(BEGIN + 5)
    assert user.series.line[during] == pytest.approx(50, abs=0.01)
    assert (user.series.low[during], user.series.high[during]) == pytest.approx((10, 90), abs=0.01)
    assert user.unit == "%"
    # Its usual spread over cores is none of what the line shows.
    assert (user.what, user.expected_words) == ("mean over cores", "usual for 1")
    assert user.expected == pytest.approx(10)
    assert user.seen == pytest.approx(90)


def test_cores_that_drift_apart_are_plotted_as_their_spread(bench: Bench) -> None:
    row = Evidence("cpu.time.user", "cpu", "", "level of the spread over cores", "s/s", 0.4, 0.01, 9.0)
    trend = Evidence("cpu.load1", "cpu", "", "trend", "tasks", 3.0, 0.0, 9.0)
    bench.put([*story("h1"), replace(episode("aaaa-1", "h1", revision=2), evidence=(row, trend))])
    spread, load = bench.report("aaaa-1").plots
    assert (spread.what, spread.expected_words, spread.series.low) == ("spread over cores", "usual level", ())
    assert spread.expected == pytest.approx(1)
    levels = dict(zip(spread.series.at, spread.series.line, strict=True))
    assert (levels[BEGIN - 5], levels[BEGIN + 5]) == pytest.approx((0, 40), abs=0.01)
    assert (load.expected, load.expected_words) == (10.0, "median before")


def keep(bench: Bench, id_: str, seconds: Iterable[int]) -> list[Telemetry]:
    """Keep the samples of these seconds for an episode, as the sink does. The second core's load shakes."""
    shaken = []
    for index in seconds:
        record = telemetry("h1", index)
        user = record.metrics["cpu.time.user"].copy()
        user[:, 1] += np.linspace(-0.05, 0.05, 10, dtype=np.float32)
        shaken.append(replace(record, metrics={**record.metrics, "cpu.time.user": user}))
    for insert in sample_inserts(id_, shaken):
        bench.store.insert(insert.table, insert.rows)
    return shaken


def test_kept_samples_are_plotted(bench: Bench) -> None:
    bench.put(story("h1"))
    kept = range(BEGIN - 60 - START, BEGIN + LENGTH + 20 - START)
    records = keep(bench, "aaaa-1", kept)
    keep(bench, "bbbb-1", range(BEGIN - 100 - START, BEGIN - 80 - START))
    load, user = bench.report("aaaa-1").plots
    times = [record.start_ns / SECOND + 0.1 * place for record in records for place in range(10)]
    for plot in (load, user):
        assert plot.samples is not None
        assert plot.samples.at == pytest.approx(times, abs=1e-3)
        # Seconds are shown as ever, before and after as well; five are lost.
        assert len(plot.series.at) == 120 + LENGTH + 120 - 5
    assert load.own is None, "the host has one load"
    matrix = 100 * np.concatenate([record.metrics["cpu.time.user"].astype(float) for record in records])
    # In per cent of the time.
    assert user.own is not None
    assert user.samples is not None
    assert user.own.at == user.samples.at
    assert user.own.line == pytest.approx(matrix[:, 1], abs=0.01)
    assert user.samples.line == pytest.approx(matrix.mean(axis=1), abs=0.01)
    assert user.samples.low == pytest.approx(matrix.min(axis=1), abs=0.01)
    assert user.samples.high == pytest.approx(matrix.max(axis=1), abs=0.01)
    page = render(bench.report("aaaa-1"), "html")
    assert page.count("since 14:16:40, sample by sample") == 2
    assert page.count('class="own behind"') == 1


def test_samples_outlive_the_means_of_seconds(bench: Bench) -> None:
    row = Evidence("cpu.time.user", "cpu", "", "level of the spread over cores", "s/s", 0.4, 0.01, 9.0)
    bench.put([*story("h1"), replace(episode("aaaa-1", "h1", revision=2), evidence=(row,))])
    (before,) = bench.report("aaaa-1").plots
    assert before.samples is None
    keep(bench, "aaaa-1", range(BEGIN - 60 - START, BEGIN + 40 - START))
    bench.store.command(f"TRUNCATE TABLE {bench.settings.database}.telemetry_log")
    (after,) = bench.report("aaaa-1").plots
    assert after.series.at == tuple(range(BEGIN - 60, BEGIN + 40))
    expected = dict(zip(before.series.at, before.series.line, strict=True))
    # The second core shakes by a little.
    assert after.series.line == pytest.approx([expected[at] for at in after.series.at], abs=2.6)
    assert after.samples is not None
    assert (after.samples.low, after.own) == ((), None)


def test_of_very_many_samples_means_and_extremes_are_plotted(bench: Bench) -> None:
    bench.put(story("h1"))
    keep(bench, "aaaa-1", range(BEGIN - 60 - START, BEGIN + LENGTH + 60 - START))
    samples = bench.report("aaaa-1", before=3600.0, after=3600.0).plots[1].samples
    assert samples is not None
    assert 150 / 1.3 <= len(samples.at) <= 150 / 1.2 + 1
    assert max(samples.high) == pytest.approx(95, abs=0.01)


def test_the_report_tells_what_happened_around_it(bench: Bench) -> None:
    over = episode("eeee-1", "h1", BEGIN - 120 - LENGTH - 1)
    bench.put([*story("h1"), episode("bbbb-2", "h1", BEGIN - 90), episode("dddd-1", "h1", BEGIN - 140), over])
    report = bench.report("aaaa-1")
    assert [(each.at - BEGIN, each.kind, each.what) for each in report.happenings] == [
        (-120, "other", "another episode: dddd-1"),
        (-90, "other", "another episode: bbbb-2"),
        (2, "episode", "episode opened"),
        (3, "event", "oom_kill"),
        (LENGTH + 5, "episode", "episode closed"),
    ]
    strange = [each for each in report.judgements if each.anomalous]
    assert len(strange) == LENGTH
    assert {each.severity for each in strange} == {7.0}
    assert report.models == (7,)


def test_the_report_tells_what_was_not_seen(bench: Bench) -> None:
    bench.put(story("h1"))
    found = bench.report("aaaa-1").coverage
    assert [(gap.begin, gap.end, gap.subsystems, gap.lost) for gap in found.gaps] == [
        (START + 300, START + 305, ("cpu",), 5)
    ]
    assert (found.lost, found.dropped, found.flawed) == (5, 40, 0)
    assert found.seen == {"cpu": pytest.approx(265 / 270)}
    early = bench.report("aaaa-1", before=180.0, after=180.0)
    assert [(gap.begin, gap.end) for gap in early.coverage.gaps] == [
        (START + 20, START + 50),
        (START + 300, START + 305),
        (START + 400, START + 410),
    ]
    (unscored,) = early.unscored
    assert (unscored.state, unscored.windows, unscored.reason) == ("withheld", 2, "too little of window 101")
    # Windows that were not scored have no severity, which is not 0.
    judged = {each.at: each.severity for each in early.judgements}
    assert np.isnan(judged[START + 103])
    assert judged[START + 105] == 0.5


def test_a_restart_of_the_agent_and_a_new_model_are_told(bench: Bench) -> None:
    restarted = [
        replace(telemetry("h1", index), session="s2", sequence=index - 240, dropped=0) for index in range(240, 300)
    ]
    bench.put([telemetry("h1", index) for index in range(50, 235)])
    bench.put([*restarted, episode("aaaa-1", "h1")])
    bench.put([verdict("h1", index, version=7 if index < 220 else 8) for index in range(100, 290)])
    report = bench.report("aaaa-1", after=30.0)
    assert [each.detail for each in report.happenings if each.kind == "agent"] == ["version 1.2.3, session s2"]
    assert [(gap.begin, gap.end, gap.lost) for gap in report.coverage.gaps] == [(START + 235, START + 240, 0)]
    assert report.models == (7, 8)


def test_one_host_or_many(bench: Bench) -> None:
    bench.put([telemetry(f"h{number}", 200) for number in range(6)])
    bench.put([episode("aaaa-1", "h0"), episode("cccc-1", "h0", BEGIN + 60)])
    assert bench.report("aaaa-1").fleet.same == 0
    memory = replace(episode("bbbb-4", "h4", BEGIN + 10), subsystem="memory")
    bench.put([episode("bbbb-1", "h1", BEGIN + 299), episode("bbbb-2", "h2", BEGIN - 100), memory])
    # The same episode again, and one that began too long after.
    bench.put([episode("bbbb-2", "h2", BEGIN - 100, revision=1), episode("bbbb-3", "h3", BEGIN + 301)])
    fleet = bench.report("aaaa-1").fleet
    assert (fleet.hosts, fleet.same, fleet.others) == (6, 2, 1)
    assert [each.id for each in fleet.first] == ["bbbb-2", "bbbb-1", "bbbb-4"]


def test_an_open_episode_of_a_silent_host(bench: Bench) -> None:
    bench.put([episode("aaaa-1", "h1", state="opened")])
    report = bench.report("aaaa-1")
    assert report.incident.closed is None
    assert (report.plots, report.judgements, report.coverage.seen) == ((), (), {})
    for format_ in FORMATS:
        assert "2 s so far" in render(report, format_)


def test_the_future_is_not_missing(bench: Bench) -> None:
    now = int(bench.ask("SELECT now64(3, 'UTC')", {}).rows[0][0].timestamp())
    bench.put([episode("aaaa-1", "h1", now - 60)])
    assert now <= bench.report("aaaa-1", after=300.0).span.end <= now + 30


def test_long_spans_are_shown_in_steps(bench: Bench) -> None:
    bench.put(story("h1"))
    report = bench.report("aaaa-1", before=7200.0, after=7200.0)
    assert report.span.step_s == 31.0
    assert max(len(plot.series.at) for plot in report.plots) <= POINTS
    load = report.plots[0].series
    assert 10 <= min(load.line) < max(load.line) <= 90
    assert (min(load.low), max(load.high)) == (10.0, 90.0)
    assert len(report.judgements) <= POINTS
    assert max(each.severity for each in report.judgements if not np.isnan(each.severity)) == 7.0
    assert render(report, "html")


def test_many_events_and_states_are_cut_and_counted(bench: Bench) -> None:
    bench.put(story("h1"))
    bench.put([event("h1", BEGIN + 20, 10 + number, "info", "chatter " + "x" * 5000) for number in range(150)])
    updates = [
        replace(episode("aaaa-1", "h1", state="updated", revision=2 + number), peak_severity=8.0 + number)
        for number in range(150)
    ]
    bench.put([*updates, episode("aaaa-1", "h1", revision=200)])
    report = bench.report("aaaa-1")
    kinds = Counter(each.kind for each in report.happenings)
    assert kinds == {"event": 100, "episode": 100}
    assert report.more == (151 - 100) + (153 - 100)
    # The gravest ones stay, and so do the first and the last state.
    assert [each.grave for each in report.happenings if each.kind == "event"].count("critical") == 1
    states = [each.what for each in report.happenings if each.kind == "episode"]
    assert (states[0], states[-1]) == ("episode opened", "episode closed")
    assert max(len(each.detail) for each in report.happenings) < 450


def test_columns_of_a_later_version_are_shown(bench: Bench) -> None:
    """What the cause table gives, and what this program has never heard of."""
    bench.put([episode("aaaa-1", "h1")])
    database = bench.settings.database
    later = {
        "episodes": {
            "confidence": "Float64 DEFAULT 0.9",
            "candidates": "Map(String, Float64) DEFAULT map('cpu_contention', 0.9, 'clock_cap', 0.4)",
            "checks": "Array(String) DEFAULT ['mpstat 1', 'dmesg | tail']",
            "remedy": "String DEFAULT 'Move the neighbour away.'",
            "rack": "String DEFAULT 'r42'",
            "nothing": "String DEFAULT ''",
        },
        "evidence": {
            "since": f"Nullable(DateTime64(3, 'UTC')) DEFAULT fromUnixTimestamp64Milli({(BEGIN + 1) * 1000})",
            "direction": "String DEFAULT 'up'",
            "contribution": "Float64 DEFAULT 0.25",
        },
    }
    for name, columns in later.items():
        for column, kind in columns.items():
            # Another version of the views has them already, and its own defaults are no news.
            bench.store.command(f"ALTER TABLE {database}.{name}_log DROP COLUMN IF EXISTS {column}")
            bench.store.command(f"ALTER TABLE {database}.{name}_log ADD COLUMN {column} {kind}")
        bench.store.command(f"CREATE OR REPLACE VIEW {database}.{name} AS SELECT * FROM {database}.{name}_log FINAL")
    report = bench.report("aaaa-1")
    assert (report.incident.confidence, report.incident.candidates["clock_cap"]) == (0.9, 0.4)
    assert report.incident.checks == ("mpstat 1", "dmesg | tail")
    assert report.incident.others == {"rack": "r42"}
    told = {(proof.since, proof.direction, proof.contribution) for proof in report.evidence}
    assert told == {(BEGIN + 1, "up", 0.25)}
    for format_ in FORMATS:
        document = render(report, format_).replace("\\", "")
        for fact in ("cpu_contention (90 % certain)", "clock_cap 40 %", "mpstat 1", "Move the neighbour", "r42"):
            assert fact in document


def test_an_episode_is_found_by_the_beginning_of_its_id(bench: Bench) -> None:
    bench.put([episode(id_, "h1", BEGIN + place) for place, id_ in enumerate(["abcd", "abce", "abc", "b'--\"\\"])])
    assert find(bench.ask, "abcd") == "abcd"
    assert find(bench.ask, "abce") == "abce"
    # The whole id is never ambiguous.
    assert find(bench.ask, "abc") == "abc"
    assert find(bench.ask, "b") == find(bench.ask, "b'-") == "b'--\"\\"
    with pytest.raises(ReportError, match=r"(?s)more than one episode begins with ab:.*abc .*abce .*abcd "):
        find(bench.ask, "ab")
    for unknown in ("zzz", "%", "_bcd", "' OR 1=1 --", "{id:String}"):
        with pytest.raises(ReportError, match="there is no episode .*; the newest are"):
            find(bench.ask, unknown)


def test_an_unknown_id_is_told_with_the_nearest(bench: Bench) -> None:
    ids = ["5fdc4c927ea946b1", "1111111111111111", "2222222222222222", "3333333333333333"]
    bench.put([episode(id_, "h1", BEGIN + place) for place, id_ in enumerate(ids)])
    with pytest.raises(ReportError) as caught:
        find(bench.ask, "5fdc4c927ea946b2")
    lines = str(caught.value).splitlines()
    assert lines[0] == "there is no episode 5fdc4c927ea946b2; the newest are"
    assert [line.split()[0] for line in lines[1:4]] == ids[:0:-1]
    assert lines[4:] == ["and the nearest", "  5fdc4c927ea946b1  2026-09-21 14:16:40 UTC  cpu  h1"]


def test_the_last_episode_of_all_or_of_a_host(bench: Bench) -> None:
    with pytest.raises(ReportError, match="there is no episode yet"):
        find_last(bench.ask)
    with pytest.raises(ReportError, match="there is no episode yet"):
        find(bench.ask, "abc")
    bench.put([episode("a", "h1", BEGIN), episode("b", HOST, BEGIN + 9), episode("c", "h1", BEGIN + 5)])
    assert find_last(bench.ask) == "b"
    assert find_last(bench.ask, "h1") == "c"
    assert find_last(bench.ask, HOST) == "b"
    with pytest.raises(ReportError, match=r"(?s)there is no episode of host h3.*  b .*  c .*  a ") as caught:
        find_last(bench.ask, "h3")
    assert "\x1b" not in str(caught.value)


def test_what_the_pipeline_finds_is_reported(bench: Bench) -> None:
    """The whole way from telemetry to the page, but for Kafka."""
    batches = list(run(["gpu-001"], 110, Fault(60, 80)))
    results = list(backtest(batches, PipelineSettings(warmup_windows=40, rows=48)))
    bench.put([*batches, *(result for result in results if isinstance(result, Verdict | Episode))])
    report = bench.report(find_last(bench.ask))
    assert report.incident.subsystem == "cpu"
    assert abs(report.incident.start - START - 60) <= 2
    busy = next(plot for plot in report.plots if plot.subsystem == "cpu")
    levels = dict(zip(busy.series.at, busy.series.line, strict=True))
    before, during = levels[START + 50], levels[START + 70]
    assert abs(during - busy.expected) > 3 * abs(before - busy.expected)
    strange = {each.at - START for each in report.judgements if each.anomalous}
    assert len(strange & set(range(63, 80))) > 10
    assert set(report.coverage.seen) == set(SUBSYSTEMS)


def test_the_command_prints_and_writes(bench: Bench, tmp_path: Path) -> None:
    bench.put(story(HOST))
    printed = bench.reveal("aaaa")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout.startswith("o'brien\\x1b[31m\"; DROP TABLE x <b>|: cpu, probable cause cpu_contention\n")
    assert "\x1b" not in printed.stdout
    assert "Nothing of cpu from 14:18:20 to 14:18:25 (5 s), 5 batches lost." in printed.stdout
    for name, beginning in (("r.html", "<!DOCTYPE html>"), ("r.md", "# o'brien"), ("r.txt", "o'brien")):
        written = bench.reveal("--last", "--output", str(tmp_path / name))
        assert (written.returncode, written.stdout, written.stderr) == (0, "", "")
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(beginning)
    chosen = bench.reveal("--last", "--host", HOST, "--format", "markdown", "--before", "10", "--after", "0")
    assert chosen.stdout.startswith("# o'brien")
    assert "From 2026-09-21 14:16:30 UTC to 2026-09-21 14:17:10 UTC." in chosen.stdout


def test_the_command_explains_what_it_cannot_do(bench: Bench, tmp_path: Path) -> None:
    bench.put([episode("aaaa-1", "h1")])
    unknown = bench.reveal("xyz")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "reveal report: there is no episode xyz; the newest are\n  aaaa-1 " in unknown.stderr
    nowhere = bench.reveal("--last", "--output", str(tmp_path / "no" / "r.html"))
    assert nowhere.returncode == 1
    assert "cannot write" in nowhere.stderr
    for wrong in ([], [""], ["aaaa-1", "--last"], ["aaaa-1", "--host", "h1"], ["--last", "--before", "-1"]):
        refused = bench.reveal(*wrong)
        assert (refused.returncode, refused.stdout) == (2, ""), wrong
        assert refused.stderr
    empty = bench.reveal("--last", REVEAL_CLICKHOUSE_DATABASE="nobody_made_it")
    assert empty.returncode == 1
    assert "`reveal warehouse --migrate-only`" in empty.stderr


def test_clickhouse_away_is_one_clear_line(bench: Bench) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        away = bench.reveal("--last", REVEAL_CLICKHOUSE_PORT=str(probe.getsockname()[1]))
    assert (away.returncode, away.stdout) == (1, "")
    assert "does not answer" in away.stderr
    assert "is `reveal up` running" in away.stderr
    assert len(away.stderr.splitlines()) == 1


def test_a_database_without_tables_is_told(clickhouse: ClickHouseProcess) -> None:
    bench = Bench(clickhouse)
    bench.store.command(f"CREATE DATABASE {bench.settings.database}")
    with pytest.raises(StoreError):
        find_last(bench.ask)
    told = bench.reveal("--last")
    assert told.returncode == 1
    assert "`reveal warehouse --migrate-only` makes the database and its tables" in told.stderr
    bench.store.close()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium here")
def test_a_browser_shows_the_page_and_complains_of_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.put(story(HOST))
    page = tmp_path / "report.html"
    page.write_text(render(bench.report("aaaa-1"), "html"), encoding="utf-8")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    shown = subprocess.run(
        [*command, "--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom", page.as_uri()],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    assert shown.stdout.count("<figure>") == shown.stdout.count('class="peak"') == 3
    assert json.dumps(HOST)[1:4] in shown.stdout
    assert [line for line in shown.stderr.splitlines() if "CONSOLE" in line] == []
