"""All benchmarks, one after the other, each in a process of its own: `make bench`."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

BENCHMARKS: Final = (
    "agent_cpu",
    "gpu_cycle",
    "wire_bytes",
    "pipeline",
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
    for name in BENCHMARKS:
        print(f"\n{name}: python -m tests.benchmarks.{name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
