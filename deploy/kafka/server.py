"""The local Kafka broker: prepared, started, watched and stopped."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deploy.kafka import config, ports, topics
from deploy.kafka.errors import LocalKafkaError
from deploy.kafka.jars import Fetch, JarStore, default_cache, fetch_with_jgo, pinned_jars
from deploy.kafka.progress import Progress, silent
from deploy.kafka.runtime import Runtime, StartupCache, java
from deploy.process import bound

POLL_S: Final = 0.02
FORMAT_TIMEOUT_S: Final = 60
CACHE_STEP: Final = "start-up cache for Kafka (made once, some 8 s)"


class LocalKafka:
    """Apache Kafka, one node on loopback, its data under `directory`.

    For a supervisor: `prepare(progress)` once, then run `command()` as often as needed and ask `ready()`.
    For a test: `with LocalKafka(...) as kafka`.

    directory: holds server.properties, data/, kafka.log (three files of 10 MB at most) and kafka.out (what Java itself
    printed since the last start()). port, controller_port: on 127.0.0.1. heap_mb: Java heap in MiB.
    cache: directory of the jars and the start-up cache, None for the user's. startup_cache: whether to make and use
    one. jvm_options: further ones. fetch: brings a missing jar.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 19092,
        controller_port: int = 19093,
        heap_mb: int = 256,
        cache: Path | None = None,
        startup_cache: bool = True,
        jvm_options: Sequence[str] = (),
        fetch: Fetch = fetch_with_jgo,
    ) -> None:
        self.directory = directory.absolute()
        self.port = port
        self.controller_port = controller_port
        self.heap_mb = heap_mb
        self.log = self.directory / "kafka.log"
        self.output = self.directory / "kafka.out"
        self.data = self.directory / "data"
        self.properties = self.directory / "server.properties"
        self._cache = cache
        self._startup_cache = startup_cache
        self._jvm_options = tuple(jvm_options)
        self._fetch = fetch
        self._runtime: Runtime | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """Address for `bootstrap.servers`."""
        return f"{config.HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id of the broker that `start()` started, None when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def prepare(self, progress: Progress = silent) -> None:
        """Everything a start needs: jars, start-up cache, settings, formatted storage. Cheap when all is there (0.2 s).

        Raises LocalKafkaError, JarError among them. A start-up cache that cannot be made is told by `progress` and
        done without.
        """
        try:
            self._runtime = self._prepare(progress)
        except OSError as error:
            raise LocalKafkaError(f"Kafka cannot be prepared: {error}") from error

    def command(self) -> list[str]:
        """Argument vector of the broker: it stays in the foreground and stops on SIGTERM with status 143.

        Raises LocalKafkaError before prepare().
        """
        if self._runtime is None:
            raise LocalKafkaError("prepare() comes before command()")
        return self._runtime.command(self._options(), "kafka.Kafka", str(self.properties))

    def check_ports(self) -> None:
        """Raises PortBusyError where something else listens on a port of this broker."""
        ports.check_free(self.port, "--port")
        ports.check_free(self.controller_port, "--controller-port")

    def start(self) -> None:
        """Start the broker as a child, prepared first if need be; it ends with the thread that called this.

        Raises LocalKafkaError, PortBusyError among them.
        """
        if self.pid is not None:
            raise LocalKafkaError(f"this Kafka runs already, as process {self.pid}")
        self.check_ports()
        if self._runtime is None:
            self.prepare()
        with self.output.open("wb") as output:
            # In a session of its own: a Ctrl-C in the terminal is for its owner, who stops it after its clients.
            self._process = subprocess.Popen(
                bound(self.command(), signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ready(self) -> bool:
        """Whether the broker on this port, whoever started it, answers and every partition has a leader. Cheap."""
        return ports.listens(self.port) and topics.cluster_serves({"bootstrap.servers": self.bootstrap})

    def wait_ready(self, timeout_s: float = 30) -> None:
        """Until ready(). Raises LocalKafkaError with the end of the log when the broker ended, or after timeout_s."""
        deadline = time.monotonic() + timeout_s
        while not self.ready():
            if self._process is not None and self._process.poll() is not None:
                raise LocalKafkaError(
                    f"Kafka ended with status {self._process.returncode} before it was ready\n{self._last_lines()}"
                )
            if time.monotonic() > deadline:
                raise LocalKafkaError(f"Kafka is not ready after {timeout_s:.0f} s\n{self._last_lines()}")
            time.sleep(POLL_S)

    def stop(self, timeout_s: float = 30) -> None:
        """SIGTERM, SIGKILL after timeout_s; returns when the broker has ended. Does nothing when it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL; returns when the broker has ended. Does nothing when it does not run."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.prepare()
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _prepare(self, progress: Progress) -> Runtime:
        cache = (self._cache or default_cache(os.environ)).absolute()
        runtime = Runtime(java(), JarStore(cache, pinned_jars(), self._fetch).ensure(progress), config.JVM_OPTIONS)
        if self._startup_cache:
            runtime = self._with_startup_cache(runtime, cache, progress)
        self.data.mkdir(parents=True, exist_ok=True)
        # A killed broker leaves the native libraries it had unpacked.
        shutil.rmtree(self.directory / "tmp", ignore_errors=True)
        (self.directory / "tmp").mkdir()
        new = self.properties.with_suffix(".new")
        new.write_text(config.server_properties(self.data, self.port, self.controller_port), "ascii")
        new.replace(self.properties)
        if not (self.data / "meta.properties").exists():
            self._format(runtime)
        return runtime

    def _options(self) -> tuple[str, ...]:
        return (*config.run_options(self.directory, self.heap_mb), *self._jvm_options)

    def _with_startup_cache(self, runtime: Runtime, directory: Path, progress: Progress) -> Runtime:
        cache = StartupCache(directory, runtime)
        if not cache.intact():
            progress(0, 1, CACHE_STEP)
            try:
                cache.make(self._train)
            except (LocalKafkaError, OSError) as error:
                progress(1, 1, f"{CACHE_STEP}: could not be made, Kafka starts without: {error}")
                return runtime
            progress(1, 1, CACHE_STEP)
        return Runtime(runtime.java, runtime.jars, (*runtime.options, f"-XX:AOTCache={cache.path}"))

    def _train(self, directory: Path, options: Sequence[str]) -> None:
        port, controller_port = ports.free_ports(2)
        broker = LocalKafka(
            directory,
            port=port,
            controller_port=controller_port,
            heap_mb=self.heap_mb,
            cache=self._cache,
            startup_cache=False,
            jvm_options=options,
            fetch=self._fetch,
        )
        with broker:
            # The cache is written between the signal and the end, by a second Java process.
            broker.stop(timeout_s=120)

    def _format(self, runtime: Runtime) -> None:
        # Kafka's ids are 16 bytes in base64, and its command line takes none that begins with '-'.
        cluster = "R" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii")[1:22]
        arguments = ("format", "--cluster-id", cluster, "--config", str(self.properties), "--ignore-formatted")
        command = runtime.command(
            config.run_options(self.directory, self.heap_mb), "kafka.tools.StorageTool", *arguments
        )
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=FORMAT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LocalKafkaError(f"Kafka's storage tool did not end within {FORMAT_TIMEOUT_S} s") from error
        if done.returncode != 0:
            raise LocalKafkaError(
                f"Kafka's storage in {self.data} cannot be formatted:\n{done.stdout.decode('utf-8', 'replace')[-2000:]}"
            )

    def _last_lines(self, count: int = 15) -> str:
        """The end of what Java printed and of the log, for an error message."""
        found = []
        for path in (self.output, self.log):
            try:
                with path.open("rb") as file:
                    file.seek(max(0, path.stat().st_size - 8192))
                    lines = file.read().decode("utf-8", "replace").splitlines()[-count:]
            except FileNotFoundError:
                continue
            if lines:
                found.append(f"the end of {path}:\n" + "\n".join(f"  {line}" for line in lines))
        return "\n".join(found)
