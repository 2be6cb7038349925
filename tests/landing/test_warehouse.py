"""Kafka to ClickHouse, both real: everything readable once, whatever is killed, sent twice or unreadable."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.kafka.server import LocalKafka
from deploy.signals import STOP_S
from schemas.codec import encode
from schemas.records import Record, Telemetry
from schemas.settings import ClickHouseSettings, WarehouseSettings
from schemas.topics import ANOMALIES, DEAD, EVENTS, TELEMETRY, VERDICTS
from sinks.warehouse.migrate import (
    Layout,
    MigrationError,
    apply,
    apply_retention,
    bring_up_to_date,
    migrations,
    recorded,
    retention,
    revert,
)
from sinks.warehouse.store import Store, StoreError
from tests.clickhouse_fixture import ClickHouseProcess, MakeClickHouse
from tests.kafka_fixture import NewKafka
from tests.streams import make_topics, wait_for
from tests.synthetic import SUBSYSTEMS, second
from tests.unit.sinks.examples import episode, event, letter, verdict

pytestmark = pytest.mark.stack


@dataclass
class Bench:
    """One test's database, consumer group, producer and sinks. Hosts of other tests may be in its tables too."""

    kafka: LocalKafka
    clickhouse: ClickHouseProcess
    directory: Path
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:12]}")
    sinks: list[subprocess.Popen[bytes]] = field(default_factory=list)
    port: int = 0
    more: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port = self.port or self.clickhouse.port
        self.settings = ClickHouseSettings(port=self.clickhouse.port, database=self.name)
        self.store = Store(self.settings)
        self.producer = Producer(
            {
                "bootstrap.servers": self.kafka.bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
            }
        )

    def host(self, number: int = 1) -> str:
        return f"{self.name}-{number}"

    def environ(self, **more: str) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("REVEAL_")},
            "REVEAL_KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "REVEAL_CLICKHOUSE_PORT": str(self.port),
            "REVEAL_CLICKHOUSE_DATABASE": self.name,
            "REVEAL_WAREHOUSE_GROUP": self.name,
            "REVEAL_WAREHOUSE_LISTEN": "",
            **self.more,
            **more,
        }

    def start(self, *arguments: str, instance: str = "warehouse-1") -> subprocess.Popen[bytes]:
        with (self.directory / "sink.log").open("ab") as log:
            sink = subprocess.Popen(
                [sys.executable, "-m", "deploy.cli", "warehouse", *arguments],
                env=self.environ(REVEAL_WAREHOUSE_INSTANCE=instance),
                stderr=log,
            )
        self.sinks.append(sink)
        return sink

    def reveal(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "deploy.cli", *arguments],
            env=self.environ(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def log(self) -> str:
        """Whole lines; of the last one there may be a part."""
        return (self.directory / "sink.log").read_text().rpartition("\n")[0]

    def send(self, topic: str, record: Record | bytes, host: str = "h") -> None:
        value = record if isinstance(record, bytes) else encode(record)
        self.producer.produce(topic, value, getattr(record, "host", host))
        self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(30) == 0

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query; none while ClickHouse or the table is not there."""
        try:
            return [tuple(row) for row in self.store.query(sql, {"mine": f"{self.name}%"}, database=self.name).rows]
        except StoreError:
            return []

    def count(self, table: str) -> tuple[int, ...]:
        found = self.rows(f"SELECT count() FROM {table} WHERE host LIKE {{mine:String}}")
        return tuple(found[0]) if found else (-1,)

    def progress(self) -> tuple[int, int]:
        """How far the lanes of results and of telemetry are."""
        return self.count("verdicts")[0], self.count("batches")[0]

    def moved(self, before: tuple[int, int]) -> bool:
        return all(now > then for now, then in zip(self.progress(), before, strict=True))

    def expect(self, expected: Mapping[str, int]) -> None:
        """Wait until each view has so many rows of this test's hosts: as long as it takes, while it goes on."""
        wanted = {table: (number,) for table, number in expected.items()}
        found: dict[str, tuple[int, ...]] = {}

        def moved() -> bool:
            before = dict(found)
            found.update({table: self.count(table) for table in wanted})
            return found != before

        def told() -> str:
            log = self.log() if (self.directory / "sink.log").exists() else ""
            return f"expected {wanted}, found {found}; the sink says:\n{log[-3000:]}"

        while found != wanted:
            wait_for(moved, told)

    def close(self) -> None:
        for sink in self.sinks:
            if sink.poll() is None:
                sink.kill()
            sink.wait()
        self.store.close()


@pytest.fixture
def bench(broker: LocalKafka, clickhouse: ClickHouseProcess, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(broker, clickhouse, tmp_path)
    yield made
    made.close()


def terminate(sink: subprocess.Popen[bytes]) -> int:
    sink.terminate()
    return sink.wait(60)


def metrics_in(records: list[Telemetry]) -> int:
    return sum(len(record.metrics) for record in records)


# Migrations


def columns_of(store: Store) -> list[tuple[Any, ...]]:
    """All columns of the tables and views."""
    sql = "SELECT table, name, type FROM system.columns WHERE database = {name:String} ORDER BY table, position"
    return [tuple(row) for row in store.query(sql, {"name": store.database}).rows]


def migrate_at_once(stores: Sequence[Store]) -> list[tuple[Any, ...]]:
    """Bring one database up to date by each of the stores, all at the same time; its columns afterwards."""
    begin = threading.Barrier(len(stores))

    def migrate(store: Store) -> bool:
        begin.wait(10)
        return bring_up_to_date(store, WarehouseSettings(), threading.Event())

    with ThreadPoolExecutor(len(stores)) as pool:
        assert all(pool.map(migrate, stores))
    assert set(recorded(stores[0], Layout(stores[0].database, stores[0].cluster))) == {m.number for m in migrations()}
    columns = columns_of(stores[0])
    for store in stores:
        store.close()
    return columns


def test_migrations_up_again_down_and_up(bench: Bench) -> None:
    steps, layout = migrations(), Layout(bench.name)
    assert apply(bench.store, steps, layout) == list(steps)
    assert apply(bench.store, steps, layout) == []
    assert recorded(bench.store, layout) == {step.number: step.checksum for step in steps}
    assert len(apply_retention(bench.store, retention(WarehouseSettings()), layout)) == len(
        retention(WarehouseSettings())
    )
    assert apply_retention(bench.store, retention(WarehouseSettings()), layout) == []
    assert apply_retention(bench.store, retention(WarehouseSettings(verdict_days=3)), layout) == ["verdicts_log"]
    assert apply_retention(bench.store, retention(WarehouseSettings(verdict_days=3, minute_days=4)), layout) == [
        "telemetry_minute_log"
    ]
    assert revert(bench.store, steps, layout, down_to=3) == list(reversed(steps[3:]))
    bench.store.query("SELECT event FROM host_timeline", database=bench.name)
    assert revert(bench.store, steps, layout, down_to=2) == [steps[2]]
    assert apply(bench.store, steps, layout) == list(steps[2:])
    assert revert(bench.store, steps, layout) == list(reversed(steps))
    left = bench.store.query("SELECT name FROM system.tables WHERE database = {name:String}", {"name": bench.name}).rows
    assert [tuple(row) for row in left] == [("migrations_log",)]
    assert apply(bench.store, steps, layout) == list(steps)


def test_a_migration_cut_off_in_the_middle_is_finished(bench: Bench) -> None:
    steps, layout = migrations(), Layout(bench.name)
    bench.store.command(f"CREATE DATABASE {bench.name}")
    for statement in steps[0].up[:3]:
        bench.store.command(layout.render(statement))
    assert apply(bench.store, steps, layout) == list(steps)


def test_an_edited_migration_is_refused_before_anything_changes(bench: Bench) -> None:
    steps, layout = migrations(), Layout(bench.name)
    apply(bench.store, steps[:1], layout)
    edited = replace(steps[0], checksum="0" * 64)
    with pytest.raises(MigrationError, match="0001_telemetry was edited after it was applied"):
        apply(bench.store, [edited, *steps[1:]], layout)
    assert set(recorded(bench.store, layout)) == {1}


def test_the_embedded_engine_parses_what_a_cluster_is_told(bench: Bench) -> None:
    layout = Layout(bench.name, "fleet")
    replicated = 0
    for step in migrations():
        for statement in (*step.up, *step.down):
            text = layout.render(statement)
            written = bench.store.query("SELECT formatQuery({sql:String})", {"sql": text}).rows[0][0]
            assert "ON CLUSTER fleet" in written
            assert "ENGINE = ReplacingMergeTree" not in written
            replicated += "ENGINE = Replicated" in written
    assert replicated >= 15


def test_sinks_that_start_at_the_same_time_migrate_together(bench: Bench) -> None:
    apply(bench.store, migrations(), Layout(bench.name))
    name = f"{bench.name}_together"
    found = migrate_at_once([Store(replace(bench.settings, database=name)) for _ in range(3)])
    bench.store.command(f"DROP DATABASE {name}")
    assert found == columns_of(bench.store)


def test_a_start_with_nothing_to_migrate_says_nothing_that_a_cluster_would_wait_for(bench: Bench) -> None:
    class Mute(Store):
        """Runs no statement."""

        def command(self, sql: str) -> None:
            raise AssertionError(sql)

    assert bring_up_to_date(bench.store, WarehouseSettings(), threading.Event())
    mute = Mute(bench.settings)
    assert bring_up_to_date(mute, WarehouseSettings(), threading.Event())
    mute.close()


def test_a_step_that_another_sink_did_meanwhile_is_not_done_again(bench: Bench) -> None:
    steps, layout = migrations(), Layout(bench.name)

    class Slow(Store):
        """Another sink does everything before the first table is made here."""

        def command(self, sql: str) -> None:
            if "telemetry_log" in sql and not recorded(bench.store, layout):
                assert apply(bench.store, steps, layout) == list(steps)
            super().command(sql)

    slow = Slow(bench.settings)
    assert apply(slow, steps, layout) == [steps[0]]
    slow.close()


def test_migrate_only_says_what_it_did(bench: Bench) -> None:
    assert bench.start("--migrate-only").wait(60) == 0
    assert "applied migration 0001_telemetry" in bench.log()
    assert bench.rows("SELECT count() FROM telemetry") == [(0,)]


# Kafka to ClickHouse


def test_everything_arrives_readable_and_once_although_sent_twice(bench: Bench) -> None:
    sink = bench.start()
    hosts = [bench.host(number) for number in range(3)]
    records = [second(host, name, index) for host in hosts for index in range(5) for name in SUBSYSTEMS]
    for _ in range(2):
        for record in records:
            bench.send(TELEMETRY[record.subsystem], record)
        for host in hosts:
            for index in range(4):
                bench.send(VERDICTS, verdict(host, index))
            for sequence in range(2):
                bench.send(EVENTS, event(host, sequence, code=79 if sequence else None))
            for revision in range(3):
                bench.send(ANOMALIES, episode(host, revision, "closed" if revision == 2 else "updated"))
        bench.flush()
    bench.send(VERDICTS, verdict(hosts[0], 0, severity=9.0))
    bench.flush()
    # The last message of all: what came before it on other partitions may still be on its way, hence the counts too.
    wait_for(lambda: bench.rows(f"SELECT severity FROM verdicts WHERE host = '{hosts[0]}' LIMIT 1") == [(9.0,)], "")
    bench.expect(
        {
            "telemetry": metrics_in(records),
            "batches": len(records),
            "hosts": 3,
            "verdicts": 12,
            "episodes": 9,
            "evidence": 18,
            "events": 6,
            "anomalies": 3,
            "anomaly_evidence": 6,
        }
    )
    record = records[0]
    name, matrix = next(item for item in record.metrics.items() if item[1].any())
    row = bench.rows(
        f"SELECT toUnixTimestamp(ts), mean, min, max, samples FROM telemetry WHERE host = '{record.host}' "
        f"AND metric = '{name}' AND ts = fromUnixTimestamp({record.start_ns // 10**9})"
    )
    assert row == [
        (record.start_ns // 10**9, pytest.approx(float(matrix.mean())), matrix.min(), matrix.max(), matrix.size)
    ]
    assert bench.rows(
        "SELECT scores['zscore'], isNaN(scores['forest']), thresholds['forest'], voters, shares['memory'], severity, "
        f"toUnixTimestamp64Nano(toDateTime64(window_start, 9)) FROM verdicts WHERE host = '{hosts[1]}' "
        "ORDER BY window_start LIMIT 1"
    ) == [(1.5, 1, float("inf"), ["mahalanobis"], 0.25, 0.5, verdict(hosts[1], 0).window_start_ns)]
    assert bench.rows(
        f"SELECT state, revision, duration_s, cause, votes['zscore'] FROM anomalies WHERE host = '{hosts[2]}'"
    ) == [("closed", 2, 5.0, "cpu_contention", 4)]
    assert bench.rows(
        f"SELECT rank, metric, instance_observed FROM anomaly_evidence WHERE host = '{hosts[2]}' ORDER BY rank"
    ) == [(1, "cpu.time.user", 0.95), (2, "cpu.load1", None)]
    assert bench.rows(f"SELECT host, open_episodes FROM fleet_health WHERE host = '{hosts[0]}'") == [(hosts[0], 0)]
    assert bench.rows(f"SELECT event FROM host_timeline WHERE host = '{hosts[0]}' ORDER BY ts") == [
        ("agent started",),
        ("xid",),
        ("xid",),
        ("episode closed",),
    ]
    assert bench.rows(
        "SELECT kind, subsystem, severity, instance, code, message, source, toUnixTimestamp64Milli(ts) FROM events "
        f"WHERE host = '{hosts[1]}' ORDER BY sequence"
    ) == [
        (
            "xid",
            "gpu",
            "critical",
            "gpu3",
            code,
            "GPU has fallen off the bus",
            "kernel log",
            event("", n).time_ns // 10**6,
        )
        for n, code in enumerate((None, 79))
    ]
    assert bench.rows(f"SELECT detail FROM host_timeline WHERE host = '{hosts[1]}' AND event = 'xid' LIMIT 1") == [
        ("critical on gpu3: GPU has fallen off the bus",)
    ]
    assert bench.rows(f"SELECT sequences['cpu'], instances['core'] FROM hosts WHERE host = '{hosts[0]}'") == [
        (4, ["0", "1"])
    ]
    assert terminate(sink) == 0


def test_unreadable_messages_get_a_letter_each_and_stop_nothing(bench: Bench) -> None:
    bench.start()
    host = bench.host()
    good = [second(host, "cpu", index) for index in range(6)]
    wide = bytearray(encode(good[0]))
    wide[wide.index(b"eth0") if b"eth0" in wide else wide.rindex(b"\x02\x30\x02\x31") + 3] = 0x30  # two cores named 0
    bad = {
        "not-avro": b"\x00\x01\x02 nonsense " + host.encode(),
        "unknown-schema": b"\xc3\x01" + b"12345678" + host.encode(),
        "unreadable-body": encode(good[0])[:-2],
        "wrong-record": encode(verdict(host, 0)),
        "wrong-dimensions": bytes(wide),
    }
    for record, garbage in zip(good, (*bad.values(), b""), strict=True):
        bench.send(TELEMETRY["cpu"], record)
        bench.send(TELEMETRY["cpu"], garbage or encode(record), host)
    bench.send(EVENTS, encode(verdict(host, 1)), host)
    bench.send(DEAD, b"no letter", host)
    bench.send(DEAD, letter(10**9), host)
    bench.flush()
    bench.expect({"batches": 6, "telemetry": metrics_in(good)})
    wait_for(
        lambda: (
            {
                reason
                for (reason,) in bench.rows(
                    f"SELECT reason FROM dead_letters WHERE topic = '{TELEMETRY['cpu']}' AND key = '{host}'"
                )
            }
            == set(bad)
        ),
        "five letters",
    )
    about_events = f"SELECT reason FROM dead_letters WHERE topic = '{EVENTS}' AND key = '{host}'"
    wait_for(lambda: bench.rows(about_events) == [("wrong-record",)], "a letter about an event")
    assert bench.rows(
        f"SELECT service, detail, value FROM dead_letters WHERE key = '{host}' AND reason = 'not-avro'"
    ) == [("warehouse", "starts with 0001, not with the Avro single-object marker c301", bad["not-avro"].decode())]
    # Its own letters come back to the sink; none of them begets another.
    assert bench.rows(f"SELECT count() FROM dead_letters WHERE topic = '{DEAD}'") == [(0,)]
    assert bench.rows("SELECT reason FROM dead_letters WHERE offset = 1000000000") == [("not-avro",)]


class Stream:
    """Sends telemetry, verdicts and episodes of some hosts until told to stop; knows what it sent."""

    def __init__(self, bench: Bench, hosts: int = 4, pause_s: float = 0.04) -> None:
        self.bench = bench
        self._pause_s = pause_s
        self.hosts = [bench.host(number) for number in range(hosts)]
        self.seconds = self.rows = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._templates = {name: second("x", name, 0) for name in SUBSYSTEMS}

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.bench.flush()

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            for host in self.hosts:
                for name, template in self._templates.items():
                    start_ns = template.start_ns + self.seconds * 1_000_000_000
                    record = replace(template, host=host, sequence=self.seconds, start_ns=start_ns)
                    self.rows += len(record.metrics)
                    self.bench.send(TELEMETRY[name], record)
                self.bench.send(VERDICTS, verdict(host, self.seconds))
                self.bench.send(ANOMALIES, episode(host, self.seconds))
            self.seconds += 1

    def expected(self) -> dict[str, int]:
        windows = len(self.hosts) * self.seconds
        return {
            "telemetry": self.rows,
            "batches": windows * len(SUBSYSTEMS),
            "verdicts": windows,
            "episodes": windows,
            "evidence": 2 * windows,
            "anomalies": len(self.hosts),
        }


@pytest.mark.timeout(600)
def test_sigkill_of_sink_clickhouse_and_kafka_loses_and_doubles_nothing(
    broker: LocalKafka, make_clickhouse: MakeClickHouse, tmp_path: Path
) -> None:
    clickhouse = make_clickhouse()
    bench = Bench(broker, clickhouse, tmp_path)
    rng = random.Random(7)
    try:
        sink = bench.start()
        wait_for(lambda: bench.count("verdicts") != (-1,), "tables")
        with Stream(bench) as stream:
            for kill in range(10):
                before = bench.progress()
                if kill % 3 == 2:
                    clickhouse.kill()
                    time.sleep(rng.uniform(0, 0.3))
                    clickhouse.start()
                if kill in {4, 7}:
                    broker.kill()
                    broker.start()
                    broker.wait_ready()
                # When both lanes flow, at any point of a batch.
                wait_for(partial(bench.moved, before), "rows after a kill")
                time.sleep(rng.uniform(0, 0.6))
                sink.send_signal(signal.SIGKILL)
                sink.wait()
                sink = bench.start()
            wait_for(partial(bench.moved, bench.progress()), "rows after the last kill")
        bench.expect(stream.expected())
        assert terminate(sink) == 0
        # What was committed is not read again: there is nothing left to do for the next one.
        stored = bench.rows("SELECT count() FROM batches_log")
        sink = bench.start()
        bench.send(VERDICTS, verdict(bench.host(99), 0))
        bench.flush()
        wait_for(lambda: bench.rows(f"SELECT 1 FROM verdicts WHERE host = '{bench.host(99)}'") == [(1,)], "")
        assert bench.rows("SELECT count() FROM batches_log") <= stored
    finally:
        bench.close()


def test_two_sinks_share_and_take_over(bench: Bench) -> None:
    first = bench.start(instance="a")
    wait_for(lambda: bench.count("verdicts") != (-1,), "tables")
    with Stream(bench) as stream:
        second_sink = bench.start(instance="b")
        wait_for(lambda: "revoked" in bench.log() or bench.log().count("assigned ") >= 2, "both at work")
        before = bench.count("verdicts")
        wait_for(lambda: bench.count("verdicts") > before, "rows")
        first.send_signal(signal.SIGKILL)
        first.wait()
        before = bench.count("verdicts")
        wait_for(lambda: bench.count("verdicts") > before, "rows")
    bench.expect(stream.expected())
    assert terminate(second_sink) == 0


class Cutter:
    """A TCP proxy in front of ClickHouse that, once told to, drops every seventh answer: the request was executed, and
    who sent it does not know.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.cutting = threading.Event()
        self.cuts = self._answers = 0
        self._open = True
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with self._server:
            self._server.settimeout(0.1)
            while self._open:
                try:
                    client, _ = self._server.accept()
                except TimeoutError:
                    continue
                thread = threading.Thread(target=self._serve, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as upstream:
            while self._open:
                for source in select.select([client, upstream], [], [], 0.1)[0]:
                    try:
                        data = source.recv(65_536)
                        if not data or (source is upstream and self._drops()):
                            return
                        (client if source is upstream else upstream).sendall(data)
                    except OSError:
                        return

    def _drops(self) -> bool:
        if not self.cutting.is_set():
            return False
        self._answers += 1
        self.cuts += self._answers % 7 == 0
        return self._answers % 7 == 0

    def close(self) -> None:
        self._open = False
        for thread in self._threads:
            thread.join()


def test_answers_lost_after_the_insert_was_stored(bench: Bench) -> None:
    cutter = Cutter(bench.clickhouse.port)
    try:
        bench.port = cutter.port
        sink = bench.start()
        wait_for(lambda: "consuming" in bench.log(), "tables")
        with Stream(bench, hosts=2) as stream:
            cutter.cutting.set()
            wait_for(lambda: cutter.cuts >= 10, "ten cuts")
        bench.expect(stream.expected())
        # Each of these inserts had been stored, and was sent again.
        assert bench.log().count("trying again: ") >= 5
        assert terminate(sink) == 0
    finally:
        cutter.close()


def test_waits_for_clickhouse_says_why_and_stops_when_told(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        bench.port = nobody.getsockname()[1]
    sink = bench.start()
    wait_for(lambda: "waiting for ClickHouse" in bench.log(), "a word about it")
    assert f"http://127.0.0.1:{bench.port} does not answer" in bench.log()
    assert terminate(sink) == 0


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_stops_within_seconds_although_kafka_is_gone(
    new_kafka: NewKafka, clickhouse: ClickHouseProcess, tmp_path: Path, fate: signal.Signals
) -> None:
    broker = new_kafka()
    make_topics(broker.bootstrap)
    bench = Bench(broker, clickhouse, tmp_path)
    try:
        sink = bench.start()
        bench.send(VERDICTS, verdict(bench.host(), 0))
        bench.flush()
        bench.expect({"verdicts": 1})
        # Its offset may be on the way now, and the client waits for that for ever.
        assert broker.pid is not None
        os.kill(broker.pid, fate)
        began = time.monotonic()
        assert terminate(sink) == 0
        assert time.monotonic() - began < STOP_S + 5
    finally:
        bench.close()


# reveal sql


def test_sql_prints_tables_json_and_csv(bench: Bench) -> None:
    bench.store.command(f"CREATE DATABASE {bench.name}")
    query = "SELECT {who:String} AS host, toDateTime64('2026-01-31 12:00:00.5', 3, 'UTC') AS ts, nan AS x, [1, 2] AS y"
    table = bench.reveal("sql", query, "--param", "who=h1")
    assert table.returncode == 0, table.stderr
    assert [word in table.stdout for word in ("host", "h1", "2026-01-31T12:00:00.500Z", "1 row")] == [True] * 4
    as_json = bench.reveal("sql", "-", "--format", "json", "--param", "who=h1", stdin=query + ";\n")
    assert json.loads(as_json.stdout) == [{"host": "h1", "ts": "2026-01-31T12:00:00.500Z", "x": None, "y": [1, 2]}]
    as_csv = bench.reveal("sql", query, "--format", "csv", "--param", "who=a,b")
    assert as_csv.stdout == 'host,ts,x,y\n"a,b",2026-01-31T12:00:00.500Z,nan,"1, 2"\n'


def test_sql_takes_statements_and_results_without_rows(bench: Bench) -> None:
    bench.store.command(f"CREATE DATABASE {bench.name}")
    nothing = "SELECT a FROM x WHERE a > 1"
    for statement in ("CREATE TABLE x (a Int8) ENGINE = Memory", "INSERT INTO x VALUES (1)", nothing):
        done = bench.reveal("sql", statement)
        assert (done.returncode, done.stdout, done.stderr) == (0, "0 rows\n", "")
    assert bench.reveal("sql", nothing, "--format", "json").stdout == "[]\n"
    assert bench.reveal("sql", nothing, "--format", "csv").stdout == ""
    assert bench.reveal("sql", "SELECT a FROM x", "--format", "csv").stdout == "a\n1\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["SELECT * FROM nowhere"], "nowhere"),
        (["SELEC 1"], "Syntax error"),
        (["SELECT {x:Int8}"], "x"),
        (["SELECT 1", "--param", "nonsense"], "not NAME=VALUE"),
        ([" "], "the query is empty"),
    ],
)
def test_sql_errors_are_one_paragraph(bench: Bench, arguments: list[str], words: str) -> None:
    bench.store.command(f"CREATE DATABASE IF NOT EXISTS {bench.name}")
    done = bench.reveal("sql", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.startswith("reveal sql: ")
    assert done.stderr.count("\n") == 1


def test_sql_says_how_to_make_a_database_that_is_not_there(bench: Bench) -> None:
    done = bench.reveal("sql", "SELECT 1")
    assert done.returncode == 1
    assert f"Database {bench.name} does not exist" in done.stderr
    assert "reveal warehouse --migrate-only" in done.stderr


def test_sql_says_that_clickhouse_is_away(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        bench.port = nobody.getsockname()[1]
    done = bench.reveal("sql", "SELECT 1")
    assert done.returncode == 1
    assert f"ClickHouse at http://127.0.0.1:{bench.port} does not answer" in done.stderr
