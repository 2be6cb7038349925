"""A supervisor in a process of its own, over a table of tiny services, for tests that kill it or its children.

Started as `python supervised.py DIRECTORY`, it reads DIRECTORY/table.json (rows of keyword arguments of ServiceSpec;
argv is appended to this interpreter's) and prints every change as one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import psutil

from deploy.stack.service import ServiceSpec
from deploy.stack.supervisor import Supervisor

# Writes its pid, stops on SIGTERM after a little while, and says so.
STEADY = """
import os, signal, sys, time
from pathlib import Path
place = Path(sys.argv[1])
def stop(*_):
    time.sleep(0.2)
    with place.joinpath("stopped").open("a") as file:
        file.write(sys.argv[2] + "\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
with place.joinpath("began").open("a") as file:
    file.write(sys.argv[2] + "\\n")
print("here is", sys.argv[2], flush=True)
while True:
    if ready := os.environ.get("REVEAL_READY_FILE"):
        Path(ready).touch()
    time.sleep(0.05)
"""


class Supervised:
    """Handle of the supervisor's process. `lines` are the changes so far: (service, text)."""

    def __init__(self, directory: Path, table: list[dict[str, Any]]) -> None:
        self.directory = directory
        directory.joinpath("table.json").write_text(json.dumps(table))
        self.output = directory / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(directory)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
        self.seen: set[int] = set()

    @property
    def lines(self) -> list[tuple[str, str]]:
        whole = self.output.read_text().rpartition("\n")[0]
        return [(row[0], row[1]) for row in map(json.loads, whole.splitlines())]

    def said(self, service: str, text: str) -> bool:
        return any(name == service and text in said for name, said in self.lines)

    def pid(self, service: str) -> int:
        """Of its last start."""
        pids = [int(text.rpartition(" ")[2]) for name, text in self.lines if name == service and "pid" in text]
        self.seen.update(pids)
        return pids[-1]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def until(condition: Callable[[], bool], timeout_s: float = 15) -> None:
    """Polls. Raises AssertionError when the condition does not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def main() -> int:
    directory = Path(sys.argv[1])
    specs = [
        ServiceSpec(**{**row, "argv": (sys.executable, *row["argv"]), "after": tuple(row.get("after", ()))}, environ={})
        for row in json.loads(directory.joinpath("table.json").read_text())
    ]

    def say(service: str, text: str) -> None:
        print(json.dumps([service, text]), flush=True)

    supervisor = Supervisor(specs, directory, say)
    return 0 if supervisor.run() else 1


if __name__ == "__main__":
    sys.exit(main())
