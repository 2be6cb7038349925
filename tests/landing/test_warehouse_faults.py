"""What goes wrong around the sink, with the real Kafka and ClickHouse: away, full, read-only, too old, too new; and
what the sink says of it, and does beside its inserts.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from numpy.typing import NDArray

from deploy.kafka.server import LocalKafka
from schemas.catalogue import schema_text
from schemas.codec import MARKER, encode, schema_fingerprint, telemetry_to_avro
from schemas.records import StateRecord, Telemetry
from schemas.topics import ANOMALIES, MODELS, TELEMETRY, VERDICTS
from schemas.versions import published
from sinks.warehouse.consumer import SESSION_S
from sinks.warehouse.messages import TOPICS
from tests.clickhouse_fixture import ClickHouseProcess, MakeClickHouse
from tests.landing.test_warehouse import Bench, Stream, metrics_in, terminate
from tests.streams import PARTITIONS, wait_for
from tests.synthetic import SUBSYSTEMS, second
from tests.unit.sinks.examples import episode, verdict

pytestmark = pytest.mark.stack


@pytest.fixture
def bench(broker: LocalKafka, clickhouse: ClickHouseProcess, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(broker, clickhouse, tmp_path, more={"REVEAL_WAREHOUSE_LISTEN": "127.0.0.1:0"})
    yield made
    made.close()


def page(bench: Bench, path: str) -> tuple[int, str]:
    """Status and text of a page of the bench's newest sink."""
    wait_for(lambda: "serving http://" in bench.log(), "a page")
    address = re.findall(r"serving (http://[\d.:]+)/metrics", bench.log())[-1]
    try:
        with urllib.request.urlopen(address + path, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics(bench: Bench) -> dict[str, float]:
    lines = [line for line in page(bench, "/metrics")[1].splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_clickhouse_away_for_a_minute_under_load(
    broker: LocalKafka, make_clickhouse: MakeClickHouse, tmp_path: Path
) -> None:
    clickhouse = make_clickhouse()
    bench = Bench(broker, clickhouse, tmp_path, more={"REVEAL_WAREHOUSE_LISTEN": "127.0.0.1:0"})
    try:
        sink = bench.start()
        wait_for(lambda: bench.count("verdicts") != (-1,), "tables")
        with Stream(bench, hosts=3, pause_s=0.2) as stream:
            wait_for(lambda: bench.moved((0, 0)), "rows")
            clickhouse.kill()
            down = time.monotonic()
            wait_for(lambda: metrics(bench)["reveal_warehouse_waiting"] == 1, "the sink to notice")
            wait_for(lambda: metrics(bench)["reveal_warehouse_lag_seconds"] > 50, "a minute")
            assert page(bench, "/healthz") == (200, "ok\n")
            status, reason = page(bench, "/readyz")
            assert status == 503
            assert "does not answer" in reason
            wait_for(lambda: time.monotonic() - down >= 60, "a whole minute")
            clickhouse.start()
            before = bench.progress()
            wait_for(lambda: bench.moved(before), "rows")
        bench.expect(stream.expected())
        wait_for(lambda: metrics(bench)["reveal_warehouse_lag_seconds"] == 0, "all stored")
        found = metrics(bench)
        assert found["reveal_warehouse_waiting"] == 0
        assert found["reveal_warehouse_failures_total"] > 10
        assert found["reveal_warehouse_lost_messages_total"] == 0
        # It was never taken for dead: it polled while it waited.
        assert "lost " not in bench.log()
        assert terminate(sink) == 0
    finally:
        bench.close()


def test_a_table_that_is_read_only_for_a_while(bench: Bench) -> None:
    sink = bench.start()
    wait_for(lambda: bench.count("verdicts") != (-1,), "tables")
    with Stream(bench, hosts=2) as stream:
        wait_for(lambda: bench.moved((0, 0)), "rows")
        bench.store.command(f"ALTER TABLE {bench.name}.telemetry_log MODIFY SETTING table_readonly = 1")
        wait_for(lambda: "waiting, and trying again" in bench.log(), "a word about it")
        assert "readonly" in next(line for line in bench.log().splitlines() if "trying again" in line)
        bench.store.command(f"ALTER TABLE {bench.name}.telemetry_log MODIFY SETTING table_readonly = 0")
        before = bench.progress()
        wait_for(lambda: bench.moved(before), "rows again")
    bench.expect(stream.expected())
    assert terminate(sink) == 0


LEFT_BYTES = 4 << 20
"""What others leave of the disk: less than the engine keeps free, which is a twentieth of it."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, small enough to be filled."""
    place = tmp_path / "disk"
    place.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192m", "none", place], check=False).returncode
    ):
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_disk_that_is_full_for_a_while(broker: LocalKafka, small_disk: Path, tmp_path: Path) -> None:
    clickhouse = ClickHouseProcess(small_disk / "clickhouse").start()
    bench = Bench(broker, clickhouse, tmp_path)
    ballast = small_disk / "ballast"
    try:
        sink = bench.start()
        wait_for(lambda: bench.count("verdicts") != (-1,), "tables")
        with Stream(bench, hosts=2) as stream:
            wait_for(lambda: bench.moved((0, 0)), "rows")
            deadline = time.monotonic() + 60
            with ballast.open("wb", buffering=0) as file:
                while "waiting, and trying again" not in bench.log():
                    assert time.monotonic() < deadline, "the sink does not notice"
                    # Merges free some room now and then.
                    if shutil.disk_usage(small_disk).free > LEFT_BYTES:
                        file.write(bytes(1 << 16))
            assert "space" in next(line for line in bench.log().splitlines() if "trying again" in line)
            ballast.unlink()
            before = bench.progress()
            wait_for(lambda: bench.moved(before), "rows again")
        bench.expect(stream.expected())
        assert terminate(sink) == 0
    finally:
        bench.close()
        clickhouse.kill()


def test_what_the_topic_lost_before_it_was_read_is_told(bench: Bench) -> None:
    host = bench.host()
    sink = bench.start()
    for index in range(20):
        bench.send(VERDICTS, verdict(host, index))
    bench.flush()
    bench.expect({"verdicts": 20})
    assert terminate(sink) == 0
    for index in range(20, 60):
        bench.send(VERDICTS, verdict(host, index))
    bench.flush()
    # Retention removes the first 25 of them. All 60 are of one host, so on one partition.
    settings = {"bootstrap.servers": bench.kafka.bootstrap, "group.id": bench.name}
    look = Consumer(settings)
    highs = [
        look.get_watermark_offsets(TopicPartition(VERDICTS, number), timeout=60)[1] for number in range(PARTITIONS)
    ]
    places = look.committed([TopicPartition(VERDICTS, number) for number in range(PARTITIONS)], timeout=60)
    number = next(place.partition for place in places if highs[place.partition] - place.offset == 40)
    look.close()
    admin = AdminClient({"bootstrap.servers": bench.kafka.bootstrap})
    for future in admin.delete_records([TopicPartition(VERDICTS, number, highs[number] - 15)]).values():
        future.result(20)
    bench.start()
    bench.expect({"verdicts": 35})
    wait_for(lambda: metrics(bench)["reveal_warehouse_lost_messages_total"] == 25, "the loss")
    assert re.search(rf"25 messages of {VERDICTS}\[{number}\] were deleted before they were read", bench.log())


def test_marks_of_transactions_are_no_loss(bench: Bench) -> None:
    """The alerts of `reveal alerts` come in transactions, each of which takes an offset more than it has messages."""
    sink = bench.start()
    producer = Producer({"bootstrap.servers": bench.kafka.bootstrap, "transactional.id": bench.name})
    producer.init_transactions(60)
    for index in range(6):
        producer.begin_transaction()
        producer.produce(VERDICTS, encode(verdict(bench.host(), index)), bench.host().encode())
        if index % 3 == 1:
            producer.flush(60)
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    bench.expect({"verdicts": 4})
    assert metrics(bench)["reveal_warehouse_lost_messages_total"] == 0
    assert "deleted" not in bench.log()
    assert terminate(sink) == 0


def test_a_sink_whose_name_another_one_took_ends_and_says_why(bench: Bench) -> None:
    """Kafka lets no two consumers go on under one name; what it takes for another one may be the same one, which came
    back after its session had expired. After that error nothing is ever read.
    """
    sink = bench.start()
    wait_for(lambda: "assigned " in bench.log(), "the sink at work")
    options = {"bootstrap.servers": bench.kafka.bootstrap, "group.id": bench.name, "group.instance.id": "warehouse-1"}
    other = Consumer({**options, "partition.assignment.strategy": "cooperative-sticky"})
    other.subscribe(list(TOPICS))
    try:
        wait_for(lambda: other.poll(0.2) is not None or sink.poll() is not None, "the end of the sink")
        assert sink.wait(60) == 1
    finally:
        other.close()
    assert re.search(r"Kafka does not let this sink go on: .*fenced.*REVEAL_WAREHOUSE_INSTANCE", bench.log())
    bench.send(VERDICTS, verdict(bench.host(), 0))
    bench.flush()
    again = bench.start()
    bench.expect({"verdicts": 1})
    assert terminate(again) == 0


def test_a_sink_that_was_stopped_for_longer_than_its_session_goes_on(bench: Bench) -> None:
    sink = bench.start()
    with Stream(bench, hosts=2) as stream:
        wait_for(lambda: bench.moved((0, 0)), "rows")
        sink.send_signal(signal.SIGSTOP)
        time.sleep(SESSION_S + 5)
        sink.send_signal(signal.SIGCONT)
        before = bench.progress()
        # Whoever runs it starts it again if it ended.
        wait_for(lambda: bench.moved(before) or sink.poll() is not None, "rows, or its end")
        if sink.poll() is not None:
            assert "Kafka does not let this sink go on" in bench.log()
            sink = bench.start()
        wait_for(lambda: bench.moved(before), "rows")
    bench.expect(stream.expected())
    assert terminate(sink) == 0


def test_older_and_newer_producers(bench: Bench) -> None:
    """A message of the first schema is stored; one of a schema that this program does not know waits as a dead letter;
    one of a schema with one more metric than it knows, once published, is read without it.
    """
    host = bench.host()
    bench.start()
    record = second(host, "cpu", 0)
    first = published("cpu")[0]
    older = replace(record, sequence=1, start_ns=record.start_ns + 10**9)
    newer = replace(record, sequence=2, start_ns=record.start_ns + 2 * 10**9)
    bench.send(TELEMETRY["cpu"], written(older, first), host)
    bench.send(TELEMETRY["cpu"], written(newer, with_another_metric()), host)
    bench.send(TELEMETRY["cpu"], record)
    bench.flush()
    bench.expect({"batches": 2, "telemetry": metrics_in([record, older])})
    reasons = f"SELECT reason FROM dead_letters WHERE key = '{host}'"
    wait_for(lambda: bench.rows(reasons) == [("unknown-schema",)], "a letter about the newer one")


def with_another_metric() -> dict[str, Any]:
    """The schema of cpu as a program to come might have it."""
    schema: dict[str, Any] = json.loads(schema_text("cpu"))
    schema["fields"].append({"name": "metric_to_come", "type": ["null", "double"], "default": None, "doc": "To come"})
    return schema


def written(record: Telemetry, schema: dict[str, Any]) -> bytes:
    """`record` as a producer with `schema` sends it."""
    from schemas.codec import current_schema

    body = telemetry_to_avro(record, current_schema(record.subsystem))
    names = {field["name"] for field in schema["fields"]}
    out = io.BytesIO(MARKER + schema_fingerprint(schema))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(schema), {name: value for name, value in body.items() if name in names}
    )
    return out.getvalue()


