"""People who only ask, on a ClickHouse server, alone and as a cluster of two: every query of the cookbook, and what
`deploy/clickhouse-analyst.sql` allows, refuses and limits. Which server it is, says tests/server_fixture.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import cache

import pytest

from sinks.warehouse.preset import presets
from sinks.warehouse.store import Store, StoreError
from tests.cookbook import PAGE, answer, block, fill, markers, simulate
from tests.landing.test_query import assert_alike
from tests.landing.test_server import sync
from tests.server_fixture import CLUSTER, Server, replicas, server

__all__ = ["replicas", "server"]
pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

ANALYST = PAGE.parents[1] / "deploy" / "clickhouse-analyst.sql"
PASSWORD = "correct horse"
ACCESS_DENIED, READONLY, NO_DDL, CONSTRAINT = 497, 164, 392, 452
TOO_MANY_ROWS, TOO_MANY_RESULT_ROWS, QUOTA = 158, 396, 201


fleet = cache(simulate)


@pytest.fixture(scope="module", params=["single", "cluster"])
def asked(request: pytest.FixtureRequest) -> Iterator[list[tuple[Server, Store]]]:
    """The nodes, and the analyst's connection to each."""
    nodes, cluster = [request.getfixturevalue("server")], ""
    if request.param == "cluster":
        nodes, cluster = request.getfixturevalue("replicas"), CLUSTER
    with closing(nodes[0].store("reveal", cluster)) as admin:
        fill(admin, fleet())
    for node in nodes:
        done = node.client("--multiquery", f"--param_password={PASSWORD}", script=ANALYST.read_text())
        assert done.returncode == 0, done.stderr
        with closing(node.store("reveal")) as admin:
            sync(admin)
    with ExitStack() as stores:
        analyst = {"username": "analyst", "password": PASSWORD}
        yield [(node, stores.enter_context(closing(node.store("reveal", **analyst)))) for node in nodes]


@pytest.fixture
def analyst(asked: list[tuple[Server, Store]]) -> tuple[Server, Store]:
    """The last node, to which nothing but replication brought rows and tables."""
    return asked[-1]


def code(store: Store, sql: str) -> int | None:
    """The number of the error that a statement ends with, None if it works."""
    try:
        store.query(sql)
    except StoreError as error:
        if error.code is None:
            raise
        return error.code
    return None


def test_an_analyst_asks_every_query_of_the_page_on_every_node(asked: list[tuple[Server, Store]]) -> None:
    places = list(markers(PAGE.read_text(encoding="utf-8")))
    assert sorted(name for name, *_ in places) == list(presets())
    for _, store in asked:
        for name, options, told in places:
            columns, rows = answer(store, presets()[name], options)
            assert columns
            assert rows
            assert_alike(block(store, name, options), told)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO reveal.dead_letters_log (topic) VALUES ('x')",
        "ALTER TABLE reveal.verdicts_log DELETE WHERE 1",
        "TRUNCATE TABLE reveal.verdicts_log",
        "DROP VIEW reveal.anomalies",
        "CREATE TABLE reveal.mine (x Int8) ENGINE = MergeTree ORDER BY x",
        "CREATE TEMPORARY TABLE mine (x Int8)",
        "CREATE USER other",
        "GRANT SELECT ON *.* TO analyst",
        "OPTIMIZE TABLE reveal.verdicts_log FINAL",
        "SYSTEM STOP MERGES reveal.telemetry_log",
        "KILL QUERY WHERE 1",
        "SELECT * FROM url('http://127.0.0.1:1/', CSV, 'x String')",
        "SELECT * FROM file('x.csv', CSV, 'x String')",
        "SELECT * FROM remote('127.0.0.1', system.one)",
        "SELECT * FROM other.secret",
        "SELECT * FROM system.users",
    ],
)
def test_an_analyst_does_nothing_else(analyst: tuple[Server, Store], sql: str) -> None:
    node, store = analyst
    admin = node.store("other")
    admin.command("CREATE DATABASE IF NOT EXISTS other")
    admin.command("CREATE TABLE IF NOT EXISTS other.secret (x Int8) ENGINE = MergeTree ORDER BY x")
    admin.close()
    assert code(store, sql) in (ACCESS_DENIED, READONLY)


