"""Compiled loops: for their types alone, with the arithmetic of numpy, and also where nothing can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_processors import compiled as module
from stream_processors.compiled import compiled

Floats = NDArray[np.float64]


@compiled("float64(float64[::1])")
def quotient(values: Floats) -> float:
    """The first over the sum of the others."""
    total = 0.0
    for value in values[1:]:
        total += value
    return float(values[0] / total)


def test_arithmetic_is_that_of_numpy() -> None:
    assert quotient(np.array([6.0, 1.0, 2.0])) == 2.0
    assert quotient(np.array([1.0, 0.0, 0.0])) == np.inf
    assert np.isnan(quotient(np.array([0.0, 0.0])))
    assert np.isnan(quotient(np.array([1.0, np.nan, 2.0])))
    assert np.isnan(quotient(np.array([1.0, np.inf, -np.inf])))
    assert quotient(np.array([1.0, np.inf])) == 0.0


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="No matching definition"):
        quotient(np.array([6.0, 1.0], np.float32))


def test_where_nothing_can_be_kept_it_is_compiled_at_every_start() -> None:
    scope: dict[str, object] = {"compiled": compiled}
    exec('@compiled("float64(float64)")\ndef double(value):\n    return 2 * value', scope)  # has no file to keep it by
    double = scope["double"]
    assert callable(double)
    assert double(3.0) == 6.0


def read(place: Path, **environ: str) -> str:
    """What a loop gives that takes a factor and a loop from other files, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", "from things.sums import total; print(total(3.0))"],
        env={**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1", **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()


def test_what_other_files_say_is_compiled_anew_when_they_change(tmp_path: Path) -> None:
    things = tmp_path / "things"
    things.mkdir()
    shutil.copy(module.__file__, things)
    use = "from things.compiled import compiled\n"
    (things / "factors.py").write_text("FACTOR = 2.0\n")
    (things / "more.py").write_text(f'{use}@compiled("float64(float64)")\ndef more(value):\n    return value + 1.0\n')
    (things / "sums.py").write_text(
        f"{use}from things.factors import FACTOR\nfrom things.more import more\n"
        '@compiled("float64(float64)")\ndef total(value):\n    return FACTOR * more(value)\n'
    )
    assert [read(tmp_path), read(tmp_path)] == ["8.0", "8.0"]
    kept = {path.parent.parent.name for path in things.rglob("*.nbi")}
    assert len(kept) == 1
    (things / "factors.py").write_text("FACTOR = 3.0\n")
    assert read(tmp_path) == "12.0"
    more = (things / "more.py").read_text()
    (things / "more.py").write_text(more.replace("1.0", "2.0"))
    assert read(tmp_path) == "15.0"
    # What was compiled of sources that are gone is gone, too.
    left = {path.parent.parent.name for path in things.rglob("*.nbi")}
    assert len(left) == 1
    assert left.isdisjoint(kept)


def test_what_is_compiled_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    things, elsewhere = tmp_path / "things", tmp_path / "elsewhere"
    things.mkdir()
    shutil.copy(module.__file__, things)
    (things / "sums.py").write_text(
        'from things.compiled import compiled\n@compiled("float64(float64)")\ndef total(value):\n    return 2 * value\n'
    )
    assert read(tmp_path, NUMBA_CACHE_DIR=str(elsewhere)) == "6.0"
    assert list(elsewhere.rglob("*.nbi"))
    assert not list(things.rglob("*.nbi"))
    # A folder cannot be where a file is: as if nothing could be written there, which root always can.
    (things / "__pycache__").write_text("")
    assert read(tmp_path, XDG_CACHE_HOME=str(tmp_path / "user")) == "6.0"
    assert list((tmp_path / "user").rglob("*.nbi"))
    (tmp_path / "none").write_text("")
    assert read(tmp_path, XDG_CACHE_HOME=str(tmp_path / "none")) == "6.0"
