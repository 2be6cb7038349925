"""An Apache ZooKeeper for tests, where replicas of ClickHouse agree: on Kafka's Java, with its jars and three more."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final, Self

from deploy.kafka import config
from deploy.kafka.jars import JarStore, default_cache, pinned_jars
from deploy.kafka.ports import free_ports
from deploy.kafka.runtime import Runtime, java

LOCK_FILE: Final = Path(__file__).with_name("zookeeper.toml")
HEAP_MB: Final = 128
START_S: Final = 60.0
_SETTINGS: Final = """tickTime=500
dataDir={directory}/data
clientPortAddress={host}
clientPort={port}
admin.enableServer=false
"""


class ZooKeeper:
    """One node on a free loopback port, with its data and log in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{config.HOST}:{self.port}"

    def start(self) -> Self:
        """Returns when it serves. Raises JarError where its jars are neither in the user's cache nor can be fetched."""
        cache = default_cache(os.environ).absolute()
        kafka = JarStore(cache, pinned_jars()).ensure()
        more = JarStore(cache.with_name("zookeeper"), pinned_jars(LOCK_FILE)).ensure()
        self.directory.mkdir(parents=True)
        settings = self.directory / "zoo.cfg"
        settings.write_text(_SETTINGS.format(directory=self.directory, host=config.HOST, port=self.port))
        (self.directory / "tmp").mkdir()
        # What a power cut would lose is no matter here, and each statement of a cluster is several writes.
        runtime = Runtime(java(), (*more, *kafka), (*config.JVM_OPTIONS, "-Dzookeeper.forceSync=no"))
        options = config.run_options(self.directory, HEAP_MB)
        output = self.directory / "output.log"
        with output.open("wb") as file:
            self._process = subprocess.Popen(
                runtime.command(options, "org.apache.zookeeper.server.ZooKeeperServerMain", str(settings)),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        until = time.monotonic() + START_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                logs = [path.read_text()[-4000:] for path in (output, self.directory / "kafka.log") if path.exists()]
                raise AssertionError("\n".join(["ZooKeeper does not start:", *logs]))
            time.sleep(0.05)
        return self

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _serves(self) -> bool:
        """It listens before it serves, and says so when asked."""
        try:
            with socket.create_connection((config.HOST, self.port), 2) as connection:
                connection.sendall(b"srvr\n")
                return b"Mode: standalone" in connection.makefile("rb").read()
        except OSError:
            return False
