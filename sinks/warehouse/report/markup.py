"""HTML and SVG made of elements, so that text is always escaped: what is no Markup is text."""

from __future__ import annotations

import html
from typing import Final


class Markup(str):
    """HTML, as opposed to text that is still to be escaped."""

    __slots__ = ()


_VOID: Final = frozenset({"meta", "br", "hr"})


def element(name: str, /, *content: str, **attributes: str | float) -> Markup:
    """An element. Attributes end in _ where their name is a word of Python, and have - for other _; numbers are
    written with one decimal.
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value) if isinstance(value, str) else short(value)}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{together(*content)}</{name}>")


def together(*content: str) -> Markup:
    """Pieces of markup and text after each other."""
    return Markup("".join(piece if isinstance(piece, Markup) else html.escape(piece, quote=False) for piece in content))


def short(value: float) -> str:
    """A coordinate: a tenth of a pixel cannot be seen."""
    return f"{value:.1f}".removesuffix(".0")
