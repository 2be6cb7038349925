"""`reveal warehouse`: the ClickHouse sink."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from importlib import metadata
from typing import Final

HELP: Final = "write what the topics carry into ClickHouse"
UPKEEP_S: Final = 300.0
JOIN_S: Final = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "--migrate-only", action="store_true", help="bring the tables up to date, say what was done, and end"
    )


def run(args: argparse.Namespace) -> int:
    """Brings the tables up to date, waiting for ClickHouse as long as it takes, then consumes until SIGTERM.

    Status 1 when the database and this program's migrations do not fit, or Kafka refuses the sink.
    """
    import logging  # noqa: PLC0415
    import sys  # noqa: PLC0415

    from deploy import logs  # noqa: PLC0415
    from deploy.ready import ReadyFile  # noqa: PLC0415
    from deploy.signals import stop_event  # noqa: PLC0415
    from pages.server import Server  # noqa: PLC0415
    from schemas.settings import ClickHouseSettings, KafkaSettings, WarehouseSettings, load  # noqa: PLC0415
    from sinks.warehouse.consumer import Sink, SinkError  # noqa: PLC0415
    from sinks.warehouse.endpoint import site  # noqa: PLC0415
    from sinks.warehouse.excerpt import Excerpt  # noqa: PLC0415
    from sinks.warehouse.migrate import MigrationError, bring_up_to_date  # noqa: PLC0415
    from sinks.warehouse.store import Store  # noqa: PLC0415
    from sinks.warehouse.upkeep import Upkeep  # noqa: PLC0415

    logs.configure(args.environ)
    # Their warnings come at every try and say less than ours.
    for name in ("clickhouse_connect", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)
    log = logging.getLogger("deploy.commands.warehouse")
    kafka = load(KafkaSettings, args.environ, args.file)
    clickhouse = load(ClickHouseSettings, args.environ, args.file)
    settings = load(WarehouseSettings, args.environ, args.file)
    for each in (kafka, clickhouse, settings):
        log.info("%s", each.describe())
    stop = stop_event()
    store = Store(clickhouse)
    with ExitStack() as closing:
        closing.callback(store.close)
        try:
            if not bring_up_to_date(store, settings, stop) or args.migrate_only:
                return 0
            sink = Sink(kafka, settings, store, stop=stop, beat=ReadyFile(args.environ).beat)
            upkeep = Upkeep(
                # Sums of an hour of a whole fleet take their time.
                Store(clickhouse, timeout_s=UPKEEP_S),
                settings,
                Excerpt(kafka, settings.group),
                leads=sink.leads,
                stop=stop,
            )
            if (address := settings.address()) is not None:
                version = metadata.version("reveal")
                try:
                    server = Server(site(lambda: sink.status(version, upkeep.counts)), *address)
                except OSError as error:
                    log.warning("no /metrics: %s cannot be had: %s", settings.listen, error.strerror)
                else:
                    log.info("serving http://%s:%d/metrics", address[0], server.port)
                    closing.callback(server.close)
            upkeep.start()
            closing.callback(upkeep.join, JOIN_S)
            closing.callback(stop.set)
            sink.run()
        except (MigrationError, SinkError) as error:
            print(f"reveal warehouse: {error}", file=sys.stderr)
            return 1
    return 0
