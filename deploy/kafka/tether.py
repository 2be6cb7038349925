"""A child process that does not outlive its parent."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

# Becomes the real command. A parent that died before the kernel was asked is noticed by its id.
SCRIPT: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def tethered(command: Sequence[str]) -> list[str]:
    """The command (absolute path and arguments), for this process to start, made to get SIGTERM when this one dies.

    Even SIGKILL of the parent leaves no broker behind then. Linux counts the thread that started the child as its
    parent: start it from one that lasts. Costs 30 ms.
    """
    return [sys.executable, "-I", "-S", "-c", SCRIPT, str(os.getpid()), *command]
