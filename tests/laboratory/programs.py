"""Programs of the laboratory. It is no installed package, so they find it by its folder, wherever they stand."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def finding(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with which `python -P -m tests.laboratory...` is found."""
    others = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *others])}
