"""Programs that are missing: installed, or named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.laboratory.needs import NeedsError, missing, provide, read_in


class Machine:
    """Programs that it has, and those that its apt-get can install."""

    def __init__(self, has: set[str], offers: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.has, self.offers = has, offers
        self.installed: list[str] = []
        self.said: list[str] = []

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in self.has else None

    def install(self, packages: list[str]) -> int:
        self.installed += packages
        self.has |= self.offers
        return 0

    def provide(self) -> None:
        provide(self.said.append, self.which, self.install)


BASE = {"ip", "tc", "nsenter", "unshare"}


def test_nothing_is_done_where_all_is_there() -> None:
    machine = Machine(BASE | {"stress-ng", "fio", "apt-get"})
    machine.provide()
    assert not machine.installed
    assert not machine.said


def test_what_is_missing_is_installed_and_said() -> None:
    machine = Machine(BASE | {"apt-get"}, {"stress-ng", "fio"})
    machine.provide()
    assert machine.installed == ["fio", "stress-ng"]
    assert machine.said == ["installing fio, stress-ng with apt-get"]


def test_packages_are_named_where_they_cannot_be_installed() -> None:
    machine = Machine({"nsenter", "unshare", "fio"})
    with pytest.raises(NeedsError, match="needs iproute2, stress-ng: install"):
        machine.provide()
    assert not machine.installed
    with pytest.raises(NeedsError, match="needs stress-ng"):
        Machine(BASE | {"fio", "apt-get"}).provide()


def test_a_package_is_named_once() -> None:
    assert missing(lambda _: None) == ["fio", "iproute2", "stress-ng", "util-linux"]


def test_programs_are_run_and_read_before_faults_are_acted_out(tmp_path: Path) -> None:
    program = tmp_path / "stress-ng"
    program.write_text(f"#!/bin/sh\necho $* >> {tmp_path}/called\nexit 1\n")
    program.chmod(0o755)
    read_in(lambda name: str(program) if name == "stress-ng" else None)
    assert (tmp_path / "called").read_text() == "--version\n"
