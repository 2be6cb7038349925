"""Probable causes: signatures as data in `causes.toml`, and how well each fits a window.

A cause has signs (see `signs`). All of `requires` must show; `supports` make it more certain; `excludes` speak against
it.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from schemas.catalogue import SUBSYSTEMS
from schemas.records import Event
from stream_processors.moves import Moves, metric_index
from stream_processors.signs import CauseError, Happened, Sign, parse_sign

ENOUGH: Final = 0.5
"""Share of the supporting signs that makes a cause as certain as it can be: no fault shows everything it could."""
ALONE: Final = 0.6
NAMED: Final = 0.5
"""Confidence from which a cause is named; below, it is unknown."""
_FIELDS: Final = {
    "title",
    "subsystem",
    "fallback",
    "requires",
    "supports",
    "excludes",
    "alone",
    "explanation",
    "checks",
    "remedy",
}
_FIGURE: Final = re.compile(r"\{([a-z0-9_.]+)\}")


@dataclass(frozen=True, slots=True)
class Cause:
    """A signature, and what to tell an operator.

    subsystems   where it lies: the first that the host has
    fallback     whether it is rather a symptom, named only where no other cause is
    alone        confidence when all that is required shows and nothing of what supports it
    explanation  sentences; {metric} stands for its figure, and a sentence without its figures is left out
    checks       commands; {instance} stands for the strangest instance of what is required
    """

    name: str
    title: str
    subsystems: tuple[str, ...]
    fallback: bool
    requires: tuple[Sign, ...]
    supports: tuple[Sign, ...]
    excludes: tuple[Sign, ...]
    alone: float
    explanation: tuple[str, ...]
    checks: tuple[str, ...]
    remedy: str

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that speak for it, those that are required first, and those that its explanation tells of."""
        signs = (*self.requires, *self.supports)
        told = [name for sentence in self.explanation for name in _FIGURE.findall(sentence)]
        return tuple(dict.fromkeys([*(name for sign in signs for name in sign.metrics), *told]))

    def subsystem(self, shares: Mapping[str, float]) -> str | None:
        """Subsystem to look at on a host that has those of `shares`."""
        return next((name for name in self.subsystems if name in shares), None)

    def fit(self, moves: Moves, happened: Happened) -> float:
        """How well it fits a window, 0 to 1: geometric mean of the required degrees, times the certainty that support
        adds, times what exclusion leaves.
        """
        base = 1.0
        for sign in self.requires:
            degree = sign.degree(moves, happened)
            if not degree > 0:  # NaN as well
                return 0.0
            base *= degree
        base = math.pow(base, 1 / len(self.requires))
        for sign in self.excludes:
            against = sign.degree(moves, happened)
            if against > 0:
                base *= 1 - min(1.0, sign.weight * against)
        told = [(sign.weight, sign.degree(moves, happened)) for sign in self.supports]
        told = [(weight, degree) for weight, degree in told if not math.isnan(degree)]
        whole = sum(weight for weight, _ in told)
        support = min(1.0, sum(weight * degree for weight, degree in told) / (ENOUGH * whole)) if whole else 1.0
        return base * (self.alone + (1 - self.alone) * support)


@cache
def causes() -> Mapping[str, Cause]:
    """All causes by name, in the order of `causes.toml`."""
    return parse_causes(resources.files("stream_processors").joinpath("causes.toml").read_text(encoding="utf-8"))


def parse_causes(text: str) -> Mapping[str, Cause]:
    """Causes of a table in the form of `causes.toml`. Raises CauseError, which names the line."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CauseError(f"causes are no TOML: {error}") from None
    lines = text.splitlines()
    return {name: _cause(name, values, lines) for name, values in table.items()}


def fits(moves: Moves, happened: Happened) -> Mapping[str, float]:
    """How well each cause fits a window, by name, of those that fit at all."""
    found = {name: cause.fit(moves, happened) for name, cause in causes().items()}
    return {name: fit for name, fit in found.items() if fit > 0}


def ranked(confidence: Mapping[str, float]) -> list[str]:
    """Names of causes by `confidence`, the most probable first: before symptoms, causes that are certain enough to be
    named.
    """
    table = causes()
    return sorted(confidence, key=lambda name: (confidence[name] < NAMED or table[name].fallback, -confidence[name]))


def happened(events: Iterable[Event], since_ns: int, until_ns: int) -> Happened:
    """What `events` tell of from `since_ns` to `until_ns`."""
    return frozenset((each.kind, each.code) for each in events if since_ns <= each.time_ns <= until_ns)


def fill(sentences: Iterable[str], figures: Mapping[str, str]) -> list[str]:
    """`sentences` whose figures are all there, with them."""
    return [
        _FIGURE.sub(lambda match: figures[match[1]], sentence)
        for sentence in sentences
        if all(name in figures for name in _FIGURE.findall(sentence))
    ]


def _cause(name: str, values: Any, lines: Sequence[str]) -> Cause:
    header = next((i for i, line in enumerate(lines, 1) if line.strip() == f"[{name}]"), 1)
    if not isinstance(values, dict):
        raise CauseError(f"line {header}: {name} is no table")
    if strange := sorted(set(values) - _FIELDS):
        raise CauseError(f"line {_line(lines, header, strange[0])}: {name} has no {', '.join(strange)}")
    if lacking := sorted({"title", "subsystem", "requires", "explanation", "checks", "remedy"} - set(values)):
        raise CauseError(f"line {header}: {name} lacks {', '.join(lacking)}")
    given = values["subsystem"]
    subsystems = tuple(given) if isinstance(given, list) else (given,)
    if strange := [each for each in subsystems if each not in SUBSYSTEMS]:
        raise CauseError(f"line {_line(lines, header, 'subsystem')}: there is no subsystem {strange[0]}")
    if not 0 < values.get("alone", ALONE) <= 1:
        raise CauseError(f"line {_line(lines, header, 'alone')}: alone must be above 0 and at most 1")
    signs: dict[str, tuple[Sign, ...]] = {}
    for part in ("requires", "supports", "excludes"):
        made: list[Sign] = []
        for sentence in values.get(part, ()):
            try:
                made.append(parse_sign(sentence))
            except CauseError as error:
                raise CauseError(
                    f"line {_line(lines, header, sentence)}: {name} {part} {sentence!r}: {error}"
                ) from None
        signs[part] = tuple(made)
    if not signs["requires"]:
        raise CauseError(f"line {header}: {name} requires nothing, and would fit everything")
    cause = Cause(
        name=name,
        title=values["title"],
        subsystems=subsystems,
        fallback=bool(values.get("fallback", False)),
        alone=float(values.get("alone", ALONE)),
        explanation=tuple(values["explanation"]),
        checks=tuple(values["checks"]),
        remedy=values["remedy"],
        **signs,
    )
    for sentence in cause.explanation:
        for metric in _FIGURE.findall(sentence):
            if metric not in metric_index():
                where = _line(lines, header, sentence)
                raise CauseError(f"line {where}: there is no metric {metric} whose figure could be told")
    for check in cause.checks:
        if strange := sorted(set(_FIGURE.findall(check)) - {"instance"}):
            raise CauseError(f"line {_line(lines, header, check)}: a check knows {{instance}}, not {strange[0]}")
    return cause


def _line(lines: Sequence[str], header: int, text: str) -> int:
    return next((i for i, line in enumerate(lines[header - 1 :], header) if text in line), header)
