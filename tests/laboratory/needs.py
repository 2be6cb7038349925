"""Programs that the laboratory needs: found, or installed where that can be done."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.laboratory.programs import finding

PROGRAMS: Final[Mapping[str, str]] = {
    "stress-ng": "stress-ng",
    "fio": "fio",
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
"""The package that holds each, as Debian and Ubuntu name it."""


class NeedsError(RuntimeError):
    """Something is missing; the text says what to install."""


def missing(which: Callable[[str], str | None] = shutil.which) -> list[str]:
    """Packages of programs that are not there."""
    return sorted({package for program, package in PROGRAMS.items() if which(program) is None})


def provide(
    say: Callable[[str], None],
    which: Callable[[str], str | None] = shutil.which,
    install: Callable[[list[str]], int] | None = None,
) -> None:
    """Installs what is missing with apt-get, which takes root. Raises NeedsError where it still is missing."""
    packages = missing(which)
    if not packages:
        return
    if which("apt-get") is not None:
        say(f"installing {', '.join(packages)} with apt-get")
        (install or _apt)(packages)
        packages = missing(which)
    if packages:
        raise NeedsError(f"the fault laboratory needs {', '.join(packages)}: install these packages")


def read_in(which: Callable[[str], str | None] = shutil.which) -> None:
    """Reads the programs, so that a fault does not begin with a burst of reads of what it is acted out with. One that
    takes the memory of the page cache makes the next ones need it again.
    """
    for program in PROGRAMS:
        if (path := which(program)) is not None:
            # Running it brings its libraries; it reads of itself what it runs.
            subprocess.run([path, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            Path(path).read_bytes()
    modules = "import tests.laboratory.acts, deploy.demo.faults"
    subprocess.run((sys.executable, "-P", "-c", modules), env=finding(os.environ), check=False)


def _apt(packages: list[str]) -> int:
    environ = ("env", "DEBIAN_FRONTEND=noninteractive")
    subprocess.run((*environ, "apt-get", "update", "-qq"), check=False)
    install = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages)
    return subprocess.run((*environ, *install), stdout=subprocess.DEVNULL, check=False).returncode
