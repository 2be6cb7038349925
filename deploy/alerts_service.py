"""The alert service put together: routing, channels, Kafka, the page; and stopped by a signal."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from deploy import logs
from deploy.alerts import give_feedback
from deploy.ready import ReadyFile
from deploy.signals import stop_event
from pages.server import Server
from schemas.settings import AlertsSettings, KafkaSettings, load
from sinks.alerts.channels.base import Surroundings
from sinks.alerts.endpoint import site
from sinks.alerts.engine import Engine
from sinks.alerts.feedback import Links
from sinks.alerts.kafka import Station
from sinks.alerts.receivers import build_channels
from sinks.alerts.routing_file import read_routing
from sinks.alerts.service import Service

LOG = logging.getLogger("deploy.alerts")


def serve(environ: Mapping[str, str], file: Mapping[str, Any]) -> int:
    """Run until SIGTERM or SIGINT. Raises SettingsError, RoutingError and StationError."""
    logs.configure(environ)
    kafka, settings = load(KafkaSettings, environ, file), load(AlertsSettings, environ, file)
    for each in (kafka, settings):
        LOG.info("%s", each.describe())
    routing = read_routing(Path(settings.routing) if settings.routing else None)
    stop = stop_event()
    links = Links(str(settings.feedback_secret), settings.feedback_url)
    ready = ReadyFile(environ)
    station = Station(kafka, settings, beat=ready.beat)
    server: Server | None = None
    try:
        channels = build_channels(routing, environ, Surroundings(time.time_ns, station.produce))
        LOG.info("receivers: %s", ", ".join(f"{each.name} ({each.channel})" for each in routing.receivers.values()))
        engine = partial(Engine, routing, random.SystemRandom().random, links.of)
        service = Service(station, engine, channels, stop=stop, beat=ready.beat)
        if settings.http_port:
            judge = partial(give_feedback, kafka, expected_s=86_400 * settings.expected_days)
            try:
                pages = site(service.status, links, judge)
                server = Server(pages, settings.http_host, settings.http_port)
            except OSError as error:
                where = f"{settings.http_host}:{settings.http_port}"
                LOG.warning("no page at %s: %s; REVEAL_ALERTS_HTTP_PORT sets another", where, error.strerror)
        service.run()
    finally:
        if server is not None:
            server.close()
        station.close()
    return 0
