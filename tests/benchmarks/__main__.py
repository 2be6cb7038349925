"""All benchmarks, one after the other, each in a process of its own with one thread for linear algebra, as a worker has
it: `make bench`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

BENCHMARKS: Final = (
    "agent_cpu",
    "gpu_cycle",
    "wire_bytes",
    "pipeline",
    "worker --bare --backlog",
    "worker --bare",
    "fleet_faults",
    "state",
    "warehouse_rows",
    "latency",
    "adaptive",
    "agent_memory",
)


def main() -> int:
    """Run them; exit status 1 when one of them failed."""
    failed: list[str] = []
    environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    for command in BENCHMARKS:
        print(f"\npython -m tests.benchmarks.{command}", flush=True)
        argv = [sys.executable, "-m", *f"tests.benchmarks.{command}".split()]
        if subprocess.run(argv, env=environ, check=False).returncode:
            failed.append(command)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