def test_metrics_tell_rows_rejects_lag_and_errors(bench: Bench) -> None:
    sink = bench.start()
    records = [second(bench.host(), name, index) for index in range(5) for name in SUBSYSTEMS]
    for record in records:
        bench.send(TELEMETRY[record.subsystem], record)
    bench.send(VERDICTS, b"nonsense", bench.host())
    bench.flush()
    bench.expect({"telemetry": metrics_in(records)})
    wait_for(lambda: metrics(bench).get('reveal_warehouse_rejected_total{reason="not-avro"}') == 1, "a reject")
    found = metrics(bench)
    assert found['reveal_warehouse_rows_total{table="telemetry_log"}'] >= metrics_in(records)
    assert found["reveal_warehouse_inserts_total"] >= 3
    assert found["reveal_warehouse_leads"] == 1
    wait_for(lambda: metrics(bench)[f'reveal_warehouse_lag_messages{{topic="{VERDICTS}"}}'] == 0, "no lag")
    assert found[next(name for name in found if name.startswith("reveal_warehouse_info"))] == 1
    assert page(bench, "/readyz") == (200, "ok\n")
    assert page(bench, "/elsewhere")[0] == 404
    assert terminate(sink) == 0


# What the sink does beside its inserts


def test_samples_around_an_episode_are_kept_and_minutes_are_summed_up(bench: Bench) -> None:
    bench.more |= {
        "REVEAL_WAREHOUSE_ROLLUP_S": "1",
        "REVEAL_WAREHOUSE_SAMPLES_BEFORE_S": "10",
        "REVEAL_WAREHOUSE_SAMPLES_AFTER_S": "10",
    }
    host, other = bench.host(1), bench.host(2)
    sink = bench.start()
    records = [second(name, kind, index) for index in range(40) for name in (host, other) for kind in SUBSYSTEMS]
    for record in records:
        bench.send(TELEMETRY[record.subsystem], record)
        if record.sequence == 20:
            # Sent twice: the samples are there once.
            bench.send(TELEMETRY[record.subsystem], record)
    shift_ns = 15 * 10**9
    closed = episode(host, 2, "closed")
    assert closed.closed_ns is not None
    closed = replace(
        closed,
        start_ns=closed.start_ns + shift_ns,
        opened_ns=closed.opened_ns + shift_ns,
        updated_ns=closed.updated_ns + shift_ns,
        closed_ns=closed.closed_ns + shift_ns,
    )
    bench.send(ANOMALIES, closed)
    bench.flush()
    spans = f"SELECT until - begin, whole, batches, gone FROM episode_spans WHERE host = '{host}'"
    # From 10 s before its start to 10 s after its end, 5 s later.
    wait_for(lambda: bench.rows(spans) == [(pytest.approx(25), True, 25 * len(SUBSYSTEMS), 0)], "the samples")
    record = second(host, "cpu", 12)
    name = next(iter(record.metrics))
    values = bench.rows(
        f"SELECT instance, groupArray(value) FROM (SELECT * FROM episode_samples WHERE episode = '{closed.id}' AND "
        f"metric = '{name}' AND ts >= fromUnixTimestamp64Nano({record.start_ns}) AND "
        f"ts < fromUnixTimestamp64Nano({record.start_ns + 10**9}) ORDER BY ts) GROUP BY instance ORDER BY instance"
    )
    matrix = record.metrics[name]
    assert [(instance, pytest.approx(matrix[:, column])) for column, (instance, _) in enumerate(values)] == values
    assert bench.rows(f"SELECT count() FROM episode_samples WHERE host = '{other}'") == [(0,)]
    cells = sum(
        int((~np.isnan(matrix)).sum())
        for record in records
        if record.host == host and 5 <= record.sequence < 30
        for matrix in record.metrics.values()
    )
    assert bench.rows(f"SELECT count() FROM episode_samples WHERE host = '{host}'") == [(cells,)]
    exact = bench.rows("SELECT sum(samples) FROM telemetry WHERE host LIKE {mine:String}")
    for view in ("telemetry_minute", "telemetry_hour"):
        sums = f"SELECT sum(samples) FROM {view} WHERE host LIKE {{mine:String}}"
        wait_for(partial(same, bench, sums, exact), view)
    assert terminate(sink) == 0


