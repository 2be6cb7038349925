"""`reveal backtest`: what the workers would have said of a recording."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from schemas.settings import PipelineSettings, load

HELP: Final = "run the pipeline over a recording and show what it finds"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("recording", type=Path, help="directory that `reveal record` wrote")
    parser.add_argument("--json", action="store_true", help="print every verdict and episode as a line of JSON")


def run(args: argparse.Namespace) -> int:
    """Print what is found. Raises RecordingError when the directory holds no recording."""
    from schemas.recording import read_recording  # noqa: PLC0415
    from schemas.records import DeadLetter, Episode, StateRecord, Verdict  # noqa: PLC0415
    from stream_processors.backtest import backtest  # noqa: PLC0415

    settings = load(PipelineSettings, args.environ, args.file)
    counts: Counter[str] = Counter()
    states: Counter[str] = Counter()
    episodes: dict[str, Episode] = {}
    dead: Counter[str] = Counter()
    for result in backtest(read_recording(args.recording), settings, counts):
        if isinstance(result, StateRecord):
            continue
        if isinstance(result, Verdict):
            states[result.state] += 1
        elif isinstance(result, Episode):
            episodes[result.id] = result
        elif isinstance(result, DeadLetter):
            dead[result.reason] += 1
        if args.json and not isinstance(result, DeadLetter):
            print(json.dumps({"record": type(result).__name__.lower(), **dataclasses.asdict(result)}))
    if not args.json:
        _show(states, list(episodes.values()), counts, dead)
    return 0


def _show(states: Counter[str], episodes: list[Any], counts: Counter[str], dead: Counter[str]) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console(file=sys.stdout)
    console.print(f"{states.total()} windows: {_told(states)}")
    console.print(f"{counts.total()} messages: {_told(counts)}")
    if dead:
        console.print(f"would be dead letters: {_told(dead)}")
    if not episodes:
        console.print("no episode")
        return
    table = Table(
        "start (UTC)", "host", "s", "subsystem", "peak severity", "what", title="episodes", title_justify="left"
    )
    for episode in episodes:
        start = datetime.fromtimestamp(episode.start_ns / 1e9, UTC)
        end = episode.closed_ns or episode.updated_ns
        table.add_row(
            f"{start:%Y-%m-%d %H:%M:%S}",
            episode.host,
            f"{(end - episode.start_ns) / 1e9:.0f}" + ("" if episode.closed_ns else "+"),
            episode.subsystem,
            f"{episode.peak_severity:.1f}",
            episode.explanation.removeprefix(f"{episode.host}: "),
        )
    console.print(table)


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.most_common()) or "none"
