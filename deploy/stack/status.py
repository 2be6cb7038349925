"""`reveal up --status`: what runs in a stack's directory, and how much memory it takes."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from deploy.stack.state import is_locked, read_state, resident_bytes


def show(directory: Path, out: TextIO) -> int:
    """Prints the state of the stack in `directory`; returns 0 when it is ready, 1 when not."""
    state = read_state(directory)
    if state is None or not is_locked(directory):
        print(f"no stack runs in {directory}; start one with: reveal up", file=out)
        return 1
    rows: list[tuple[str, str, int | None, int]] = [("supervisor", state.state, state.pid, 0)]
    rows += [(name, row.state, row.pid, row.restarts) for name, row in state.services.items()]
    print(f"{'service':<12}{'state':<10}{'pid':>8}{'restarts':>10}{'resident MB':>13}", file=out)
    total = 0
    for name, word, pid, restarts in rows:
        # The supervisor may share its session with the shell that started it.
        resident = resident_bytes(pid, session=name != "supervisor") if pid is not None else 0
        total += resident
        print(f"{name:<12}{word:<10}{pid or '-':>8}{restarts:>10}{resident / 1e6:>13.0f}", file=out)
    print(f"{'together':<40}{total / 1e6:>13.0f}", file=out)
    print(f"Kafka {state.kafka}   ClickHouse {state.clickhouse}   logs {directory / 'logs'}", file=out)
    return 0 if state.state == "ready" else 1
