"""`reveal topics`: creates Reveal's topics in Kafka, or brings them to what this version wants."""

from __future__ import annotations

import argparse
import time
from typing import Final

HELP: Final = "create the topics in Kafka, or bring them up to date"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "--timeout", type=float, default=30, metavar="S", help="seconds to wait for Kafka (default: %(default)g)"
    )


def run(args: argparse.Namespace) -> int:
    """Creates what is missing and says what it did. Raises LocalKafkaError."""
    from deploy.kafka.topics import cluster_serves, create_topics  # noqa: PLC0415
    from schemas.settings import KafkaSettings, load  # noqa: PLC0415
    from schemas.topics import topic_table  # noqa: PLC0415

    settings = load(KafkaSettings, args.environ, args.file)
    print(settings.describe(), flush=True)
    table = topic_table(settings.partitions, settings.replication)
    deadline = time.monotonic() + args.timeout
    # In small steps, as a Ctrl-C must wait for the one under way. What is wrong is told by create_topics.
    while not cluster_serves(settings.client()) and time.monotonic() < deadline:
        time.sleep(0.1)
    changes = create_topics(settings.client(), table, timeout_s=max(1, deadline - time.monotonic()))
    for change in changes:
        print(f"{change.name}: {change.action}, {change.detail}")
    print(f"{len(table)} topics, {len(changes)} changed")
    return 0
