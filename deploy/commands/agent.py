"""`reveal agent`: samples this machine and publishes its telemetry; `--once` shows one sample instead."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import resource
import sys
from collections.abc import Sequence
from typing import Final

from deploy import logs
from deploy.ready import ReadyFile
from deploy.signals import stop_flag
from schemas.settings import AgentSettings, KafkaSettings, load

HELP: Final = "sample this machine and publish its telemetry"

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
    _open_more_files()
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
    from producers.clock import SystemClock  # noqa: PLC0415
    from producers.service import Service  # noqa: PLC0415

    told_to_stop = stop_flag()
    Service(settings, kafka.client(), SystemClock(), ready.beat).run(told_to_stop)
    return 0


def _open_more_files() -> None:
    """Counters of a hundred cores take thousands of descriptors; the usual soft limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Where even this is forbidden, the sources that come too late say so.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _once(settings: AgentSettings, *, as_json: bool) -> int:
    from producers.clock import SystemClock  # noqa: PLC0415
    from producers.glance import glance, remarks  # noqa: PLC0415
    from producers.namespaces import container_notes  # noqa: PLC0415
    from producers.watch import new_watch  # noqa: PLC0415
    from producers.wiring import enabled, new_frame  # noqa: PLC0415

    clock = SystemClock()
    frame = new_frame(settings, clock)
    values = glance(frame, clock)
    lines = remarks(frame, values, enabled(settings.disable))
    lines += [f"{name}: switched off by the setting `disable`" for name in settings.disable]
    lines += container_notes(settings.procfs)
    watch = new_watch(frame.host, clock)
    watch.start()
    if watch.problem:
        lines.append(f"kernel log: {watch.problem}")
    watch.close()
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
