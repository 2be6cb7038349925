"""Options of channels: checked against a dataclass, secrets taken from the environment or from files."""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from schemas.settings import Secret

T = TypeVar("T")
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
KINDS: Final[Mapping[Any, str]] = {str: "a text", Secret: "a text", int: "a whole number", float: "a number"}


class OptionError(ValueError):
    """An option is missing, unknown or wrong; the message begins with its name."""


def check_options(kind: type[Any], given: Mapping[str, Any]) -> None:
    """Whether `given` are options of `kind`, as far as can be told without their secrets. Raises OptionError."""
    hints = typing.get_type_hints(kind)
    files = {f"{name}_file" for name, hint in hints.items() if hint is Secret}
    for name, value in given.items():
        if name in files:
            if not isinstance(value, str) or not value:
                raise OptionError(f"{name}: must be the path of a file, not {value!r}")
            if name.removesuffix("_file") in given:
                raise OptionError(f"{name}: is given together with {name.removesuffix('_file')}; one is enough")
        elif name not in hints:
            raise OptionError(f"{name}: is not known; known are {', '.join([*hints, *sorted(files)])}")
        else:
            _typed(name, value, hints[name])
    for item in fields(kind):
        missing = item.default is MISSING and item.default_factory is MISSING
        if missing and item.name not in given and f"{item.name}_file" not in given:
            raise OptionError(f"{item.name}: is missing")


def resolve_options(kind: type[T], given: Mapping[str, Any], environ: Mapping[str, str]) -> T:
    """Options with ${NAME} replaced from `environ` and NAME_file read. Raises OptionError."""
    check_options(kind, given)
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in hints:
            try:
                values[name.removesuffix("_file")] = Secret(Path(value).read_text(encoding="utf-8").strip())
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
                raise OptionError(f"{name}: cannot read {value}: {why}") from None
            continue
        values[name] = _typed(name, _filled(name, value, environ), hints[name])
    for name in (item.name for item in fields(kind) if item.name in values):  # type: ignore[arg-type]
        if hints[name] is Secret and not values[name] and name in given:
            raise OptionError(f"{name}: is empty")
    try:
        return kind(**values)
    except ValueError as error:
        raise OptionError(str(error)) from None


def missing_variables(given: Mapping[str, Any], environ: Mapping[str, str]) -> list[str]:
    """Names of the variables that the options refer to and that are not set."""
    texts = [text for value in given.values() for text in (value if isinstance(value, list) else [value])]
    names = [name for text in texts if isinstance(text, str) for name in _REFERENCE.findall(text)]
    return sorted({name for name in names if name not in environ})


def _filled(name: str, value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_filled(name, item, environ) for item in value]
    if isinstance(value, dict):
        return {key: _filled(name, item, environ) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if absent := missing_variables({name: value}, environ):
        raise OptionError(f"{name}: the variable {absent[0]} is not set")
    return _REFERENCE.sub(lambda match: environ[match[1]], value)


def _typed(name: str, value: Any, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is tuple:
        listed = [value] if isinstance(value, str) else value
        inner = typing.get_args(hint)[0]
        if isinstance(listed, list) and listed and all(isinstance(item, str) and item for item in listed):
            return tuple(inner(item) for item in listed)
        raise OptionError(f"{name}: must be a text or a list of texts")
    if origin is not None:
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            return value
        raise OptionError(f"{name}: must be a table of texts")
    if hint is bool:
        if isinstance(value, bool):
            return value
        raise OptionError(f"{name}: must be true or false")
    if hint in (str, Secret) and isinstance(value, str):
        return hint(value)
    if hint in (int, float) and isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return hint(value)
    raise OptionError(f"{name}: must be {KINDS[hint]}")
