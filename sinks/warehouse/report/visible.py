"""Foreign text made harmless: what a terminal or browser would obey, or not show, is spelled out instead."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, TypeVar

# Control, format (also bidirectional overrides), surrogate, and line and paragraph separators.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

Value = TypeVar("Value")


def visible(text: str) -> str:
    r"""`text` with every unseen character as its escape, such as \x1b; white space in between as single spaces."""
    joined = " ".join(text.split()) if any(character in "\n\r\t" for character in text) else text
    if joined.isascii() and joined.isprintable():
        return joined
    return "".join(map(_shown, joined))


def all_visible(value: Value) -> Value:
    """`value` with all its text visible: of dataclasses, mappings and tuples, however deep."""
    made: Any = value
    if isinstance(value, str):
        made = visible(value)
    elif isinstance(value, tuple):
        # Series are long, and have no text.
        made = value if value and isinstance(value[0], float) else tuple(map(all_visible, value))
    elif isinstance(value, Mapping):
        made = {all_visible(name): all_visible(item) for name, item in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        made = type(value)(**{each.name: all_visible(getattr(value, each.name)) for each in fields(value)})
    return made  # type: ignore[no-any-return]


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    return character.encode("unicode_escape").decode("ascii")
