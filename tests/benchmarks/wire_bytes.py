"""What the agent sends: bytes a host and second, after compression.

    python -m tests.benchmarks.wire_bytes [--seconds N] [--json]

Samples this machine at 100 ms and compresses each encoded message by itself with zstd, level 3, which is the client's
default. The client compresses what waits in one batch together, so the real figure is a little lower.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Final

import cramjam

from producers.agent import Agent
from producers.clock import SystemClock
from producers.wiring import new_frame
from schemas.codec import encode
from schemas.records import Telemetry
from schemas.settings import AgentSettings

LEVEL: Final = 3
BUDGET_BYTES: Final = 3000.0


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures; exit status 1 when the budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of the measurement (default: 20)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    raw: dict[str, int] = {}
    packed: dict[str, int] = {}
    channels: dict[str, int] = {}
    seconds = 0.0

    def emit(records: Sequence[Telemetry]) -> None:
        nonlocal seconds
        seconds += records[0].count * records[0].period_ms / 1000
        for record in records:
            data = encode(record)
            raw[record.subsystem] = raw.get(record.subsystem, 0) + len(data)
            packed[record.subsystem] = packed.get(record.subsystem, 0) + len(cramjam.zstd.compress(data, LEVEL))
            channels[record.subsystem] = sum(matrix.shape[1] for matrix in record.metrics.values())

    clock = SystemClock()
    frame = new_frame(AgentSettings(), clock)
    end = time.monotonic() + args.seconds + 1
    Agent(frame, clock, emit).run(lambda: time.monotonic() >= end)
    frame.close()
    rate = sum(packed.values()) / seconds
    result = {
        "seconds": seconds,
        "channels": sum(channels.values()),
        "raw_bytes_per_second": sum(raw.values()) / seconds,
        "bytes_per_second": rate,
        "budget": BUDGET_BYTES,
        "by_subsystem": {name: size / seconds for name, size in packed.items()},
    }
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print(
            f"{result['channels']} channels at 100 ms: {rate:.0f} bytes a second after zstd"
            f" ({result['raw_bytes_per_second']:.0f} before); budget {BUDGET_BYTES:.0f}"
        )
        print("  " + ", ".join(f"{name} {size / seconds:.0f}" for name, size in packed.items()))
    return 0 if rate <= BUDGET_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
