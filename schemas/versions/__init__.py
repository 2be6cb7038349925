"""Every version of every schema that was ever published, as `<name>/<number>.avsc`: readers resolve them, and the
compatibility check compares with them.

A published file never changes. `python -m schemas.versions` publishes the current schemas that differ from their
newest version.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def published(name: str) -> tuple[dict[str, Any], ...]:
    """Published versions of schema `name`, oldest first; empty when there is none."""
    folder = resources.files("schemas.versions").joinpath(name)
    if not folder.is_dir():
        return ()
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".avsc"))
    return tuple(json.loads(folder.joinpath(file).read_text(encoding="utf-8")) for file in files)
