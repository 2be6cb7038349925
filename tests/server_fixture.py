"""A ClickHouse server for tests: REVEAL_CLICKHOUSE is its program, else `clickhouse` on PATH, else what `make test`
fetched, `_chdb.abi3.so` of the package chdb 3.7.2, a library that holds the server and the client of ClickHouse 25.8.

REVEAL_KEEPER is host:port of a Keeper or ZooKeeper for replicas; without it a ZooKeeper is started. Where there is no
server, or no ZooKeeper, a test is skipped and says why; with REVEAL_SERVER=required, as in CI, it fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NoReturn

import pytest

from deploy.kafka.errors import JarError
from deploy.kafka.ports import free_ports
from schemas.settings import ClickHouseSettings, Secret
from sinks.warehouse.store import Store
from tests.clickhouse_fixture import ClickHouseProcess
from tests.zookeeper import ZooKeeper

CLUSTER: Final = "fleet"
FETCHED: Final = Path(sys.prefix) / "server" / "chdb" / "_chdb.abi3.so"
_LIBRARY: Final = """
import ctypes, os, sys
library, tool, *rest = sys.argv[1:]
words = [b"clickhouse", *map(os.fsencode, rest), None]
entry = getattr(ctypes.CDLL(library, ctypes.RTLD_GLOBAL), f"_Z25mainEntryClickHouse{tool.title()}iPPc")
os._exit(entry(len(words) - 1, (ctypes.c_char_p * len(words))(*words)))
"""
_SERVER: Final = """<clickhouse>
    <logger><level>warning</level><console>1</console></logger>
    <listen_host>127.0.0.1</listen_host>
    <http_port>{http}</http_port>
    <tcp_port>{tcp}</tcp_port>
    <path>{directory}/data/</path>
    <tmp_path>{directory}/tmp/</tmp_path>
    <user_files_path>{directory}/files/</user_files_path>
    <format_schema_path>{directory}/schemas/</format_schema_path>
    <max_server_memory_usage>4000000000</max_server_memory_usage>
    <mark_cache_size>100000000</mark_cache_size>
    <user_directories>
        <users_xml><path>{directory}/users.xml</path></users_xml>
        <local_directory><path>{directory}/access/</path></local_directory>
    </user_directories>
    <access_control_improvements>
        <users_without_row_policies_can_read_rows>true</users_without_row_policies_can_read_rows>
        <on_cluster_queries_require_cluster_grant>true</on_cluster_queries_require_cluster_grant>
        <select_from_system_db_requires_grant>true</select_from_system_db_requires_grant>
        <select_from_information_schema_requires_grant>true</select_from_information_schema_requires_grant>
        <settings_constraints_replace_previous>true</settings_constraints_replace_previous>
    </access_control_improvements>
    {more}
</clickhouse>
"""
_USERS: Final = """<clickhouse>
    <profiles><default/></profiles>
    <quotas><default/></quotas>
    <users><default>
        <password/>
        <networks><ip>127.0.0.1</ip></networks>
        <profile>default</profile>
        <quota>default</quota>
        <access_management>1</access_management>
    </default></users>
</clickhouse>
"""
_REPLICA: Final = """
    <interserver_http_host>127.0.0.1</interserver_http_host>
    <interserver_http_port>{interserver}</interserver_http_port>
    <macros><shard>1</shard><replica>{replica}</replica></macros>
    <remote_servers><{cluster}><shard>
        <internal_replication>true</internal_replication>
        <replica><host>127.0.0.1</host><port>{first}</port></replica>
        <replica><host>127.0.0.1</host><port>{second}</port></replica>
    </shard></{cluster}></remote_servers>
    <!-- How often a replica that lost its session tries again: a minute, left to itself. And a replica that is killed
         between a part and its entry in Keeper starts read-only where such parts are more than half of a table, which
         they are at once in a table of one batch. -->
    <merge_tree>
        <zookeeper_session_expiration_check_period>2</zookeeper_session_expiration_check_period>
        <replicated_max_ratio_of_wrong_parts>1</replicated_max_ratio_of_wrong_parts>
    </merge_tree>
    <zookeeper><node><host>{keeper_host}</host><port>{keeper_port}</port></node></zookeeper>
    <distributed_ddl><path>/clickhouse/reveal-{first}-{second}/ddl</path></distributed_ddl>
"""


def program() -> list[str]:
    """How `clickhouse` is called, its tool to follow; skips the test where there is none."""
    path = os.environ.get("REVEAL_CLICKHOUSE") or shutil.which("clickhouse")
    if not path:
        if not FETCHED.exists():
            log = FETCHED.parents[1].with_suffix(".log")
            why = log.read_text().strip() if log.exists() else ""
            _lacking(f"no ClickHouse server: {why or 'make .venv/server fetches it'}")
        path = str(FETCHED)
    return [sys.executable, "-c", _LIBRARY, path] if path.endswith(".so") else [path]


def _lacking(what: str) -> NoReturn:
    """Ends a test for which this machine has no server."""
    if os.environ.get("REVEAL_SERVER") == "required":
        pytest.fail(what)
    pytest.skip(what)


class Server(ClickHouseProcess):
    """A `clickhouse server` on free loopback ports; `more` is added to its configuration."""

    def __init__(self, directory: Path, tcp: int, more: str = "") -> None:
        super().__init__(directory, {"CLICKHOUSE_WATCHDOG_ENABLE": "0"})
        self.tcp = tcp
        self._program = program()
        directory.mkdir()
        (directory / "users.xml").write_text(_USERS)
        (directory / "config.xml").write_text(_SERVER.format(http=self.port, tcp=tcp, directory=directory, more=more))

    def command(self, *more: str) -> list[str]:
        return [*self._program, "server", f"--config-file={self.directory / 'config.xml'}", *more]

    def client(self, *arguments: str, script: str = "") -> subprocess.CompletedProcess[str]:
        """Runs `clickhouse client` with a script as its standard input."""
        return subprocess.run(
            [*self._program, "client", "--host", "127.0.0.1", "--port", str(self.tcp), *arguments],
            input=script,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def store(self, database: str, cluster: str = "", username: str = "default", password: str = "") -> Store:
        settings = ClickHouseSettings(
            port=self.port, database=database, cluster=cluster, username=username, password=Secret(password)
        )
        return Store(settings, timeout_s=120)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server alone."""
    node = Server(tmp_path_factory.mktemp("server") / "0", free_ports(1)[0])
    with ExitStack() as closing:
        closing.callback(node.kill)
        yield node.start()


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Server]]:
    """Two servers that are the cluster CLUSTER, one shard."""
    directory = tmp_path_factory.mktemp("replicas")
    program()
    ports = free_ports(4)
    with ExitStack() as closing:
        keeper = os.environ.get("REVEAL_KEEPER") or _start_zookeeper(directory / "keeper", closing)
        host, _, port = keeper.rpartition(":")
        nodes = []
        for number in range(2):
            more = _REPLICA.format(
                interserver=ports[2 + number],
                replica=f"r{number}",
                cluster=CLUSTER,
                first=ports[0],
                second=ports[1],
                keeper_host=host,
                keeper_port=port,
            )
            node = Server(directory / str(number), ports[number], more)
            closing.callback(node.kill)
            nodes.append(node.start())
        yield nodes


def _start_zookeeper(directory: Path, closing: ExitStack) -> str:
    zookeeper = ZooKeeper(directory)
    closing.callback(zookeeper.kill)
    try:
        return zookeeper.start().address
    except JarError as error:
        _lacking(f"no ZooKeeper: {error}")
