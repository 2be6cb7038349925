"""Ways to tell a receiver, a file each: options, a class with `send`, and a row for the table.

Belongs here: how an alert looks on the other side, and which failure means what. May not: deciding whether to tell,
trying again, threads. To add one: a file, a line in CHANNELS, a line in the contract suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sinks.alerts.channels import alertmanager, apprise, email, kafka, log, pagerduty, slack, webhook
from sinks.alerts.channels.base import Kind

CHANNELS: Final[Mapping[str, Kind]] = {
    "log": log.KIND,
    "kafka": kafka.KIND,
    "alertmanager": alertmanager.KIND,
    "webhook": webhook.KIND,
    "slack": slack.KIND,
    "pagerduty": pagerduty.KIND,
    "email": email.KIND,
    "apprise": apprise.KIND,
}
