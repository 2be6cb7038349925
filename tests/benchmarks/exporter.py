"""prometheus-node-exporter from Debian's packages, as a measure to compare with."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from schemas.settings import user_cache

PACKAGE: Final = "prometheus-node-exporter"
# The sources that the agent reads, where this exporter knows them, and of each all fields, as the agent does.
COLLECTORS: Final = (
    *("stat", "cpu", "cpufreq", "schedstat", "interrupts", "softnet", "loadavg", "pressure", "meminfo"),
    *("meminfo_numa", "vmstat", "netdev", "netstat", "netclass", "sockstat", "diskstats", "thermal_zone"),
)
FIELDS: Final = ("--collector.stat.softirq", "--collector.vmstat.fields=.*", "--collector.netstat.fields=.*")


class NoExporterError(Exception):
    """There is no exporter to compare with; the message says why."""


def binary() -> Path:
    """The program, from the user's cache or fetched into it; apt checks what it fetches. Raises NoExporterError."""
    cache = user_cache(os.environ) / f"{PACKAGE}-{platform.machine()}"
    program = cache / "usr" / "bin" / PACKAGE
    if program.exists():
        return program
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NoExporterError("no apt-get and dpkg on this machine")
    cache.mkdir(parents=True, exist_ok=True)
    for command in (["apt-get", "download", PACKAGE], ["dpkg", "-x"]):
        if command[0] == "dpkg":
            (package,) = cache.glob(f"{PACKAGE}_*.deb")
            command += [package.name, "."]
        done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise NoExporterError(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
    return program


@contextmanager
def running(program: Path, root: Path) -> Iterator[tuple[int, int]]:
    """The exporter over the /proc and /sys below `root`, on a port of its own: its process and the port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [
        str(program),
        f"--web.listen-address=127.0.0.1:{port}",
        f"--path.procfs={root}/proc",
        f"--path.sysfs={root}/sys",
        "--collector.disable-defaults",
        *(f"--collector.{name}" for name in COLLECTORS),
        *FIELDS,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _wait(process, port)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(10)


def scrape(port: int) -> int:
    """Ask for the metrics once; how many values came."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\nAccept: text/plain\r\n\r\n")
        parts = []
        while part := connection.recv(1 << 20):
            parts.append(part)
    lines = b"".join(parts).split(b"\r\n\r\n", 1)[1].splitlines()
    return sum(line.startswith(b"node_") for line in lines)


def _wait(process: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and process.poll() is None:
        try:
            scrape(port)
            return
        except OSError:
            time.sleep(0.05)
    process.terminate()
    said = process.communicate(timeout=10)[1].strip().splitlines()
    raise NoExporterError(f"{PACKAGE} did not answer: {said[-1] if said else 'it said nothing'}")
