"""`reveal agent`: samples this machine and publishes its telemetry; `--once` shows one sample instead."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from deploy import logs
from deploy.ready import ReadyFile
from deploy.signals import stop_flag
from schemas.settings import AgentSettings, KafkaSettings, load

HELP: Final = "sample this machine and publish its telemetry"
FLUSH_S: Final = 5.0
NO_GPU: Final = "gpu: no collector in this version"

log = logging.getLogger("reveal.agent")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "--once", action="store_true", help="print one sample of every channel and exit; needs no Kafka"
    )
    parser.add_argument("--json", action="store_true", help="with --once: a JSON list of objects")


def run(args: argparse.Namespace) -> int:
    """Publish until SIGTERM or SIGINT; or print one sample."""
    settings = load(AgentSettings, args.environ, args.file)
    # Linear algebra is not what the agent does: no pool of threads, one a core, for it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if args.once:
        return _once(settings, as_json=args.json)
    if args.json:
        print("reveal agent: --json goes with --once", file=sys.stderr)
        return 2
    kafka = load(KafkaSettings, args.environ, args.file)
    logs.configure(args.environ)
    for part in (settings, kafka):
        log.info(part.describe())
    return _publish(settings, kafka, ReadyFile(args.environ))


def _publish(settings: AgentSettings, kafka: KafkaSettings, ready: ReadyFile) -> int:
    from producers.agent import Agent  # noqa: PLC0415
    from producers.clock import SystemClock  # noqa: PLC0415
    from producers.publisher import Publisher  # noqa: PLC0415
    from producers.wiring import new_frame  # noqa: PLC0415
    from schemas.records import Telemetry  # noqa: PLC0415

    told_to_stop = stop_flag()
    clock = SystemClock()
    publisher = Publisher(kafka.client(), settings.queue_mb)
    frame = new_frame(settings, clock, lost=publisher.lost)
    log.info(NO_GPU)

    def emit(records: Sequence[Telemetry]) -> None:
        for record in records:
            publisher.publish(record)
        publisher.poll()
        ready.beat()

    agent = Agent(frame, clock, emit)
    agent.run(told_to_stop)
    frame.close()
    left = publisher.flush(FLUSH_S)
    counts = publisher.counts
    log.info(
        "stopped: %d samples, %d missed; %d messages delivered, %d failed, %d dropped, %d not delivered in time",
        agent.samples,
        frame.missed,
        counts.delivered,
        counts.failed,
        counts.dropped,
        left,
    )
    return 0


def _once(settings: AgentSettings, *, as_json: bool) -> int:
    from producers.clock import SystemClock  # noqa: PLC0415
    from producers.glance import glance, remarks  # noqa: PLC0415
    from producers.wiring import enabled, new_frame  # noqa: PLC0415

    clock = SystemClock()
    frame = new_frame(settings, clock)
    values = glance(frame, clock)
    lines = remarks(frame, values, enabled(settings.disable))
    lines += [f"{name}: switched off by the setting `disable`" for name in settings.disable]
    lines.append(NO_GPU)
    frame.close()
    if as_json:
        rows = [
            {"metric": value.metric, "instance": value.instance, "unit": value.unit, "value": value.value}
            for value in values
        ]
        print(json.dumps(rows, indent=1, allow_nan=False))
        print("\n".join(lines), file=sys.stderr)
        return 0
    _print_table([(value.metric, value.instance, f"{value.value:,.6g}", value.unit) for value in values], lines)
    return 0


def _print_table(rows: Sequence[tuple[str, str, str, str]], lines: Sequence[str]) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=f"{len(rows)} channels", box=None, header_style="bold")
    for name in ("metric", "instance", "value", "unit"):
        table.add_column(name, justify="right" if name == "value" else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console()
    console.print(table)
    console.print()
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
