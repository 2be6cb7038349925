"""A report as a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sinks.warehouse.report.content import Report
from sinks.warehouse.report.markdown import markdown
from sinks.warehouse.report.page import page
from sinks.warehouse.report.text import text
from sinks.warehouse.report.visible import all_visible

FORMATS: Final[Mapping[str, Callable[[Report], str]]] = {"text": text, "markdown": markdown, "html": page}


def render(report: Report, format_: str) -> str:
    """`report` in one of FORMATS, a document that ends in a line feed. Whatever foreign text it holds is harmless
    there. Raises KeyError for another format.
    """
    return FORMATS[format_](all_visible(report))


def render_text(report: Report, width: int, *, color: bool) -> str:
    """The same for a terminal of `width` columns, in colour if wanted."""
    return text(all_visible(report), width, color=color)
