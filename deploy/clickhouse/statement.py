"""Cuts SQL where the HTTP interface needs it: the data behind an INSERT, the FORMAT of a result, a second statement.

It only finds tokens (words, strings, brackets, comments) and never judges a statement: the engine's parser does that.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from deploy.clickhouse.errors import INTO_OUTFILE_NOT_ALLOWED, SYNTAX_ERROR, QueryError

_TOKEN = re.compile(
    rb"""
    (?P<blank>   \s+ | --[^\n]* | \#[ !][^\n]* | /\*.*?(?:\*/|\Z) )
  | (?P<text>    '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`\\]|\\.|``)*` | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
  | (?P<word>    [\w$\x80-\xff]+ )
  | (?P<mark>    . )
    """,
    re.VERBOSE | re.DOTALL,
)
_LINE_END = re.compile(rb"[ \t\f]*(?:\r?\n)?")


class _Token(NamedTuple):
    kind: str
    word: bytes  # upper case
    start: int
    end: int
    depth: int


@dataclass(frozen=True)
class Statement:
    """One statement, without its final semicolon and FORMAT clause.

    `body` is the text before FORMAT (or VALUES), `tail` what follows the format's name (a SETTINGS clause). For an
    INSERT that carries its rows, `data` is the offset of their first byte in the text that was parsed, else None.
    """

    verb: str
    body: bytes
    format: str | None
    tail: bytes
    data: int | None

    @property
    def sets_only_settings(self) -> bool:
        """SET name = value, and not SET ROLE or SET DEFAULT ROLE."""
        head = [token.word for token, _ in zip(_tokens(self.body), range(3), strict=False)]
        return head[:1] == [b"SET"] and head[2:] == [b"="]

    def calls(self, name: str) -> bool:
        """Whether a function of that name (lower case) is called anywhere in it, quoted or not."""
        wanted = name.encode()
        return any(
            token.word == b"(" and self.body[before.start : before.end].strip(b'`"').lower() == wanted
            for before, token in pairwise(_tokens(self.body))
        )

    @property
    def text(self) -> str:
        """The statement as it runs: an INSERT's rows are not part of it."""
        clause = f"\nFORMAT {self.format} " if self.format and self.data is None else "\n"
        return self.body.decode(errors="surrogateescape") + clause + self.tail.decode(errors="surrogateescape")


def parse(text: bytes) -> Statement:
    """Cuts one statement. Raises QueryError if it is empty, more than one, or reaches for files of this machine."""
    stream = _tokens(text)
    first = next(stream, None)
    if first is None or first.word == b";":
        raise QueryError.of(SYNTAX_ERROR, "Syntax error: empty query")
    verb = first.word.decode(errors="replace")
    if verb == "INSERT":
        insert = _insert(text, first, stream)
        if insert is not None:
            return insert
        stream = _tokens(text)
        next(stream)
    return _other(text, verb, [first, *stream])


def _tokens(text: bytes) -> Iterator[_Token]:
    depth = 0
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or ""
        if found["blank"] is not None:
            continue
        kind = "word" if found["word"] is not None else "mark" if found["mark"] is not None else "text"
        word = found[0].upper() if kind != "text" else b""
        if word in (b")", b"]", b"}"):
            depth -= 1
        yield _Token(kind, word, found.start(), found.end(), depth)
        if word in (b"(", b"[", b"{"):
            depth += 1


def _insert(text: bytes, first: _Token, stream: Iterator[_Token]) -> Statement | None:
    """An INSERT with rows behind it; None for INSERT ... SELECT, whose end is found like that of any statement.

    Tokens are read lazily: behind the format's name are rows, which are no SQL.
    """
    previous = first
    for token in stream:
        if token.word in (b"SELECT", b"WITH") and (token.depth == 0 or previous.word == b"("):
            return None
        if token.depth == 0 and token.kind == "word":
            if token.word == b"INFILE" and previous.word == b"FROM":
                raise QueryError.of(INTO_OUTFILE_NOT_ALLOWED, "FROM INFILE is not allowed: send the rows as the body")
            if token.word == b"VALUES" and previous.word not in (b"INTO", b"TABLE", b"."):
                return Statement("INSERT", text[: token.start], "Values", b"", token.end)
            if previous.word == b"FORMAT":
                line_end = _LINE_END.match(text, token.end)
                data = line_end.end() if line_end else token.end
                name = text[token.start : token.end].decode(errors="replace")
                return Statement("INSERT", text[: previous.start], name, b"", data)
        previous = token
    return None


def _other(text: bytes, verb: str, tokens: list[_Token]) -> Statement:
    for before, token in pairwise(tokens):
        if before.word == b"INTO" and token.word == b"OUTFILE":
            raise QueryError.of(INTO_OUTFILE_NOT_ALLOWED, "INTO OUTFILE is not allowed")
        if before.word == b"FROM" and token.word == b"INFILE":
            raise QueryError.of(INTO_OUTFILE_NOT_ALLOWED, "FROM INFILE is not allowed")
        if before.word == b";" and before.depth <= 0 and token.word != b";":
            raise QueryError.of(SYNTAX_ERROR, "Syntax error (Multi-statements are not allowed): send them one by one")
    while tokens[-1].word == b";":
        tokens.pop()
    end = tokens[-1].end
    for position in range(len(tokens) - 2, 0, -1):
        clause, name = tokens[position], tokens[position + 1]
        following = tokens[position + 2] if position + 2 < len(tokens) else None
        if (
            clause.word == b"FORMAT"
            and clause.depth == 0
            and name.kind == "word"
            and (following is None or following.word == b"SETTINGS")
        ):
            tail = b"" if following is None else text[following.start : end]
            return Statement(verb, text[: clause.start], text[name.start : name.end].decode(), tail, None)
    return Statement(verb, text[:end], None, b"", None)
