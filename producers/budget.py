"""The agent's budget: what it may take of a machine that belongs to others, and what it gives up when it takes more."""

from __future__ import annotations

import gc
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from producers.feed import NORMAL, SHED, SLOWED
from producers.frame import Frame

log = logging.getLogger(__name__)

SECOND_NS: Final = 1_000_000_000
LOOK_S: Final = 5.0
WINDOW_S: Final = 60.0
CALM_S: Final = 300.0
LONGEST_CALM_S: Final = 86_400.0
HEADROOM: Final = 0.8
"""What is given back must leave the agent below this share of its budget."""
MATTERS: Final = 0.05
"""A collector with less than this share of what all collectors cost is not worth giving up."""
ESSENTIAL: Final = frozenset({"agent", "diskstats", "loadavg", "meminfo", "netdev", "pressure", "stat"})
"""Never given up: without them a host cannot be judged at all, and they cost little."""
WORDS: Final = {NORMAL: "back as configured", SLOWED: "slowed down", SHED: "switched off"}


@dataclass(slots=True)
class Debt:
    """A step down of a collector: its level and what it cost a second before, and when it may be taken back."""

    name: str
    level: int
    cost: float
    calm_s: float
    retry_ns: int


class Budget:
    """Keeps a frame within `pct` % of one core over a minute and `mb` MB resident; 0 is no limit.

    The budget is exceeded as soon as the agent has used what it may use in a whole window, however long that took: a
    collector that runs wild is found in seconds. Then one collector is slowed down, the one whose values are dearest
    among those that matter; when all of them are, one is shed. What follows is given a fresh window. After a calm time
    the one that was given up last comes back by one step, if there is room for it; the calm time doubles for one that
    had to be given up again.

    usage  processor time so far, s, and resident memory, kB
    """

    def __init__(
        self,
        frame: Frame,
        pct: float,
        mb: float,
        usage: Callable[[], tuple[float, float]],
        *,
        look_s: float = LOOK_S,
        window_s: float = WINDOW_S,
        calm_s: float = CALM_S,
    ) -> None:
        self._frame = frame
        self._pct = pct
        self._mb = mb
        self._usage = usage
        self._look_ns = round(look_s * SECOND_NS)
        self._window_s = window_s
        self._calm_s = calm_s
        self._next_ns = 0
        # Of each look in the window: time, processor time of the agent and of each collector.
        self._looks: deque[tuple[int, float, Mapping[str, float]]] = deque()
        self._debts: list[Debt] = []
        self._patience: dict[str, float] = {}
        self._helpless = ""

    def look(self, now_ns: int) -> None:
        """Judge, if it is time to: to be called about once a second with the monotonic time."""
        if now_ns < self._next_ns or not (self._pct or self._mb):
            return
        self._next_ns = now_ns + self._look_ns
        cpu_s, memory_kb = self._usage()
        self._looks.append((now_ns, cpu_s, self._frame.costs()))
        while len(self._looks) > 2 and now_ns - self._looks[1][0] >= self._window_s * SECOND_NS:
            self._looks.popleft()
        since_ns, before_s, _ = self._looks[0]
        elapsed_s, spent_s = (now_ns - since_ns) / SECOND_NS, cpu_s - before_s
        if elapsed_s <= 0:
            return
        pct, mb = 100 * spent_s / elapsed_s, memory_kb * 1024 / 1e6
        figures = f"{pct:.2f} % of a core over {elapsed_s:.0f} s, {mb:.0f} MB resident"
        if self._pct and spent_s > self._pct / 100 * self._window_s:
            self._give_up(now_ns, elapsed_s, f"{figures}; the budget is {self._pct:g} %", memory=False)
        elif self._mb and mb > self._mb and elapsed_s >= self._window_s:
            gc.collect()
            self._give_up(now_ns, elapsed_s, f"{figures}; the budget is {self._mb:g} MB", memory=True)
        elif elapsed_s >= self._window_s:
            self._helpless = ""
            self._bring_back(now_ns, pct, mb, figures)

    def _give_up(self, now_ns: int, elapsed_s: float, figures: str, *, memory: bool) -> None:
        rates = self._rates(elapsed_s)
        levels, widths = self._frame.levels(), self._frame.widths()
        name = self._dearest(rates, levels, widths, memory=memory)
        if not name:
            if not self._helpless:
                self._helpless = figures
                log.warning("over the budget, and no collector is worth giving up: %s", figures)
            self._start(now_ns)
            return
        level = SHED if memory else levels[name] + 1
        calm_s = min(self._patience.get(name, self._calm_s / 2) * 2, LONGEST_CALM_S)
        self._patience[name] = calm_s
        self._debts.append(Debt(name, levels[name], rates[name], calm_s, now_ns + round(calm_s * SECOND_NS)))
        why = f"{figures}; it took {100 * rates[name]:.2f} % for {widths[name]} values"
        self._move(now_ns, name, level, why)

    def _dearest(
        self, rates: Mapping[str, float], levels: Mapping[str, int], widths: Mapping[str, int], *, memory: bool
    ) -> str:
        """The collector to give up next, or nothing. Memory goes with the number of values, and is not freed by
        reading them less often.
        """
        able = [name for name, level in levels.items() if level != SHED and name not in ESSENTIAL]
        if memory:
            return max(able, key=lambda name: widths[name], default="")
        worth = MATTERS * sum(rates.values())
        able = [name for name in able if rates[name] > worth]
        # Slowing a collector down costs detail, shedding it costs sight: all that matter are slowed down first.
        lowest = min((levels[name] for name in able), default=NORMAL)
        able = [name for name in able if levels[name] == lowest]
        return max(able, key=lambda name: rates[name] / max(widths[name], 1), default="")

    def _bring_back(self, now_ns: int, pct: float, mb: float, figures: str) -> None:
        if not self._debts or self._debts[-1].retry_ns > now_ns:
            return
        debt = self._debts[-1]
        room = not self._pct or pct + 100 * debt.cost < HEADROOM * self._pct
        if not room or (self._mb and mb > HEADROOM * self._mb):
            return
        self._debts.pop()
        if self._debts:
            below = self._debts[-1]
            below.retry_ns = max(below.retry_ns, now_ns + round(below.calm_s * SECOND_NS))
        self._move(now_ns, debt.name, debt.level, figures)

    def _move(self, now_ns: int, name: str, level: int, why: str) -> None:
        worse = level > self._frame.levels()[name]
        self._frame.throttle(name, level)
        every_ms = self._frame.every()[name]
        pace = "" if level == SHED else f", read every {every_ms} ms"
        text = f"{name}: {WORDS[level]}{pace}: {why}"
        log.warning(text)
        self._frame.host.notices.add(
            "collector_shed" if worse else "collector_back",
            self._frame.subsystem(name),
            text,
            severity="warning" if worse else "info",
            instance=name,
        )
        self._start(now_ns)

    def _start(self, now_ns: int) -> None:
        """Begin a fresh window."""
        self._looks.clear()
        self._next_ns = now_ns

    def _rates(self, elapsed_s: float) -> dict[str, float]:
        """What each collector costs, s/s, over the window."""
        before, after = self._looks[0][2], self._looks[-1][2]
        return {name: (cost - before.get(name, 0.0)) / elapsed_s for name, cost in after.items()}
