"""Loops over the numbers of a host, compiled by Numba: numpy would take a call, and an array, for each step of them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, TypeVar, cast

import numba

from schemas.settings import user_cache

Loop = TypeVar("Loop", bound=Callable[..., object])

REORDERED: Final = frozenset({"contract", "reassoc"})
"""What LLVM may do with sums and products."""
CONFIG: Final[Any] = numba.config
SOURCES: Final = Path(__file__).parent
KEPT: Final = "compiled-"


def compiled(signature: str) -> Callable[[Loop], Loop]:
    """Compile a function for arguments of these types, and no others, when its module is imported.

    What was compiled is kept beside the source or, where that cannot be written, where the user's caches are or
    NUMBA_CACHE_DIR says; where nothing can be written it is compiled at every start. Sums may be added up in any order,
    as numpy adds them; NaN and infinity keep their meaning, and a division by zero gives them.
    """

    options: Any = {"error_model": "numpy", "fastmath": set(REORDERED)}

    def made(loop: Loop) -> Loop:
        given = CONFIG.CACHE_DIR
        try:
            CONFIG.CACHE_DIR = folder = _folder()
            built = numba.njit(signature, cache=bool(folder), **options)(loop)
        except RuntimeError:  # it has no file to be kept by
            built = numba.njit(signature, **options)(loop)
        finally:
            CONFIG.CACHE_DIR = given
        return cast(Loop, built)

    return made


@cache
def _folder() -> str:
    """Where to keep what is compiled of these sources, empty if nothing can be written.

    Numba compiles anew what is in a file that has changed. But a loop holds what it takes from other files as well,
    constants and loops, so the folder is named by what all of them say.
    """
    said = hashlib.sha256()
    for source in sorted(SOURCES.glob("*.py")):
        said.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    beside = SOURCES / "__pycache__"
    places = [Path(CONFIG.CACHE_DIR)] if CONFIG.CACHE_DIR else [beside]
    with suppress(RuntimeError):  # the user has no home
        places.append(user_cache(os.environ))
    for place in places:
        folder = place / f"{KEPT}{said.hexdigest()[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=folder).close()
        except OSError:
            continue
        if place == beside:  # nobody else's
            for other in place.glob(f"{KEPT}*"):
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
        return str(folder)
    return ""