BOUNDS = ("max_execution_time", "max_result_rows", "max_rows_to_read", "max_memory_usage", "max_threads")


def test_an_analyst_has_limits(analyst: tuple[Server, Store]) -> None:
    _, store = analyst
    assert code(store, "SELECT number FROM numbers(1000000)") is None
    assert code(store, "SELECT number FROM numbers(1000001)") == TOO_MANY_RESULT_ROWS
    assert code(store, "SELECT number FROM numbers(1000001) SETTINGS max_result_rows = 2000000") is None
    read = "SELECT sum(mean) FROM reveal.telemetry_log SETTINGS max_rows_to_read"
    assert code(store, f"{read} = 1000") == TOO_MANY_ROWS
    assert code(store, f"{read} = 1000000") is None
    values = store.query(f"SELECT name, value FROM system.settings WHERE name IN {(*BOUNDS, 'readonly', 'priority')}")
    assert {name: int(value) for name, value in values.rows} == {
        "max_execution_time": 60,
        "max_result_rows": 1_000_000,
        "max_rows_to_read": 5_000_000_000,
        "max_memory_usage": 8_000_000_000,
        "max_threads": 8,
        "readonly": 2,
        "priority": 10,
    }


@pytest.mark.parametrize("name", BOUNDS)
def test_an_analyst_cannot_lift_a_limit(analyst: tuple[Server, Store], name: str) -> None:
    most = re.search(rf"{name} = .*MAX (\d+)", ANALYST.read_text())
    assert most is not None
    assert code(analyst[1], f"SELECT 1 SETTINGS {name} = {most[1]}") is None
    assert code(analyst[1], f"SELECT 1 SETTINGS {name} = {int(most[1]) + 1}") == CONSTRAINT
    # 0 is how ClickHouse says: no limit; of threads: as many as there are processors, which it compares.
    assert name == "max_threads" or code(analyst[1], f"SELECT 1 SETTINGS {name} = 0") == CONSTRAINT


@pytest.mark.parametrize("setting", ["readonly = 0", "allow_ddl = 1", "priority = 0"])
def test_an_analyst_stays_what_he_is(analyst: tuple[Server, Store], setting: str) -> None:
    assert code(analyst[1], f"SELECT 1 SETTINGS {setting}") in (READONLY, CONSTRAINT, NO_DDL)


def test_an_analyst_has_a_quota_of_his_own(analyst: tuple[Server, Store]) -> None:
    node, store = analyst
    admin = node.store("reveal")
    bounds = "max_queries, max_read_rows, max_execution_time"
    given = f"SELECT {bounds} FROM system.quota_limits WHERE quota_name = 'reveal_analyst'"
    assert [tuple(row) for row in admin.query(given).rows] == [(2000, 100_000_000_000, 1800.0)]
    admin.command("CREATE USER IF NOT EXISTS second IDENTIFIED WITH no_password DEFAULT ROLE reveal_analyst")
    admin.command("GRANT reveal_analyst TO second")
    admin.command("ALTER QUOTA reveal_analyst FOR INTERVAL 1 hour MAX queries = 20")
    another = node.store("reveal", username="second")
    try:
        # What reads no table is not counted.
        assert [code(store, "SELECT host FROM reveal.hosts") for _ in range(21)][-1] == QUOTA
        # What one used up is not taken from another.
        assert code(another, "SELECT host FROM reveal.hosts") is None
    finally:
        admin.command("ALTER QUOTA reveal_analyst FOR INTERVAL 1 hour MAX queries = 2000")
        admin.command("DROP USER second")
        another.close()
        admin.close()
