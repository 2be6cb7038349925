"""Loops over the numbers of a host, compiled by Numba: numpy would take a call, and an array, for each step of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., object])

REORDERED: Final = frozenset({"contract", "reassoc"})
"""What LLVM may do with sums and products."""


def compiled(signature: str) -> Callable[[Loop], Loop]:
    """Compile a function for arguments of these types, and no others, when its module is imported.

    What was compiled is kept beside the source or, where that cannot be written, where the user's caches are or
    NUMBA_CACHE_DIR says; where nothing can be written it is compiled at every start. Sums may be added up in any order,
    as numpy adds them; NaN and infinity keep their meaning, and a division by zero gives them.
    """

    def made(loop: Loop) -> Loop:
        try:
            built = njit(signature, cache=True, error_model="numpy", fastmath=set(REORDERED))(loop)
        except RuntimeError:  # there is no place for what is compiled
            built = njit(signature, error_model="numpy", fastmath=set(REORDERED))(loop)
        return cast(Loop, built)

    return made
