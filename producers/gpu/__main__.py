"""`python -m producers.gpu`: reads GPUs for the agent that started it, and ends with it."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from typing import Final

from producers.gpu.child import Child, sender
from producers.gpu.wire import orders
from producers.priority import Priority

SET_PDEATHSIG: Final = 1


def main() -> int:
    """Obey the orders on standard input until it ends."""
    # What the library prints must not get between the frames.
    out = os.dup(1)
    os.dup2(2, 1)
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Standard input ends with the parent, too, but nobody looks at it during a call that hangs.
    ctypes.CDLL(None).prctl(SET_PDEATHSIG, signal.SIGKILL)
    line = b""
    while not line.endswith(b"\n"):
        if not (chunk := os.read(0, 1)):
            return 0
        line += chunk
    wanted = orders(line)
    if os.getppid() != wanted.parent:
        return 0
    child = Child(wanted, sender(out))
    try:
        if not child.start():
            return 0
        if wanted.realtime:
            # Only now: bringing up the library may keep a processor for long.
            Priority().go_first()
        while os.read(0, 4096):
            child.cycle()
    except BrokenPipeError:
        pass
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # A thread that waits for events must not keep this process from ending.
    os._exit(status)
