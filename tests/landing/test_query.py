"""The cookbook: every query of docs/sql.md against a warehouse that a simulated fleet and the pipeline filled, and
`reveal query` as its user sees it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from schemas.settings import ClickHouseSettings
from sinks.warehouse.preset import presets
from sinks.warehouse.store import Store
from tests.clickhouse_fixture import ClickHouseProcess
from tests.cookbook import DAYS, PAGE, answer, block, fill, markers, simulate

# The fleet takes half a minute of a processor, which may be shared.
pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
DATABASE = "cookbook"
TIMES = ("--since", "2026-03-10T00:00:00Z", "--until", "2026-03-16T14:07:00Z")


@pytest.fixture(scope="module")
def warehouse(clickhouse: ClickHouseProcess) -> Iterator[Store]:
    store = Store(ClickHouseSettings(port=clickhouse.port, database=DATABASE), timeout_s=120)
    fill(store, simulate())
    yield store
    store.command(f"DROP DATABASE {DATABASE}")
    store.close()


def reveal(clickhouse: ClickHouseProcess, *arguments: str, port: int = 0) -> subprocess.CompletedProcess[bytes]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REVEAL_")} | {
        "REVEAL_CLICKHOUSE_PORT": str(port or clickhouse.port),
        "REVEAL_CLICKHOUSE_DATABASE": DATABASE,
    }
    command = [sys.executable, "-m", "deploy.cli", "query", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, timeout=60, check=False)


def assert_alike(found: str, told: str) -> None:
    """The same words and lines, and numbers that differ by no more than another processor may make of them."""
    assert NUMBER.sub("#", found) == NUMBER.sub("#", told)
    for here, there in zip(NUMBER.findall(found), NUMBER.findall(told), strict=True):
        assert float(here) == pytest.approx(float(there), rel=0.05, abs=1.1)


PLACES = list(markers(PAGE.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("name", "options", "told"), PLACES, ids=[name for name, *_ in PLACES])
def test_the_page_shows_the_query_and_what_it_gives(warehouse: Store, name: str, options: str, told: str) -> None:
    columns, rows = answer(warehouse, presets()[name], options)
    assert columns
    assert rows, "an example without a row shows nothing"
    assert_alike(block(warehouse, name, options), told)


def test_the_page_shows_every_query_once() -> None:
    shown = [name for name, *_ in PLACES]
    assert sorted(shown) == list(presets())


def test_the_week_has_its_days(warehouse: Store) -> None:
    days = warehouse.query("SELECT uniqExact(toDate(start)) FROM anomalies", database=DATABASE).rows
    assert days[0][0] == len(DAYS)


@pytest.mark.parametrize("name", presets())
def test_no_query_breaks_on_a_host_that_does_not_exist_or_on_quotes(warehouse: Store, name: str) -> None:
    preset = presets()[name]
    given = {
        **{key: "2026-03-16 14:00:00.000" for key, kind in preset.types.items() if kind.startswith("DateTime")},
        **{key: "' OR 1=1 --\\" for key, kind in preset.types.items() if kind == "String"},
        **{key: "5" for key, kind in preset.types.items() if kind == "UInt32"},
    }
    rows = warehouse.query(preset.sql, preset.bind(given), database=DATABASE).rows
    assert name == "dead-letters" or rows == [] or name not in {"anomalous-hosts", "hosts", "models", "evidence"}


# reveal query


def test_lists_shows_and_runs(warehouse: Store, clickhouse: ClickHouseProcess) -> None:
    listed = reveal(clickhouse, "--list").stdout.decode().splitlines()
    assert [line.split()[0] for line in listed] == list(presets())
    assert "before-after      What a change did: metrics of hosts before and after a moment [at, minutes=10]" in listed
    assert reveal(clickhouse, "hosts", "--show").stdout.decode().strip() == presets()["hosts"].sql
    table = reveal(clickhouse, "anomalous-hosts", *TIMES)
    assert table.returncode == 0, table.stderr
    assert "sim-vm-0003" in table.stdout.decode()
    one = reveal(clickhouse, "anomalous-hosts", *TIMES, "--host", "sim-vm-0001", "--subsystem", "cpu")
    assert "1 row" in one.stdout.decode()


def test_json_csv_and_parquet_hold_the_same(warehouse: Store, clickhouse: ClickHouseProcess, tmp_path: Path) -> None:
    wanted = ("time-to-resolve", *TIMES)
    as_json = json.loads(reveal(clickhouse, *wanted, "--format", "json").stdout)
    path = tmp_path / "out.csv"
    assert reveal(clickhouse, *wanted, "--format", "csv", "--output", str(path)).stdout == b""
    as_csv = list(csv.DictReader(io.StringIO(path.read_text())))
    file = tmp_path / "out.parquet"
    assert reveal(clickhouse, *wanted, "--format", "parquet", "--output", str(file)).returncode == 0
    as_parquet = pq.read_table(file).to_pylist()
    assert len(as_json) == len(as_csv) == len(as_parquet) > 3
    assert [row["closed"] for row in as_json] == [int(row["closed"]) for row in as_csv]
    assert [row["mean_s"] for row in as_json] == [row["mean_s"] for row in as_parquet]
    assert [row["subsystem"] for row in as_json] == [row["subsystem"] for row in as_parquet]
    assert reveal(clickhouse, *wanted, "--format", "parquet").stdout[:4] == b"PAR1"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "which query?"),
        (("nonsense",), 2, "there is no query nonsense; there are anomalous-hosts, "),
        (("episodes", "--since", "yesterday"), 2, "'yesterday' is no time such as 30m"),
        (("before-after",), 2, "before-after needs at: give --param at=VALUE"),
        (("episodes", "--param", "cause=x"), 2, "episodes takes no cause; it takes since, until, host"),
        (("metric-ranks", "--limit", "0"), 2, "must be a whole number above zero"),
        (("silent-hosts", "--param", "seconds=many"), 1, "many"),
        (("hosts", "--format", "csv", "--output", "/nowhere/x.csv"), 1, "cannot write /nowhere/x.csv"),
    ],
)
def test_what_is_wrong_is_told(
    warehouse: Store, clickhouse: ClickHouseProcess, arguments: tuple[str, ...], status: int, words: str
) -> None:
    done = reveal(clickhouse, *arguments)
    assert done.returncode == status
    assert words in done.stderr.decode()
    assert done.stdout == b""


def test_an_absent_clickhouse_is_told(clickhouse: ClickHouseProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    done = reveal(clickhouse, "hosts", port=port)
    assert done.returncode == 1
    assert "is `reveal up` running" in done.stderr.decode()


# People who only ask


def test_the_analyst_script_is_sql_that_the_engine_parses(clickhouse: ClickHouseProcess) -> None:
    text = (PAGE.parents[1] / "deploy" / "clickhouse-analyst.sql").read_text()
    statements = [part for part in re.sub(r"^--.*$", "", text, flags=re.MULTILINE).split(";") if part.strip()]
    assert len(statements) == 6
    # A limit of 0 is none at all; of threads it is as many as there are processors.
    unbounded = re.findall(r"(\w+) = \d+ MAX", text)
    assert unbounded == ["max_threads"]
    store = Store(ClickHouseSettings(port=clickhouse.port))
    for statement in statements:
        # Parameters of identification are only for a server's client.
        sql = statement.replace("{password:String}", "'secret'")
        assert store.query("SELECT formatQuery({sql:String})", {"sql": sql}).rows[0][0]
    store.close()


def test_the_analysts_limits_hold(warehouse: Store, clickhouse: ClickHouseProcess) -> None:
    """The embedded engine has no profiles; the settings of the script's profile are given with a query."""
    text = (PAGE.parents[1] / "deploy" / "clickhouse-analyst.sql").read_text()
    profile = text.partition("SETTINGS PROFILE IF NOT EXISTS")[2].partition(";")[0].partition("SETTINGS")[2]
    settings = dict(re.findall(r"(\w+) = ('\w+'|\d+)", profile))
    assert {"max_result_rows", "max_rows_to_read", "max_execution_time", "readonly"} <= settings.keys()
    settings |= {"max_rows_to_read": "1000", "readonly": "0"}
    listed = ", ".join(f"{name} = {value}" for name, value in settings.items() if name not in ("readonly", "allow_ddl"))
    with pytest.raises(Exception, match="max_rows_to_read|Limit for rows"):
        warehouse.query(f"SELECT sum(mean) FROM telemetry_log SETTINGS {listed}", database=DATABASE)
