"""Why the stack cannot run, in words for the person who started it."""

from __future__ import annotations


class StackError(RuntimeError):
    """The stack cannot be started or asked; the text says what is wrong and what to do."""
