"""Channels of the receivers in a routing, with their secrets."""

from __future__ import annotations

from collections.abc import Mapping

from sinks.alerts.channels import CHANNELS
from sinks.alerts.channels.base import Channel, Surroundings
from sinks.alerts.channels.options import OptionError, resolve_options
from sinks.alerts.routing import Routing
from sinks.alerts.routing_file import RoutingError


def build_channels(routing: Routing, environ: Mapping[str, str], surroundings: Surroundings) -> dict[str, Channel]:
    """A channel a receiver. Raises RoutingError for a secret that is not there, or a package that is missing."""
    channels = {}
    for name, receiver in routing.receivers.items():
        kind = CHANNELS[receiver.channel]
        try:
            channels[name] = kind.build(resolve_options(kind.options, receiver.options, environ), surroundings)
        except OptionError as error:
            raise RoutingError(f"receivers.{name}.{error}") from None
    return channels
