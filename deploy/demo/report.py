"""What the demo prints of a fault and of what was found of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from deploy.demo.faults import Fault
from deploy.demo.findings import Anomaly
from schemas.records import Evidence

ROWS = 6


@dataclass(frozen=True, slots=True)
class Outcome:
    """A fault that was acted out, and what was found. Times in s since 1970-01-01 UTC.

    anomaly   the episode that belongs to it; None when none does
    readable  when its first row could be read in ClickHouse
    evidence  of the episode, the strongest first
    """

    fault: Fault
    began: float
    ended: float
    anomaly: Anomaly | None = None
    readable: float | None = None
    evidence: tuple[Evidence, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether it was found and attributed to the right subsystem."""
        return self.anomaly is not None and self.anomaly.subsystem in self.fault.subsystems

    @property
    def shortcoming(self) -> str:
        """What was missing, in words; empty when nothing was."""
        if self.anomaly is None:
            return f"{self.fault.title}: no episode started while it ran"
        if not self.passed:
            right = " or ".join(self.fault.subsystems)
            return f"{self.fault.title}: attributed to {self.anomaly.subsystem}, not to {right}"
        return ""


def show_outcome(console: Console, outcome: Outcome) -> None:
    """The report of one fault."""
    fault, anomaly = outcome.fault, outcome.anomaly
    console.print()
    console.rule(f"[bold]{fault.title}", align="left")
    lines = Table.grid(padding=(0, 2))
    lines.add_row("fault", f"{fault.does}, {clock(outcome.began)} to {clock(outcome.ended)} UTC")
    if anomaly is None:
        lines.add_row("found", Text("nothing", style="bold red"))
        console.print(lines)
        return
    opened = f"opened {anomaly.opened - outcome.began:.1f} s after the fault began"
    if outcome.readable is not None:
        opened += f", readable in ClickHouse after {outcome.readable - outcome.began:.1f} s"
    lines.add_row("episode", f"{anomaly.id}, {opened}")
    lines.add_row("", f"{length(anomaly)}; peak severity {anomaly.peak_severity:.1f}")
    right = "right" if outcome.passed else f"wrong: it should be {' or '.join(fault.subsystems)}"
    style = "bold green" if outcome.passed else "bold red"
    lines.add_row("subsystem", Text(f"{anomaly.subsystem} ({right}; {fault.why})", style=style))
    lines.add_row("shares", shares(anomaly))
    lines.add_row("votes", ", ".join(f"{name} {count}" for name, count in sorted(anomaly.votes.items())))
    lines.add_row("in words", Text(anomaly.explanation))
    console.print(Group(lines, Text(), evidence_table(outcome.evidence[:ROWS])))


def evidence_table(rows: Sequence[Evidence]) -> Table:
    """The metrics that speak for an episode. The instance that deviates most has its own figures behind its name."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("metric", "what of it", "observed", "expected", "unit", "deviation", "where"):
        right = title in ("observed", "expected", "deviation")
        table.add_column(title, justify="right" if right else "left", no_wrap=title == "metric")
    for row in rows:
        where = row.instance
        if where and row.instance_observed is not None and row.instance_expected is not None:
            where += f": {number(row.instance_observed)} (usually {number(row.instance_expected)})"
        table.add_row(
            row.metric,
            row.feature,
            number(row.observed),
            number(row.expected),
            row.unit,
            f"{row.deviation:+.0f} σ",
            where,
        )
    return table


def show_others(console: Console, others: Sequence[Anomaly]) -> None:
    """Episodes that belong to no fault of ours: this is a real machine."""
    console.print()
    if not others:
        console.print("No other episode was found while the demo ran.")
        return
    console.print(f"{len(others)} more on this machine while the demo ran, which the demo did not cause on purpose:")
    for anomaly in others:
        console.print(
            f"  {clock(anomaly.start)} UTC  {anomaly.subsystem}, {length(anomaly)}, peak severity "
            f"{anomaly.peak_severity:.1f}: {anomaly.explanation}",
            markup=False,
        )


def length(anomaly: Anomaly) -> str:
    """How long an episode lasted."""
    if anomaly.closed is None:
        return f"still open, {anomaly.windows} anomalous windows"
    return f"lasted {anomaly.closed - anomaly.start:.0f} s, {anomaly.windows} anomalous windows"


def shares(anomaly: Anomaly) -> str:
    """Shares of the subsystems, the largest first."""
    ordered = sorted(anomaly.shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in ordered if share >= 0.005)


def clock(seconds: float) -> str:
    """Time of day, UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M:%S}"


def number(value: float) -> str:
    """Three digits that matter; thousands separated."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
