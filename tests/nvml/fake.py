"""The fake library as tests use it: built once, and told what to answer."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
COMPILERS = ("cc", "gcc", "clang")
NAME = "libnvidia-ml.so.1"


@functools.cache
def built(old: bool) -> bytes:
    """The library, or with `old` that of a driver without the newer functions. Skips where nothing can build it."""
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        pytest.skip("there is no C compiler to build the library with")
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory, NAME)
        flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{NAME}"]
        defines = ["-DOLD_DRIVER"] if old else []
        done = subprocess.run(
            [compiler, *flags, *defines, "-o", str(target), str(SOURCE), "-lpthread"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return target.read_bytes()


class FakeNvml:
    """A library in `directory`, and a PCI bus beside it. What is set takes effect at `write`."""

    def __init__(self, directory: Path, *, old: bool = False) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / NAME
        self.path.write_bytes(built(old))
        self.sys, self.proc = directory / "sys", directory / "proc"
        self.sys.mkdir()
        self.proc.mkdir()
        self._lines: dict[str, str] = {}
        self._xids = 0

    def answer(self, target: str, function: str, *values: object) -> None:
        """What a function answers."""
        self._lines[f"{target} {function}"] = " ".join(map(str, values))

    def field(self, target: str, number: int, value: object, *, scope: int = 0, kind: int = 3, error: int = 0) -> None:
        """A value by number; `kind` as in nvmlValueType_t."""
        self._lines[f"{target} field {number} {scope}"] = f"{kind} {value} {error}"

    def gpm(self, target: str, number: int, value: float) -> None:
        """A value of the performance monitors."""
        self._lines[f"{target} gpm {number}"] = str(value)

    def fail(self, target: str, function: str, error: int) -> None:
        """An error in the place of an answer; function "*" means all."""
        self._lines[f"error {target} {function}"] = str(error)

    def delay(self, target: str, function: str, seconds: float) -> None:
        """How long an answer takes, or until `heal`."""
        self._lines[f"delay {target} {function}"] = str(round(1000 * seconds))

    def crash(self, target: str, function: str) -> None:
        """The call ends the process by SIGSEGV."""
        self._lines[f"crash {target} {function}"] = "1"

    def heal(self, target: str, function: str) -> None:
        """No error, no delay and no crash any more."""
        for what in ("error", "delay", "crash"):
            self._lines.pop(f"{what} {target} {function}", None)

    def unsupport(self, target: str, function: str) -> None:
        """No answer any more."""
        self._lines.pop(f"{target} {function}", None)

    def xid(self, target: str, number: int) -> None:
        """An XID happens."""
        self._xids += 1
        self._lines[f"xid {self._xids}"] = f"{target} {number}"

    def write(self) -> None:
        """Let the library see it, all at once."""
        new = self.directory / "state.new"
        lines = (f"{key} {value}\n" for key, value in self._lines.items())
        new.write_bytes("".join(lines).encode("utf-8", "surrogateescape"))
        new.rename(self.directory / "state")

    def plug(self, address: str, *, driver: str = "nvidia", vendor: str = "0x10de", kind: str = "0x030200") -> None:
        """A device on the PCI bus."""
        device = self.sys / "bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
        if driver:
            home = self.sys / "bus/pci/drivers" / driver
            home.mkdir(parents=True, exist_ok=True)
            os.symlink(home, device / "driver")

    def unplug(self, address: str) -> None:
        """The device is gone from the bus."""
        shutil.rmtree(self.sys / "bus/pci/devices" / address)
