"""Signs: what speaks for a cause or against it, as sentences over what the metrics of a window do.

    tcp.fast_retrans rises                            a metric rises; or falls, moves (either), swings, stays steady
    vm.pgfault multiplies                             it rises to many times what is usual; or vanishes, the same down
    net.tx_bytes vanishes on one                      so does that instance, whatever is left of the others
    ib.symbol_error or ib.rx_errors rises             any of them; the strongest counts
    gpu.clock_sm falls on one                         on few of the instances; "on many": on more than half of them
    cpu.irq.nic spreads                               its instances drift apart
    gpu.temp_margin below 3                           the lowest (above: the highest) instance has such a value
    tcp.timeouts exceeds 1                            it is by so much more than usual, however much it varies
    tcp.syn_retrans per tcp.retrans_segs above 0.5    of what is more of the second than usual, a share is of the first
    event xid 63 64                                   the host's agent told of it, with one of these codes
    2 * ib.tx_wait rises                              the sign weighs twice

Values are in the metric's unit. A sign whose metrics the host lacks counts neither way, unless it is required.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.catalogue import catalogue
from schemas.records import EVENT_KINDS
from stream_processors.moves import Moves, metric_index

QUIET: Final = 3.0
LOUD: Final = 10.0
"""A deviation below QUIET robust standard deviations says nothing, one of LOUD says all; between, its logarithm."""
_VERBS: Final = ("rises", "falls", "moves", "swings", "spreads", "steady", "multiplies", "vanishes")
SEVERAL: Final = 3.0
MANIFOLD: Final = 30.0
"""A metric that rises to SEVERAL times its usual level does not multiply, to MANIFOLD times it does; between, the
logarithm. One that vanishes does the same downwards."""
_WEIGHT: Final = re.compile(r"(\d+(?:\.\d+)?) \* (.+)")

Happened = frozenset[tuple[str, int | None]]
"""Kinds and codes of events."""


class CauseError(ValueError):
    """The table of causes is wrong; the message names the line."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One predicate over one metric or event. `degree` is 0 (not at all) to 1, NaN where it cannot be told."""

    names: tuple[str, ...]
    degree: Callable[[Moves, Happened], float]


