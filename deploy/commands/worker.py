"""`reveal worker`: one stream worker."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
from typing import Final

from deploy import logs
from deploy.ready import ReadyFile
from deploy.signals import SIGNALS, end_soon
from schemas.settings import KafkaSettings, PipelineSettings, WorkerSettings, load

log = logging.getLogger("reveal.worker")

HELP: Final = "score telemetry: windows, features, detectors, attribution, episodes"
COLLECT_AFTER: Final = (50_000, 20, 100)
"""Objects, and collections of the generation before, after which each generation is collected."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares no arguments: all is settings."""


def run(args: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT. Exit status 1 when the worker ended by itself."""
    # One thread a worker: a worker is scaled by more of them, and must not disturb the host it shares.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    kafka = load(KafkaSettings, args.environ, args.file)
    worker = load(WorkerSettings, args.environ, args.file)
    pipeline = load(PipelineSettings, args.environ, args.file)
    logs.configure(args.environ)
    for settings in (kafka, worker, pipeline):
        log.info(settings.describe())
    return _run(kafka, worker, pipeline, ReadyFile(args.environ))


def _run(kafka: KafkaSettings, worker: WorkerSettings, pipeline: PipelineSettings, ready: ReadyFile) -> int:
    log.info("loading the pipeline, which is compiled at the first start")
    import uvloop  # noqa: PLC0415

    from stream_processors import forest  # noqa: PLC0415
    from stream_processors.faust_app import Worker  # noqa: PLC0415

    forest.warm_up()
    # Messages come and go by the thousand and are in no circles; the collector would look at all hosts again and again.
    gc.set_threshold(*COLLECT_AFTER)

    async def main() -> bool:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def told() -> None:
            end_soon()
            stop.set()

        for number in SIGNALS:
            loop.add_signal_handler(number, told)
        return await Worker(kafka, worker, pipeline).run(stop, ready.beat)

    return 0 if uvloop.run(main()) else 1
