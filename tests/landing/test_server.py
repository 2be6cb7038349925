"""A ClickHouse server, alone and as a cluster of two: the migrations, and rows from Kafka. Which server it is, and when
these tests are skipped, says tests/server_fixture.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.kafka.server import LocalKafka
from schemas.settings import WarehouseSettings
from schemas.topics import TELEMETRY
from sinks.warehouse.migrate import Layout, apply, apply_retention, migrations, recorded, retention, revert
from sinks.warehouse.store import Store
from tests.landing.test_warehouse import Bench, columns_of, migrate_at_once, terminate
from tests.server_fixture import CLUSTER, Server, replicas, server
from tests.streams import wait_for
from tests.synthetic import SUBSYSTEMS, second

__all__ = ["replicas", "server"]
pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]


@dataclass
class Place:
    """Where tables are: the store that the sink writes to, the nodes that have them, the name of the cluster."""

    store: Store
    nodes: Sequence[Server]
    cluster: str

    @property
    def layout(self) -> Layout:
        return Layout(self.store.database, self.cluster)

    def ask(self, node: Server, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a query on one node, which first has what its replicas have."""
        store = node.store(self.store.database)
        try:
            if self.cluster:
                sync(store)
            return [tuple(row) for row in store.query(sql, {"name": store.database}, database=store.database).rows]
        finally:
            store.close()

    def shape(self, node: Server) -> list[tuple[Any, ...]]:
        """Columns of all tables and views, with the engines, keys and retention."""
        return self.ask(
            node,
            "SELECT c.table, c.position, c.name, c.type, c.default_expression, c.comment, replaceOne(t.engine, "
            "'Replicated', ''), t.partition_key, t.sorting_key, extract(t.create_table_query, 'TTL (.*?) SETTINGS') "
            "FROM system.columns AS c JOIN system.tables AS t ON t.database = c.database AND t.name = c.table "
            "WHERE c.database = {name:String} ORDER BY c.table, c.position",
        )


def sync(store: Store) -> None:
    """Wait until a replica has all rows of the others; one that has just started first has to find them."""
    replicated = "SELECT table, is_readonly FROM system.replicas WHERE database = {name:String}"
    tables: list[Sequence[Any]] = []

    def writable() -> bool:
        tables[:] = store.query(replicated, {"name": store.database}).rows
        return not any(away for _, away in tables)

    wait_for(writable, "a replica that takes rows")
    for table, _ in tables:
        store.command(f"SYSTEM SYNC REPLICA {store.database}.{table}")


@pytest.fixture(params=["single", "cluster"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """An empty database."""
    name = f"t{uuid.uuid4().hex[:12]}"
    if request.param == "single":
        nodes, cluster = [request.getfixturevalue("server")], ""
    else:
        nodes, cluster = request.getfixturevalue("replicas"), CLUSTER
    store = nodes[0].store(name, cluster)
    yield Place(store, nodes, cluster)
    store.command(f"DROP DATABASE IF EXISTS {name} {f'ON CLUSTER {cluster}' if cluster else ''} SYNC")
    store.close()


@pytest.fixture(scope="module")
def alone(server: Server) -> Iterator[Place]:
    """What one node has that one sink migrated."""
    place = Place(server.store("alone"), [server], "")
    apply(place.store, migrations(), place.layout)
    yield place
    place.store.close()


# Migrations


def test_migrations_up_and_down(place: Place, alone: Place) -> None:
    steps, store, layout = migrations(), place.store, place.layout
    shapes = []
    for count in range(1, len(steps) + 1):
        assert apply(store, steps[:count], layout) == [steps[count - 1]]
        shapes.append(place.shape(place.nodes[0]))
    assert apply(store, steps, layout) == []
    assert recorded(store, layout) == {step.number: step.checksum for step in steps}
    for count in range(len(steps) - 1, 0, -1):
        assert revert(store, steps, layout, down_to=count) == [steps[count]]
        assert place.shape(place.nodes[0]) == shapes[count - 1]
    assert revert(store, steps, layout) == [steps[0]]
    for node in place.nodes:
        assert place.ask(node, "SELECT name FROM system.tables WHERE database = {name:String}") == [("migrations_log",)]
    assert apply(store, steps, layout) == list(steps)
    for node in place.nodes:
        assert place.shape(node) == alone.shape(*alone.nodes)
        engines = place.ask(node, "SELECT DISTINCT engine FROM system.tables WHERE database = {name:String} ORDER BY 1")
        assert engines == [(f"{'Replicated' if place.cluster else ''}ReplacingMergeTree",), ("View",)]
    days = retention(WarehouseSettings(verdict_days=3))
    assert len(apply_retention(store, days, layout)) == len(days)
    assert apply_retention(store, days, layout) == []
    for node in place.nodes:
        shape = place.shape(node)
        assert shape == place.shape(place.nodes[0])
        assert {row[-1] for row in shape if row[0] == "verdicts_log"} == {"toDateTime(stored) + toIntervalDay(3)"}


def test_sinks_that_start_at_the_same_time_migrate_together(place: Place, alone: Place) -> None:
    name, last = place.store.database, place.nodes[-1]
    found = migrate_at_once([node.store(name, place.cluster) for node in (place.nodes[0], last, last)])
    assert found == columns_of(alone.store)


# Rows from Kafka


def test_rows_of_kafka_are_on_both_replicas_although_one_was_away(
    replicas: Sequence[Server], broker: LocalKafka, tmp_path: Path
) -> None:
    first, other = replicas
    bench = Bench(broker, first, tmp_path, more={"REVEAL_CLICKHOUSE_CLUSTER": CLUSTER})
    records = [second(bench.host(), name, index) for index in range(6) for name in SUBSYSTEMS]
    try:
        sink = bench.start()
        half = len(records) // 2
        for record in records[:half]:
            bench.send(TELEMETRY[record.subsystem], record)
        bench.flush()
        bench.expect({"batches": half})
        other.kill()
        for record in records[half:]:
            bench.send(TELEMETRY[record.subsystem], record)
        bench.flush()
        bench.expect({"batches": len(records)})
        assert terminate(sink) == 0
        # A sink that starts while a replica is away has nothing to ask of it.
        sink = bench.start()
        for record in records:
            bench.send(TELEMETRY[record.subsystem], record)
        bench.send(TELEMETRY["cpu"], second(bench.host(), "cpu", 99))
        bench.flush()
        bench.expect({"batches": len(records) + 1})
        assert terminate(sink) == 0
        other.start()
        store = other.store(bench.name)
        sync(store)
        found = store.query("SELECT count(), uniqExact(subsystem) FROM batches", database=bench.name).rows
        assert [tuple(row) for row in found] == [(len(records) + 1, len(SUBSYSTEMS))]
        store.close()
    finally:
        bench.close()
        other.kill()
        other.start()