def same(bench: Bench, sql: str, rows: list[tuple[Any, ...]]) -> bool:
    return bench.rows(sql) == rows


def test_models_are_told_and_the_rest_of_their_topic_is_passed_over(bench: Bench) -> None:
    host = bench.host()
    manifest = {"version": 3, "candidates": 900, "blocks": ["cpu", "gpu"], "learnt_from": 1_790_000_000}
    arrays: dict[str, NDArray[Any]] = {
        "kept cpu": np.zeros(40, np.int16),
        "kept gpu": np.zeros(2, np.int16),
        "center": np.zeros(9, np.float32),
    }
    model = StateRecord(host, "model/1", json.dumps(manifest), arrays)
    sink = bench.start()
    for record in (
        StateRecord(host, "progress", "{}", {}),
        model,
        StateRecord(host, "row/3", "{}", {}),
        replace(model, slot="model/0", manifest="{}"),
    ):
        bench.producer.produce(MODELS, encode(record), record.key)
    bench.producer.produce(MODELS, None, f"{host}\0model/0".encode())
    bench.flush()
    bench.expect({"models": 1})
    assert bench.rows(
        "SELECT version, toUnixTimestamp(learnt_from), features, kept, kept_by, bytes FROM models "
        f"WHERE host = '{host}'"
    ) == [(3, 1_790_000_000, 900, 42, {"cpu": 40, "gpu": 2}, 120)]
    letters = f"SELECT reason FROM dead_letters WHERE topic = '{MODELS}' AND key = '{host}'"
    wait_for(lambda: bench.rows(letters) == [("wrong-record",)], "a letter about the manifest of another form")
    assert terminate(sink) == 0
