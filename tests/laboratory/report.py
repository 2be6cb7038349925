"""What the laboratory prints at its end."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.laboratory.judge import Outcome, Quiet, summary
from tests.laboratory.table import FAULTS, Place


def show(console: Console, outcomes: Sequence[Outcome], calm: Quiet) -> None:
    """The table of faults, and what they come to."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title, right in (("fault", 0), ("delay", 1), ("subsystem", 0), ("cause", 0), ("rank", 1), ("peak", 1)):
        table.add_column(title, justify="right" if right else "left", no_wrap=True)
    table.add_column("other candidates, or why not", overflow="fold")
    for outcome in outcomes:
        table.add_row(outcome.trial.fault.name, *_cells(outcome))
    console.print()
    console.print(table)
    console.print()
    found = summary(outcomes)
    console.print(f"opened            {found.opened} of {found.acted} faults that were acted out")
    console.print(f"median delay      {'-' if found.median_delay is None else f'{found.median_delay:.1f} s'}")
    console.print(f"right subsystem   {_percent(found.subsystems)}")
    console.print(f"right cause       {_percent(found.causes)}")
    console.print(f"quiet             {calm.hours * 60:.1f} min, {calm.false_episodes} false episodes")


def show_faults(console: Console, place: Place | None = None) -> None:
    """The table of faults itself."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("fault", "subsystem", "cause", "what it is"):
        table.add_column(title, no_wrap=title != "what it is")
    for fault in FAULTS.values():
        cause = fault.cause or "-"
        if fault.blind_cause is not None:
            cause += f" (else {fault.blind_cause})"
        table.add_row(fault.name, fault.subsystem or "-", cause, fault.does)
    console.print(table)


def _cells(outcome: Outcome) -> tuple[str | Text, ...]:
    trial, episode = outcome.trial, outcome.episode
    if trial.skipped:
        return "", "", "", "", "", Text(f"skipped: {trial.skipped}", style="yellow")
    if episode is None:
        missed = f"expected {trial.fault.subsystem}, {trial.cause}"
        if (before := outcome.open_before) is not None:
            missed += f"; an episode of {before.subsystem} was open already"
        return Text("missed", style="red"), "", "", "", "", missed
    others = sorted((episode.candidates or {}).items(), key=lambda item: -item[1])
    candidates = ", ".join(f"{name} {fit:.2f}" for name, fit in others if name != episode.cause)
    return (
        f"{outcome.delay:.1f} s",
        _verdict(episode.subsystem, trial.fault.subsystem),
        _verdict(episode.cause, trial.cause),
        str(outcome.evidence_rank or "-"),
        f"{episode.peak_severity:.1f}",
        candidates,
    )


def _verdict(said: str | None, expected: str | None) -> Text:
    if said == expected:
        return Text(said or "unknown", style="green")
    return Text(f"{said or 'unknown'}, not {expected or 'unknown'}", style="red")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
