"""Prometheus' Alertmanager from Debian's packages, for tests: fetched once into the user's cache."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deploy.kafka.ports import free_ports
from schemas.settings import user_cache

PACKAGE: Final = "prometheus-alertmanager"
START_S: Final = 20.0
INSIDE: Final = 'mount --bind "$1" /usr/share && shift && exec "$@"'


class NoAlertmanagerError(Exception):
    """There is none to be had; the message says why."""


def program() -> tuple[str, ...]:
    """The beginning of its command line; apt checks what it fetches. Raises NoAlertmanagerError."""
    if (installed := shutil.which(PACKAGE)) is not None:
        return (installed,)
    cache = user_cache(os.environ) / f"{PACKAGE}-{platform.machine()}"
    found = cache / "usr" / "bin" / PACKAGE
    if not found.exists():
        _fetch(cache)
    # Debian's looks for its templates in /usr/share only: it gets one of its own.
    inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", INSIDE, "sh", str(cache / "usr" / "share"))
    _do(cache, *inside, "true")
    return (*inside, str(found))


def _fetch(cache: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise NoAlertmanagerError("no apt-get and dpkg on this machine")
    cache.mkdir(parents=True, exist_ok=True)
    _do(cache, "apt-get", "download", PACKAGE)
    (package,) = cache.glob(f"{PACKAGE}_*.deb")
    _do(cache, "dpkg", "-x", package.name, ".")
    package.unlink()


@contextmanager
def running(program: tuple[str, ...], directory: Path, webhook: str) -> Iterator[str]:
    """One that groups by rack and tells `webhook` within seconds, without a cluster: its URL."""
    (port,) = free_ports(1)
    config = directory / "alertmanager.yml"
    config.write_text(
        "route:\n  receiver: hook\n  group_by: [rack]\n  group_wait: 2s\n  group_interval: 2s\n  repeat_interval: 1h\n"
        f"receivers:\n  - name: hook\n    webhook_configs:\n      - url: {webhook}\n        send_resolved: true\n"
    )
    command = [
        *program,
        f"--config.file={config}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    url = f"http://127.0.0.1:{port}"
    log = directory / "alertmanager.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + START_S
        while not _ready(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"Alertmanager does not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _do(directory: Path, *command: str) -> None:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    except FileNotFoundError:
        raise NoAlertmanagerError(f"no {command[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise NoAlertmanagerError(f"{' '.join(command)}: no answer within 120 s") from None
    if done.returncode:
        raise NoAlertmanagerError(f"{' '.join(command)}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