@dataclass(frozen=True, slots=True)
class Sign:
    """Clauses of which the strongest counts, with a weight. `text` is the sentence."""

    text: str
    clauses: tuple[Clause, ...]
    weight: float = 1.0

    def degree(self, moves: Moves, happened: Happened) -> float:
        """0 to 1, NaN where no clause can be told."""
        told = [each for clause in self.clauses if not math.isnan(each := clause.degree(moves, happened))]
        return max(told, default=math.nan)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that it names."""
        return tuple(name for clause in self.clauses for name in clause.names)


def parse_sign(text: str) -> Sign:
    """A sign from its sentence. Raises CauseError."""
    match = _WEIGHT.fullmatch(text)
    weight, sentence = (float(match[1]), match[2]) if match else (1.0, text)
    clauses: list[Clause] = []
    predicate: list[str] = []
    for part in reversed(sentence.split(" or ")):
        words = part.split()
        if words[:1] == ["event"]:
            clauses.append(_event(words[1:]))
            continue
        predicate = words[1:] or predicate
        clauses.append(_clause(words[0] if words else "", predicate))
    return Sign(text, tuple(reversed(clauses)), weight)


def _known(name: str) -> int:
    if name not in metric_index():
        raise CauseError(f"there is no metric {name or 'without a name'} that detectors look at")
    return metric_index()[name]


def _event(words: Sequence[str]) -> Clause:
    kind, *codes = words or [""]
    if kind not in EVENT_KINDS:
        raise CauseError(f"there is no event {kind}")
    if not all(code.isdigit() for code in codes):
        raise CauseError("the codes of an event are whole numbers")
    wanted = {int(code) for code in codes}

    def degree(_: Moves, happened: Happened) -> float:
        return 1.0 if any(k == kind and (not wanted or code in wanted) for k, code in happened) else math.nan

    return Clause((), degree)


def _clause(name: str, predicate: Sequence[str]) -> Clause:
    index = _known(name)
    match list(predicate):
        case ["per", other, ("above" | "below") as way, limit]:
            return Clause((name, other), _ratio(index, _known(other), _sign(way), _number(limit)))
        case [("above" | "below") as way, limit]:
            return Clause((name,), _bound(index, _sign(way), _number(limit)))
        case ["exceeds", limit]:
            return Clause((name,), _excess(index, _number(limit)))
        case [verb] if verb in _VERBS:
            return Clause((name,), _movement(index, verb, ""))
        case [verb, "on", ("one" | "many") as where] if verb in _VERBS:
            if catalogue()[name].dimension == "host":
                raise CauseError(f"{name} has no instances")
            return Clause((name,), _movement(index, verb, where))
    raise CauseError(f"{' '.join(predicate) or 'nothing'!r} is not what a metric can do")


def _movement(index: int, verb: str, where: str) -> Callable[[Moves, Happened], float]:
    def degree(moves: Moves, _: Happened) -> float:
        rise, fall = float(moves.rise[index]), float(moves.fall[index])
        strength = {
            "rises": rise if rise >= fall else 0.0,
            "falls": fall if fall > rise else 0.0,
            "moves": max(rise, fall),
            "steady": max(rise, fall),
            "swings": float(moves.swing[index]),
            "spreads": float(moves.apart[index]),
            "multiplies": rise if rise >= fall else 0.0,
            "vanishes": fall if fall > rise else 0.0,
        }[verb]
        if math.isnan(rise):
            return math.nan
        told = _degree(strength)
        if (where == "one" and not moves.few[index]) or (where == "many" and not moves.many[index]):
            return 0.0
        if verb in ("multiplies", "vanishes"):
            level, usual = float(moves.level[index]), float(moves.usual[index])
            if where == "one" and moves.strongest[index]:
                level, usual = float(moves.seen[index]), float(moves.used[index])
            return min(told, _manifold(level, usual) if verb == "multiplies" else _manifold(usual, level))
        return 1 - told if verb == "steady" else told

    return degree


def _bound(index: int, sign: float, limit: float) -> Callable[[Moves, Happened], float]:
    def degree(moves: Moves, _: Happened) -> float:
        instance = float((moves.high if sign > 0 else moves.low)[index])
        value = float(moves.level[index]) if math.isnan(instance) else instance
        return math.nan if math.isnan(value) else float(sign * (value - limit) > 0)

    return degree


def _excess(index: int, limit: float) -> Callable[[Moves, Happened], float]:
    def degree(moves: Moves, _: Happened) -> float:
        more = float(moves.level[index] - moves.usual[index])
        return math.nan if math.isnan(more) else float(more > limit)

    return degree


def _ratio(part: int, whole: int, sign: float, limit: float) -> Callable[[Moves, Happened], float]:
    def degree(moves: Moves, _: Happened) -> float:
        more = [float(moves.level[i] - moves.usual[i]) for i in (part, whole)]
        if math.isnan(more[0]) or math.isnan(more[1]):
            return math.nan
        if more[1] <= 0:
            return 0.0
        return float(sign * (max(more[0], 0.0) / more[1] - limit) > 0)

    return degree


def _degree(strength: float) -> float:
    return 0.0 if strength <= QUIET else min(1.0, math.log(strength / QUIET) / math.log(LOUD / QUIET))


def _manifold(much: float, little: float) -> float:
    """0 where `much` is up to SEVERAL times `little`, 1 from MANIFOLD times on."""
    if not much > SEVERAL * little:
        return 0.0
    return min(1.0, math.log(much / little / SEVERAL) / math.log(MANIFOLD / SEVERAL)) if little > 0 else 1.0


def _sign(way: str) -> float:
    return 1.0 if way == "above" else -1.0


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CauseError(f"{text} is no number")
    return value
