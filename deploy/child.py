"""Becomes another program that cannot outlive its parent: `python child.py PARENT_PID SIGNAL PROGRAM ARGUMENT...`.

The kernel sends SIGNAL to this process when the thread that started it ends, however it ends; start it from a main
thread. Imports no more than it needs and no other file of the project, because every service waits for it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, death, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, death, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit(1)  # it died before the kernel knew of our wish
    # The supervisor waits for signals by blocking them, and children inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execv(program[0], program)  # noqa: S606 - becoming it is the point


if __name__ == "__main__":
    main()
