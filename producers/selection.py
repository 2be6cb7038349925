"""Which instances of a dimension are to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase


class Selection:
    """A `Wanted` from shell patterns by dimension: the first pattern that matches decides, "!" before one excludes.

    What no pattern matches is wanted if the list only excludes; what has no list is wanted.
    """

    def __init__(self, patterns: Mapping[str, Sequence[str]]) -> None:
        self._patterns = {dimension: tuple(found) for dimension, found in patterns.items() if found}

    def __call__(self, dimension: str, instance: str) -> bool:
        """Whether `instance` of `dimension` is to be read."""
        patterns = self._patterns.get(dimension, ())
        for pattern in patterns:
            if fnmatchcase(instance, pattern.removeprefix("!")):
                return not pattern.startswith("!")
        return all(pattern.startswith("!") for pattern in patterns)
