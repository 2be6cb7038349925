"""Presets: the queries in `presets/`, with what they need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

_PARAMETER: Final = re.compile(r"\{(\w+):([^{}]+)\}")
_DEFAULT: Final = re.compile(r"(\w+) =(?: (.*))?")
COMMON: Final = ("since", "until", "host", "subsystem", "limit")


class PresetError(ValueError):
    """There is no such query, or it cannot be run with these parameters; the message says what it takes."""


@dataclass(frozen=True, slots=True)
class Preset:
    """One query.

    title, about  what it tells, in a line; more, if there is more
    types         ClickHouse's type of each parameter
    defaults      by parameter that only some queries have; None where it has to be given
    sql           the query, without the comments
    """

    name: str
    title: str
    about: str
    types: Mapping[str, str]
    defaults: Mapping[str, str | None]
    sql: str

    def bind(self, given: Mapping[str, str]) -> dict[str, str]:
        """Values of all parameters: what is `given`, else its default. Raises PresetError for one that is missing or
        unknown; a common one that the query does not use is left out.
        """
        if strange := sorted(given.keys() - self.types.keys() - set(COMMON)):
            raise PresetError(
                f"{self.name} takes no {', '.join(strange)}; it takes {', '.join(self.types) or 'nothing'}"
            )
        bound = {}
        for name in self.types:
            value = given.get(name, self.defaults.get(name))
            if value is None:
                raise PresetError(f"{self.name} needs {name}: give --param {name}=VALUE")
            bound[name] = value
        return bound


def parse(name: str, text: str) -> Preset:
    """The preset in a file. Raises PresetError for one without a title or with a default for no parameter."""
    lines = text.splitlines()
    count = next((number for number, line in enumerate(lines) if not line.startswith("--")), len(lines))
    comments = [line.removeprefix("--").strip() for line in lines[:count]]
    sql = "\n".join(lines[count:]).strip()
    types = dict(_PARAMETER.findall(sql))
    defaults = {}
    about = []
    for comment in comments[1:]:
        if match := _DEFAULT.fullmatch(comment):
            defaults[match[1]] = match[2]
        else:
            about.append(comment)
    if not comments or not sql or defaults.keys() - types.keys():
        raise PresetError(f"{name}.sql needs a first line `-- title`, a query, and defaults of its parameters only")
    return Preset(name, comments[0], " ".join(about), types, defaults, sql)


def presets() -> dict[str, Preset]:
    """All presets by name, in order of their names."""
    folder = resources.files("sinks.warehouse").joinpath("presets")
    texts = {
        item.name.removesuffix(".sql"): item.read_text(encoding="utf-8")
        for item in folder.iterdir()
        if item.name.endswith(".sql")
    }
    return {name: parse(name, texts[name]) for name in sorted(texts)}
