"""The laboratory's programs are found wherever they are started from: it is no installed package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.laboratory.programs import ROOT, finding

PROGRAMS = ("acts", "peer", "wire", "workload")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_found_from_anywhere(name: str, tmp_path: Path) -> None:
    environ = finding({name: value for name, value in os.environ.items() if name != "PYTHONPATH"})
    found = subprocess.run(
        [sys.executable, "-P", "-c", f"import tests.laboratory.{name} as it; print(it.__file__)"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.stdout.strip() == str(ROOT / "tests" / "laboratory" / f"{name}.py"), found.stderr


def test_what_was_on_the_path_stays_on_it() -> None:
    assert finding({"PYTHONPATH": "/a:/b", "HOME": "/c"}) == {"PYTHONPATH": f"{ROOT}:/a:/b", "HOME": "/c"}
