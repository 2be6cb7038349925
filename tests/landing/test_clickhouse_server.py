"""The local ClickHouse as its clients see it: clickhouse-connect (sync and async), plain HTTP, kills and restarts."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import struct
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from pathlib import Path
from typing import Any

import clickhouse_connect
import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from clickhouse_connect.driver.exceptions import DatabaseError, Error, OperationalError

from deploy.clickhouse.statement import parse
from tests.clickhouse_fixture import ClickHouseProcess, MakeClickHouse

TELEMETRY = """CREATE TABLE telemetry (
    ts DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)), host LowCardinality(String), metric LowCardinality(String),
    value Float32 CODEC(ZSTD(1))
) ENGINE = MergeTree PARTITION BY toDate(ts) ORDER BY (host, metric, ts) TTL toDateTime(ts) + INTERVAL 10000 DAY"""


def client_of(server: ClickHouseProcess, **options: Any) -> Any:
    options = {"autogenerate_session_id": False, "query_retries": 0} | options
    return clickhouse_connect.get_client(host="127.0.0.1", port=server.port, **options)


@pytest.fixture
def database(clickhouse: ClickHouseProcess) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    with client_of(clickhouse) as client:
        client.command(f"CREATE DATABASE {name}")
        yield name
        client.command(f"DROP DATABASE {name} SYNC")


@pytest.fixture
def client(clickhouse: ClickHouseProcess, database: str) -> Iterator[Any]:
    with client_of(clickhouse, database=database) as client:
        yield client


def telemetry(rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    start = np.datetime64("2026-01-01T00:00:00.000", "ms")
    return pa.table(
        {
            "ts": pa.array(start + np.arange(rows).astype("timedelta64[ms]"), pa.timestamp("ms", "UTC")),
            "host": pa.array([f"host-{row % 8}" for row in range(rows)]).dictionary_encode(),
            "metric": pa.array([f"metric_{row % 50}" for row in range(rows)]).dictionary_encode(),
            "value": pa.array(np.round(random.normal(50, 10, rows), 1).astype(np.float32)),
        }
    )


class Answer:
    """A plain HTTP exchange, as curl would have it."""

    def __init__(self, status: int, headers: Message, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


def ask(
    server: ClickHouseProcess,
    sql: str | bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    method: str | None = None,
    path: str = "/",
    **params: str,
) -> Answer:
    url = server.url + path + ("?" + urllib.parse.urlencode(params) if params else "")
    body = sql.encode() if isinstance(sql, str) else sql
    request = urllib.request.Request(url, body, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


def wait_for(condition: Any, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


class TestClickHouseConnect:
    def test_types_and_names(self, client: Any) -> None:
        result = client.query(
            "SELECT number AS n, toString(n) AS s, [n] AS a, CAST(NULL, 'Nullable(Int8)') AS empty FROM numbers(3)"
        )
        assert result.column_names == ("n", "s", "a", "empty")
        assert result.result_rows == [(0, "0", [0], None), (1, "1", [1], None), (2, "2", [2], None)]
        assert client.query("SELECT 1 WHERE 0").result_rows == []
        assert client.command("SELECT 41 + 1") == 42
        assert client.ping()

    def test_numpy_arrow_and_pandas(self, client: Any) -> None:
        sql = "SELECT number AS n, number / 2 AS half FROM numbers(200000)"
        assert client.query_np(sql)["n"].sum() == 199_999 * 100_000
        table = client.query_arrow(sql)
        assert table.num_rows == 200_000
        assert table["half"][-1].as_py() == 199_999 / 2
        frame = client.query_df(sql)
        assert frame["n"].iloc[-1] == 199_999

    def test_parameters_are_bound(self, client: Any) -> None:
        text = "it's\ta 'tab', a \\ and\na line é"
        parameters = {"text": text, "ints": [1, 2], "name": "numbers"}
        result = client.query("SELECT {text:String}, {ints:Array(UInt8)}", parameters=parameters)
        assert result.result_rows == [(text, [1, 2])]
        assert client.query("SELECT %(text)s", parameters=parameters).result_rows == [(text,)]
        # Long ones come as a multipart form.
        long = "x" * 100_000
        assert client.query("SELECT length({text:String})", parameters={"text": long}).result_rows == [(100_000,)]

    def test_inserts_native_columns(self, client: Any) -> None:
        client.command("CREATE TABLE t (a UInt32, b Nullable(String), c Array(Float64)) ENGINE = MergeTree ORDER BY a")
        summary = client.insert("t", [[1, "x", [1.5]], [2, None, []]], column_names=["a", "b", "c"])
        assert summary.written_rows == 2
        assert client.query("SELECT * FROM t ORDER BY a").result_rows == [(1, "x", [1.5]), (2, None, [])]
        client.command("INSERT INTO t VALUES (3, 'y', [1]), ({a:UInt32}, 'z', [])", parameters={"a": 4})
        client.command("INSERT INTO t SELECT a + 10, b, c FROM t")
        assert client.command("SELECT sum(a) FROM t") == 10 + 10 + 40

    @pytest.mark.parametrize("compress", ["lz4", "zstd", "gzip", False])
    def test_inserts_arrow(self, clickhouse: ClickHouseProcess, database: str, compress: str | bool) -> None:
        with client_of(clickhouse, database=database, compress=compress) as client:
            client.command(TELEMETRY)
            table = telemetry(100_000)
            assert client.insert_arrow("telemetry", table).written_rows == 100_000
            assert client.command("SELECT count() FROM system.parts WHERE database = currentDatabase() AND active") == 1
            back = client.query_arrow("SELECT value FROM telemetry ORDER BY ts")
            assert np.array_equal(back["value"].to_numpy(), table["value"].to_numpy())

    def test_errors_have_their_code(self, client: Any) -> None:
        with pytest.raises(DatabaseError, match="UNKNOWN_TABLE") as caught:
            client.query("SELECT * FROM nosuch")
        assert caught.value.code == 60
        with pytest.raises(DatabaseError, match="SYNTAX_ERROR"):
            client.command("SELEC 1")
        with pytest.raises(DatabaseError, match="UNKNOWN_DATABASE"):
            client.query("SELECT 1", settings={"database": "nosuch"})
        client.command("CREATE TABLE t (a UInt8) ENGINE = Memory")
        with pytest.raises(DatabaseError, match="INCORRECT_DATA"):
            client.raw_insert("t", insert_block="no number\n", fmt="CSV")
        assert client.command("SELECT count() FROM t") == 0

    def test_settings_last_for_one_request(self, client: Any) -> None:
        sql = "SELECT getSetting('max_threads')"
        assert client.query(sql, settings={"max_threads": 3}).result_rows == [(3,)]
        assert client.query(sql).result_rows != [(3,)]
        with pytest.raises(DatabaseError, match="TIMEOUT_EXCEEDED") as caught:
            client.query("SELECT count() FROM numbers(1000000000000)", settings={"max_execution_time": 1})
        assert caught.value.code == 159
        assert client.query("SELECT getSetting('async_insert')").result_rows == [(False,)]

    def test_sessions_keep_temporary_tables_and_settings(self, clickhouse: ClickHouseProcess) -> None:
        with client_of(clickhouse, session_id=uuid.uuid4().hex) as client:
            client.command("CREATE TEMPORARY TABLE mine (a UInt8)")
            client.insert("mine", [[7]], column_names=["a"])
            client.command("SET max_block_size = 1234")
            sql = "SELECT a, getSetting('max_block_size') FROM mine"
            assert client.query(sql, settings={"max_block_size": 99}).result_rows == [(7, 99)]
            assert client.query(sql).result_rows == [(7, 1234)]
            with client_of(clickhouse) as other, pytest.raises(DatabaseError, match="UNKNOWN_TABLE"):
                other.query("SELECT * FROM mine")

    def test_streams_in_bounded_memory(self, clickhouse: ClickHouseProcess, client: Any) -> None:
        before = clickhouse.resident_bytes()
        most = rows = 0
        with client.query_column_block_stream("SELECT number, toString(number) FROM numbers(5000000)") as stream:
            for block in stream:
                rows += len(block[0])
                most = max(most, clickhouse.resident_bytes())
        assert rows == 5_000_000
        assert most - before < 100e6  # the result is some 90 MB packed, 300 MB as text

    def test_an_error_in_the_middle_is_no_short_result(self, client: Any) -> None:
        sql = "SELECT throwIf(number = 3000000, 'boom') AS n FROM numbers(5000000)"
        with pytest.raises(Error, match="boom"), client.query_column_block_stream(sql) as stream:
            for _ in stream:
                pass
        with pytest.raises(DatabaseError, match="boom") as caught:
            client.query(sql)  # waits for the end of the query, so it has a status
        assert caught.value.code == 395
        assert client.query("SELECT 1").result_rows == [(1,)]

    async def test_async_client(self, clickhouse: ClickHouseProcess, database: str) -> None:
        client = await clickhouse_connect.get_async_client(host="127.0.0.1", port=clickhouse.port, database=database)
        async with client:
            await client.command("CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY a")
            await client.insert("t", [[1], [2]], column_names=["a"])
            await client.insert_arrow("t", pa.table({"a": pa.array([3], pa.uint32())}))
            assert (await client.query("SELECT sum(a) FROM t")).result_rows == [(6,)]
            assert (await client.query_arrow("SELECT a FROM t")).num_rows == 3
            with pytest.raises(DatabaseError, match="UNKNOWN_TABLE"):
                await client.query("SELECT * FROM nosuch")

    def test_usual_ddl_and_system_tables(self, client: Any) -> None:
        for sql in (
            TELEMETRY,
            """CREATE TABLE episodes (id String, version UInt64, state String)
               ENGINE = ReplacingMergeTree(version) ORDER BY id""",
            """CREATE TABLE minutes (minute DateTime, host String, mean AggregateFunction(avg, Float32))
               ENGINE = AggregatingMergeTree ORDER BY (host, minute)""",
            """CREATE MATERIALIZED VIEW minutes_view TO minutes AS
               SELECT toStartOfMinute(ts) AS minute, host, avgState(value) AS mean
               FROM telemetry GROUP BY minute, host""",
            "CREATE VIEW latest AS SELECT * FROM episodes FINAL",
            "ALTER TABLE episodes ADD COLUMN severity Float32 DEFAULT 0",
        ):
            client.command(sql)
        client.insert_arrow("telemetry", telemetry(10_000))
        rows = [["e", 1, "opened"], ["e", 2, "closed"]]
        client.insert("episodes", rows, column_names=["id", "version", "state"])
        assert client.query("SELECT state FROM latest").result_rows == [("closed",)]
        assert client.command("SELECT count() FROM (SELECT host, avgMerge(mean) FROM minutes GROUP BY host)") == 8
        client.command("OPTIMIZE TABLE episodes FINAL")
        client.command("ALTER TABLE telemetry DROP PARTITION '2026-01-01'")
        assert client.command("SELECT count() FROM telemetry") == 0
        for name in ("tables", "columns", "parts", "settings", "functions", "processes", "metrics", "databases"):
            assert client.query(f"SELECT * FROM system.{name} LIMIT 1").column_names
        assert "episodes" in client.query("SHOW TABLES").result_columns[0]
        assert client.query("EXPLAIN SELECT 1").result_rows
        assert client.query("DESCRIBE TABLE episodes").result_columns[0] == ["id", "version", "state", "severity"]

    @pytest.mark.parametrize(
        "sql",
        [
            "SHOW CREATE TABLE t", "EXISTS t", "CHECK TABLE t", "SHOW PROCESSLIST", "SHOW GRANTS",
            "SHOW COLUMNS FROM t", "EXPLAIN AST SELECT 1", "EXPLAIN PIPELINE SELECT * FROM t",
            "EXPLAIN SYNTAX SELECT 1",
            "DESCRIBE (SELECT 1)", "WITH 1 AS x SELECT x", "(SELECT 1) UNION ALL (SELECT 2)", "FROM t SELECT a",
            "SELECT sum(a) FROM t", "SELECT a FROM t GROUP BY a WITH TOTALS",
            "SELECT * FROM t LIMIT 1 SETTINGS max_threads = 1",
            "SHOW SETTINGS LIKE 'max_threads'", "SHOW INDEX FROM t", "SYSTEM FLUSH LOGS", "SET max_threads = 1",
            "KILL QUERY WHERE query_id = 'none'", "BEGIN TRANSACTION", "OPTIMIZE TABLE t", "TRUNCATE TABLE t",
        ],
    )  # fmt: skip
    def test_statements_of_every_kind(self, clickhouse: ClickHouseProcess, database: str, sql: str) -> None:
        ask(clickhouse, "CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a", database=database)
        ask(clickhouse, "INSERT INTO t VALUES (1)", database=database)
        answer = ask(clickhouse, sql, database=database)
        # What the engine itself lacks it says in its own words.
        assert answer.status == 200 or answer.headers["X-ClickHouse-Exception-Code"] in ("48", "344"), answer.body
        if not sql.startswith(("SYSTEM", "SET", "KILL", "BEGIN", "OPTIMIZE", "TRUNCATE", "SHOW INDEX")):
            assert answer.body

    def test_many_clients_at_once(self, clickhouse: ClickHouseProcess, database: str) -> None:
        with client_of(clickhouse, database=database) as client:
            client.command("CREATE TABLE t (worker UInt8, n UInt32) ENGINE = MergeTree ORDER BY (worker, n)")

            def work(worker: int) -> None:
                with client_of(clickhouse, database=database) as mine:
                    for batch in range(10):
                        rows = [[worker, batch * 100 + row] for row in range(100)]
                        mine.insert("t", rows, column_names=["worker", "n"])
                        found = mine.query(f"SELECT count(), uniqExact(n) FROM t WHERE worker = {worker}").result_rows
                        assert found == [((batch + 1) * 100, (batch + 1) * 100)]

            with ThreadPoolExecutor(8) as pool:
                list(pool.map(work, range(8)))
            assert client.query("SELECT count(), uniqExact(worker, n) FROM t").result_rows == [(8000, 8000)]


class TestPlainHttp:
    def test_the_usual_paths(self, clickhouse: ClickHouseProcess) -> None:
        assert ask(clickhouse, path="/ping").body == b"Ok.\n"
        assert ask(clickhouse, path="/replicas_status").body == b"Ok.\n"
        assert ask(clickhouse).body == b"Ok.\n"
        assert ask(clickhouse, method="HEAD").status == 200
        assert ask(clickhouse, path="/nosuch").status == 404

    def test_query_in_url_body_or_both(self, clickhouse: ClickHouseProcess) -> None:
        answer = ask(clickhouse, query="SELECT 1 AS a", query_id="mine", default_format="JSONCompact")
        assert json.loads(answer.body)["data"] == [[1]]
        assert answer.headers["X-ClickHouse-Query-Id"] == "mine"
        assert answer.headers["X-ClickHouse-Format"] == "JSONCompact"
        assert answer.headers["X-ClickHouse-Timezone"] == "Etc/UTC"
        assert answer.headers["X-ClickHouse-Server-Display-Name"]
        assert json.loads(answer.headers["X-ClickHouse-Summary"])["result_rows"] == "1"
        assert ask(clickhouse, "FROM numbers(3) -- the end;", query="SELECT 'FORMAT CSV;', sum(number)").body == (
            b"FORMAT CSV;\t3\n"
        )
        assert ask(clickhouse, "SELECT 2 AS format FORMAT CSVWithNames SETTINGS max_threads = 1;").body == (
            b'"format"\n2\n'
        )
        assert ask(clickhouse, "SELECT 1; SELECT 2").status == 400
        assert ask(clickhouse, "").status == 400
        assert ask(clickhouse, query="CREATE TABLE t (a Int8) ENGINE = Memory").headers[
            "X-ClickHouse-Exception-Code"
        ] == ("164")  # GET only reads

    @pytest.mark.parametrize("fmt", ["JSON", "JSONEachRow", "CSVWithNames", "TSVWithNamesAndTypes", "XML", "Pretty"])
    def test_a_long_result_is_one_document(self, clickhouse: ClickHouseProcess, fmt: str) -> None:
        answer = ask(clickhouse, f"SELECT number AS the_name FROM numbers(300000) FORMAT {fmt}")
        named = {"JSONEachRow": 300_000, "JSON": 300_001, "XML": 600_001, "Pretty": 2}
        assert answer.body.count(b"the_name") == named.get(fmt, 1)
        if fmt == "JSON":
            assert json.loads(answer.body)["rows"] == 300_000

    @pytest.mark.parametrize("fmt", ["CSV", "TSV", "JSONEachRow", "Native", "RowBinary", "ArrowStream", "Parquet"])
    @pytest.mark.parametrize("encoding", ["gzip", "zstd", "lz4"])
    def test_bodies_of_several_frames(
        self, clickhouse: ClickHouseProcess, database: str, fmt: str, encoding: str
    ) -> None:
        ask(clickhouse, "CREATE TABLE t (a UInt32, s String) ENGINE = MergeTree ORDER BY a", database=database)
        rows = ask(clickhouse, f"SELECT toUInt32(number) AS a, toString(a) AS s FROM numbers(100000) FORMAT {fmt}").body
        pack = {"gzip": gzip.compress, "zstd": zstandard.compress, "lz4": lz4.frame.compress}[encoding]
        cut = len(rows) // 3
        packed = pack(f"INSERT INTO t FORMAT {fmt}\n".encode()) + pack(rows[:cut]) + pack(rows[cut:])
        answer = ask(clickhouse, packed, database=database, headers={"Content-Encoding": encoding})
        assert answer.status == 200, answer.body
        assert json.loads(answer.headers["X-ClickHouse-Summary"])["written_rows"] == "100000"
        check = "SELECT count(), sum(a), sum(length(s)) FROM t"
        assert ask(clickhouse, check, database=database).body == b"100000\t4999950000\t488890\n"
        broken = ask(clickhouse, packed[:-20], database=database, headers={"Content-Encoding": encoding})
        assert broken.headers["X-ClickHouse-Exception-Code"] == "271"

    def test_answers_are_packed_when_asked(self, clickhouse: ClickHouseProcess) -> None:
        sql = "SELECT number FROM numbers(100000)"
        plain = ask(clickhouse, sql)
        assert "Content-Encoding" not in plain.headers
        for encoding, unpack in {
            "gzip": gzip.decompress,
            "zstd": lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
            "lz4": lz4.frame.decompress,
        }.items():
            packed = ask(clickhouse, sql, headers={"Accept-Encoding": encoding})
            assert packed.headers["Content-Encoding"] == encoding
            assert unpack(packed.body) == plain.body
        off = ask(clickhouse, sql, headers={"Accept-Encoding": "gzip"}, enable_http_compression="0")
        assert off.body == plain.body

    def test_an_error_in_the_middle_breaks_the_connection(self, clickhouse: ClickHouseProcess) -> None:
        sql = b"SELECT throwIf(number = 3000000, 'boom') FROM numbers(5000000)"
        connection = http.client.HTTPConnection("127.0.0.1", clickhouse.port, timeout=60)
        connection.request("POST", "/", sql)
        answer = connection.getresponse()
        assert answer.status == 200
        with pytest.raises(http.client.IncompleteRead) as caught:
            answer.read()
        connection.close()
        tag = answer.headers["X-ClickHouse-Exception-Tag"].encode()
        end = caught.value.partial[-1000:]
        assert b"__exception__\r\n" + tag + b"\r\nCode: 395. DB::Exception: boom" in end
        assert end.endswith(tag + b"\r\n__exception__\r\n")

    def test_refusals_say_so(self, clickhouse: ClickHouseProcess) -> None:
        def code(sql: str, **params: str) -> str | None:
            url = "/?" + urllib.parse.urlencode(params)
            return ask(clickhouse, sql, path=url).headers["X-ClickHouse-Exception-Code"]

        assert code("SELECT 1", nosuch_setting="1") == "115"
        assert code("SELECT 1", compress="1") == "48"
        assert code("SELECT 1", default_format="TSV INTO OUTFILE '/tmp/x'") == "73"
        assert code("SELECT 1", default_format="NoFormat") == "73"
        assert code("SELECT 1", session_id="none", session_check="1") == "372"
        assert code("SELECT 1 INTO OUTFILE '/tmp/x'") == "358"
        assert code("SELECT 1 INTO/**/outfile '/tmp/x'") == "358"
        assert code("INSERT INTO t FROM INFILE '/etc/passwd' FORMAT CSV") == "358"
        assert code("SELECT 1", user="nobody") == "516"
        assert code("CREATE TABLE t (a Int8) ENGINE = Memory", readonly="1") == "164"
        foreign = ask(clickhouse, "SELECT 1", headers={"Origin": "https://example.com"})
        assert foreign.status == 403
        assert ask(clickhouse, "SELECT 1", headers={"Host": "rebound.example.com"}).status == 403

    def test_slow_queries_block_no_ping_and_end_with_their_client(self, clickhouse: ClickHouseProcess) -> None:
        sql = "SELECT count() FROM numbers(10000000000000)"
        running = f"SELECT count() FROM system.processes WHERE query LIKE '{sql[:-5]}%'"
        connections = [http.client.HTTPConnection("127.0.0.1", clickhouse.port, timeout=60) for _ in range(3)]
        for connection in connections:
            connection.request("POST", "/", sql.encode())
        wait_for(lambda: ask(clickhouse, running).body == b"3\n")
        started = time.monotonic()
        assert ask(clickhouse, path="/ping").body == b"Ok.\n"
        assert time.monotonic() - started < 3
        for connection in connections:
            connection.close()
        wait_for(lambda: ask(clickhouse, running).body == b"0\n")

    def test_a_reader_of_rows_that_goes_away_ends_its_query(self, clickhouse: ClickHouseProcess) -> None:
        sql = "SELECT * FROM numbers(123456789012)"
        running = f"SELECT count() FROM system.processes WHERE query LIKE '{sql[:-1]}%'"
        for _ in range(8):
            connection = http.client.HTTPConnection("127.0.0.1", clickhouse.port, timeout=60)
            connection.request("POST", "/", sql.encode())
            socket_of_it = connection.sock
            answer = connection.getresponse()
            assert len(answer.read(100_000)) == 100_000
            # A reset reaches the server both as a failed write and as a lost connection.
            assert socket_of_it is not None
            socket_of_it.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            answer.close()
        wait_for(lambda: ask(clickhouse, running).body == b"0\n")

    def test_an_upload_that_breaks_off_leaves_nothing(self, clickhouse: ClickHouseProcess, database: str) -> None:
        ask(clickhouse, "CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY a", database=database)
        connection = http.client.HTTPConnection("127.0.0.1", clickhouse.port, timeout=60)
        connection.putrequest("POST", f"/?database={database}&query=INSERT+INTO+t+FORMAT+CSV")
        connection.putheader("Content-Length", str(20_000_000))
        connection.endheaders()
        connection.send(b"1\n" * 2_000_000)
        mine = f"query LIKE 'INSERT INTO t%' AND current_database = '{database}'"
        writing = f"SELECT count() FROM system.processes WHERE {mine}"
        wait_for(lambda: ask(clickhouse, writing).body == b"1\n")
        connection.close()
        wait_for(lambda: ask(clickhouse, writing).body == b"0\n")
        assert ask(clickhouse, "SELECT count() FROM t", database=database).body == b"0\n"

    def test_reader_only_reads(self, clickhouse: ClickHouseProcess, database: str) -> None:
        ask(clickhouse, "CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a", database=database)
        ask(clickhouse, "INSERT INTO t VALUES (1)", database=database)

        def code(sql: str, **params: str) -> str | None:
            url = "/?" + urllib.parse.urlencode({"user": "reader", "database": database} | params)
            return ask(clickhouse, sql, path=url).headers["X-ClickHouse-Exception-Code"]

        assert ask(clickhouse, "SELECT * FROM t", user="reader", database=database, max_threads="1").body == b"1\n"
        for sql in (
            "INSERT INTO t VALUES (2)",
            "INSERT INTO t SELECT 2",
            "DROP TABLE t",
            "CREATE TABLE u (a UInt8) ENGINE = Memory",
            "ALTER TABLE t DELETE WHERE 1",
            "SET ROLE full",
            "SET /**/ROLE/**/ full",
            "INSERT INTO FUNCTION file('x', 'CSV', 'a UInt8') SELECT 1",
            "SYSTEM SHUTDOWN",
        ):
            assert code(sql) == "164", sql
            assert code(sql, session_id="reader") == "164", sql
        for sql in (
            "SELECT * FROM file('/etc/passwd', 'LineAsString')",
            "SELECT file('/etc/passwd')",
            "SELECT `file` ('/etc/passwd')",
            "SELECT * FROM eval('SELECT 1')",
            "SELECT * FROM python(os)",
            "SELECT * FROM url('http://127.0.0.1:1/', 'CSV', 'a UInt8')",
            "SELECT * FROM remote('127.0.0.1', 'system.one')",
            "SELECT * FROM sqlite('/tmp/x', 't')",
        ):
            assert code(sql) == "497", sql
        assert code("SELECT 1", readonly="0") is None  # reads still, but the engine keeps its own read-only mode:
        assert code("SET readonly = 0") == "164"
        assert ask(clickhouse, "SELECT count() FROM t", database=database).body == b"1\n"


class TestProcess:
    def test_password(self, make_clickhouse: MakeClickHouse) -> None:
        server = make_clickhouse({"REVEAL_CLICKHOUSE_PASSWORD": "secret", "REVEAL_CLICKHOUSE_READER_PASSWORD": "less"})
        with client_of(server, password="secret") as client:
            assert client.command("SELECT 1") == 1
        with client_of(server, username="reader", password="less") as client:
            assert client.command("SELECT 1") == 1
        with pytest.raises(DatabaseError, match="AUTHENTICATION_FAILED"):
            client_of(server, password="wrong")
        assert ask(server, "SELECT 1").status == 401
        assert ask(server, "SELECT 1", headers={"X-ClickHouse-User": "reader", "X-ClickHouse-Key": "no"}).status == 403
        assert ask(server, path="/ping").body == b"Ok.\n"
        assert "secret" not in server.log.read_text()

    def test_start_refuses_with_the_way_out(
        self, clickhouse: ClickHouseProcess, make_clickhouse: MakeClickHouse
    ) -> None:
        import subprocess

        busy = make_clickhouse(start=False)
        free = busy.command()

        def fails(command: list[str]) -> str:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert ended.returncode == 1
            return ended.stderr

        said = fails([*free[: free.index("--port")], "--port", str(clickhouse.port)])
        assert "another program has the port" in said
        assert "--port" in said
        said = fails([str(clickhouse.directory) if part == str(busy.directory) else part for part in free])
        assert f"owned by another ClickHouse process (pid {clickhouse.pid})" in said
        assert "--directory" in said
        assert "REVEAL_CLICKHOUSE_PASSWORD" in fails(busy.command("--host", "0.0.0.0"))

    def test_memory_is_bounded(self, make_clickhouse: MakeClickHouse) -> None:
        server = make_clickhouse()
        answer = ask(server, "SELECT length(groupArray(number)) FROM numbers(1000000000)")
        assert answer.headers["X-ClickHouse-Exception-Code"] == "241"
        assert ask(server, "SELECT 1").body == b"1\n"
        # Without a bound it would have been 8 GB; what the allocator holds on to, and the library itself, come on top.
        assert server.resident_bytes() < 1_300_000_000

    def test_old_parts_go_soon_and_not_all_at_once(self, clickhouse: ClickHouseProcess, client: Any) -> None:
        """Thousands of files that 128 threads delete together are a storm on the host that is watched."""

        def threads() -> int:
            status = Path(f"/proc/{clickhouse.pid}/status").read_text()
            return int(status.split("Threads:")[1].split()[0])

        client.command("CREATE TABLE parts (n UInt32) ENGINE = MergeTree ORDER BY n SETTINGS old_parts_lifetime = 1")
        client.command("SYSTEM STOP MERGES parts")
        for number in range(400):
            client.insert("parts", [[number]])
        client.command("SYSTEM START MERGES parts")
        client.command("OPTIMIZE TABLE parts FINAL")
        old = "SELECT count() FROM system.parts WHERE database = currentDatabase() AND table = 'parts' AND NOT active"
        assert client.query(old).first_row[0] >= 400
        before = threads()
        wait_for(lambda: client.query(old).first_row[0] == 0, 30)
        # Threads stay for a while after their work.
        assert threads() < before + 30

    def test_terminate_finishes_inserts_and_restart_keeps_them(self, make_clickhouse: MakeClickHouse) -> None:
        server = make_clickhouse()
        ask(server, "CREATE TABLE t (a UInt64) ENGINE = MergeTree ORDER BY a")
        answers: list[Answer] = []
        insert = "INSERT INTO t SELECT number + sleepEachRow(0.1) FROM numbers(20) SETTINGS max_block_size = 5"
        thread = threading.Thread(target=lambda: answers.append(ask(server, insert)))
        thread.start()
        wait_for(lambda: ask(server, "SELECT count() FROM system.processes").body == b"2\n")
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 15
        thread.join(10)
        assert [answer.status for answer in answers] == [200]
        server.start()
        assert ask(server, "SELECT count() FROM t").body == b"20\n"

    def test_kills_lose_no_acknowledged_insert(self, make_clickhouse: MakeClickHouse) -> None:
        server = make_clickhouse()
        with client_of(server) as client:
            client.command(TELEMETRY)
            client.command("CREATE TABLE batches (batch UInt32, row UInt32) ENGINE = MergeTree ORDER BY batch")
        acknowledged: set[int] = set()
        following = 0
        for life in range(10):
            stop = threading.Event()

            def write(first: int, stop: threading.Event = stop) -> None:
                batch = first
                rows = pa.array(range(2000), pa.uint32())
                try:
                    with client_of(server) as client:
                        while not stop.is_set():
                            numbers = pa.array([batch] * 2000, pa.uint32())
                            client.insert_arrow("batches", pa.table({"batch": numbers, "row": rows}))
                            acknowledged.add(batch)
                            batch += 1
                except (OperationalError, OSError):
                    return

            before = len(acknowledged)
            thread = threading.Thread(target=write, args=(following,))
            thread.start()
            wait_for(lambda before=before, life=life: len(acknowledged) > before + 3 + 2 * life)
            server.kill()
            stop.set()
            thread.join(30)
            assert not thread.is_alive()
            server.start()
            with client_of(server) as client:
                found = client.query("SELECT batch, count(), uniqExact(row) FROM batches GROUP BY batch").result_rows
            stored = {batch for batch, _, _ in found}
            assert acknowledged <= stored
            # The client sends again what it had no answer to: the batch in flight may be there twice, never in part.
            assert all(count in (2000, 4000) and rows == 2000 for _, count, rows in found)
            following = max(stored) + 1
        assert server.stop() == 0


class TestStatement:
    @pytest.mark.parametrize(
        ("sql", "body", "fmt", "rows"),
        [
            (b"INSERT INTO t FORMAT CSV\n1,2", b"INSERT INTO t ", "CSV", b"1,2"),
            (b"insert into t (a, `format`) format CSV \r\n\n1", b"insert into t (a, `format`) ", "CSV", b"\n1"),
            (b"INSERT INTO t SETTINGS a = 'FORMAT x' FORMAT Native\n\x00'", b"INSERT INTO t SETTINGS a = 'FORMAT x' ",
             "Native", b"\x00'"),
            (b"/* INSERT */ INSERT INTO t VALUES (';')", b"/* INSERT */ INSERT INTO t ", "Values", b" (';')"),
            (b"INSERT INTO FUNCTION f('(') (a) FORMAT TSV x", b"INSERT INTO FUNCTION f('(') (a) ", "TSV", b"x"),
            (b"INSERT INTO t (a) SELECT 1 FORMAT Null", b"INSERT INTO t (a) SELECT 1 ", "Null", None),
            (b"INSERT INTO t (SELECT 1)", b"INSERT INTO t (SELECT 1)", None, None),
            (b"SELECT 1 AS format", b"SELECT 1 AS format", None, None),
            (b"SELECT ';' -- ; FORMAT CSV\n;;", b"SELECT ';'", None, None),
            (b"SELECT (1) format FROM t format JSON", b"SELECT (1) format FROM t ", "JSON", None),
            (b"SELECT $a$ FORMAT CSV; $a$ FORMAT TSV SETTINGS b = 1;", b"SELECT $a$ FORMAT CSV; $a$ ", "TSV", None),
        ],
    )  # fmt: skip
    def test_cuts(self, sql: bytes, body: bytes, fmt: str | None, rows: bytes | None) -> None:
        statement = parse(sql)
        assert (statement.body, statement.format) == (body, fmt)
        assert (None if statement.data is None else sql[statement.data :]) == rows
