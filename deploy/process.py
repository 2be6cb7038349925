"""Starting a child process that dies with this one, and saying how a process ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from deploy.stack.errors import StackError

CHILD: Final = Path(__file__).with_name("child.py")


def bound(argv: Sequence[str], death: int) -> list[str]:
    """`argv`, which begins with an absolute path, made to get the signal `death` (0: none) when this process ends,
    however it ends. Linux counts the thread that starts it as its parent: start it from one that lasts.
    """
    # -I and -S: this interpreter lives for 20 ms and needs none of the site packages.
    return [sys.executable, "-I", "-S", str(CHILD), str(os.getpid()), str(int(death)), *argv]


def start_bound(
    argv: Sequence[str],
    environ: Mapping[str, str],
    output: IO[bytes] | None,
    death: int = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """Start `argv` in a session of its own, stdin closed, stdout and stderr to `output` (None: ours).

    It gets the signal `death` (0: none) when the calling thread ends: call from the main thread. A Ctrl-C in the
    terminal does not reach it; whoever started it stops it. Raises StackError for a program that is not there.
    """
    program = shutil.which(argv[0])
    if program is None:
        raise StackError(f"there is no program {argv[0]}")
    return subprocess.Popen(
        bound([program, *argv[1:]], death),
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        start_new_session=True,
    )


def reveal_argv(command: str, *arguments: str) -> tuple[str, ...]:
    """Argument vector of `reveal COMMAND ...` under this interpreter."""
    # -P: a folder `deploy` where the user happens to stand is not ours.
    return (sys.executable, "-P", "-m", "deploy.cli", command, *arguments)


def describe_exit(status: int) -> str:
    """A return code of subprocess in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
