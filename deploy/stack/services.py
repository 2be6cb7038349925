"""The table of services of the one-machine stack, in the order of their needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.kafka.progress import Progress, silent
from deploy.kafka.server import LocalKafka
from deploy.process import reveal_argv
from deploy.stack.health import HttpCheck
from deploy.stack.service import ServiceSpec
from schemas.settings import StackSettings, load

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Stack:
    """A one-machine stack: where it lives and what its services are to know.

    environ: what the services get, beside what the stack itself sets.
    """

    settings: StackSettings
    directory: Path
    environ: Mapping[str, str]

    @property
    def bootstrap(self) -> str:
        """Address of Kafka."""
        return f"{HOST}:{self.settings.kafka_port}"

    @property
    def clickhouse(self) -> str:
        """Address of ClickHouse."""
        return f"http://{HOST}:{self.settings.clickhouse_port}"

    @property
    def ports(self) -> Mapping[str, int]:
        """Ports it listens on, by the variable that sets each."""
        return {
            "REVEAL_STACK_KAFKA_PORT": self.settings.kafka_port,
            "REVEAL_STACK_KAFKA_CONTROLLER_PORT": self.settings.kafka_controller_port,
            "REVEAL_STACK_CLICKHOUSE_PORT": self.settings.clickhouse_port,
        }

    def client_environ(self) -> dict[str, str]:
        """Variables that lead a client to this stack."""
        return {
            "REVEAL_STACK_DIRECTORY": str(self.directory),
            "REVEAL_KAFKA_BOOTSTRAP": self.bootstrap,
            "REVEAL_KAFKA_SECURITY_PROTOCOL": "PLAINTEXT",
            "REVEAL_KAFKA_SASL_MECHANISM": "",
            "REVEAL_KAFKA_REPLICATION": "1",
            "REVEAL_CLICKHOUSE_HOST": HOST,
            "REVEAL_CLICKHOUSE_PORT": str(self.settings.clickhouse_port),
            "REVEAL_CLICKHOUSE_SECURE": "false",
            "REVEAL_CLICKHOUSE_USERNAME": "default",
        }

    def services(self, progress: Progress = silent) -> tuple[ServiceSpec, ...]:
        """The table. Prepares Kafka first, which on the first run fetches its jars. Raises LocalKafkaError."""
        kafka = LocalKafka(
            self.directory / "kafka",
            port=self.settings.kafka_port,
            controller_port=self.settings.kafka_controller_port,
            heap_mb=self.settings.kafka_heap_mb,
            cache=Path(self.settings.cache) if self.settings.cache else None,
            jvm_options=(f"-Dreveal.kafka.log={self.directory / 'logs' / 'kafka.log'}",),
        )
        kafka.prepare(progress)
        environ = {**self.environ, **self.client_environ()}
        worker = {**environ, "REVEAL_WORKER_DIRECTORY": str(self.directory / "worker")}
        agent = {**environ, "REVEAL_AGENT_SPOOL": str(self.directory / "spool")}
        port = str(self.settings.clickhouse_port)
        clickhouse = reveal_argv("clickhouse", "--directory", str(self.directory / "clickhouse"), "--port", port)
        ping = HttpCheck(HOST, self.settings.clickhouse_port, "/ping")
        return (
            ServiceSpec("kafka", tuple(kafka.command()), environ, check=kafka.ready, stop_s=30),
            ServiceSpec("clickhouse", clickhouse, environ, check=ping, stop_s=30),
            ServiceSpec("topics", reveal_argv("topics"), environ, after=("kafka",), job=True),
            ServiceSpec("agent", reveal_argv("agent"), agent, after=("topics",), beats=True),
            ServiceSpec("worker", reveal_argv("worker"), worker, after=("topics",), beats=True),
            ServiceSpec("warehouse", reveal_argv("warehouse"), environ, after=("topics", "clickhouse"), beats=True),
            ServiceSpec("alerts", reveal_argv("alerts", "run"), environ, after=("topics",), beats=True),
        )


def stack(environ: Mapping[str, str], file: Mapping[str, Any], directory: str | None = None) -> Stack:
    """The stack that the settings describe; `directory` goes before theirs. Raises SettingsError."""
    settings = load(StackSettings, environ, file)
    return Stack(settings, Path(directory or settings.directory).absolute(), environ)
