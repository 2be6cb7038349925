"""What is known of a stack from outside: its lock, `stack.json`, and the memory of its processes."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from deploy.stack.errors import StackError

FILE: Final = "stack.json"
LOCK: Final = "stack.lock"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One service: its state in a word, its process id while it runs, how often it was started again."""

    state: str
    pid: int | None
    restarts: int


@dataclass(frozen=True, slots=True)
class StackState:
    """Content of stack.json. state: starting, ready, stopping, stopped, or failed. pid: of the supervisor."""

    state: str
    pid: int
    kafka: str
    clickhouse: str
    directory: str
    services: Mapping[str, ServiceState] = field(default_factory=dict)

    def write(self) -> None:
        """Into its directory, in one step: a reader sees the old state or the new one."""
        path = Path(self.directory) / FILE
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        new.replace(path)


def read_state(directory: Path) -> StackState | None:
    """State of the stack in `directory`; None when none was ever started there or what is there is no state."""
    try:
        content = json.loads((directory / FILE).read_bytes())
        services = {name: ServiceState(**row) for name, row in content.pop("services").items()}
        return StackState(services=services, **content)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """The directory for one supervisor alone. The kernel drops the lock with the process.

    Raises StackError when another one has it, naming its process id.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK).open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StackError(
                f"a stack runs already in {directory} (pid {file.read().strip() or 'unknown'}): "
                f"see `reveal up --status`, end it with Ctrl-C or kill, or give another place with --directory"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def is_locked(directory: Path) -> bool:
    """Whether a supervisor runs in `directory`."""
    try:
        with (directory / LOCK).open("r", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def resident_bytes(pid: int, procfs: Path = Path("/proc"), *, session: bool = True) -> int:
    """Resident memory of process `pid` and, for `session`, of every process of the session it leads.

    Pages that several processes share count in each of them: the sum is what they take together at most.
    """
    total = 0
    for process in procfs.iterdir() if session else (procfs / str(pid),):
        if not process.name.isdigit():
            continue
        try:
            # The command in parentheses may hold spaces: fields count from behind the last one.
            leader = int((process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[3])
            if pid in (leader, int(process.name)):
                total += int((process / "statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            continue  # ended meanwhile
    return total
