"""A simulated fleet at work: its pace, and where records, events and truths go."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from producers.fleet.simulation import Fleet
from producers.publisher import Publisher
from schemas.recording import RecordingWriter
from schemas.records import Event, Telemetry
from schemas.settings import ClickHouseSettings, KafkaSettings
from schemas.truth import Truth

FLUSH_S: Final = 60.0
RECORD_FLUSH_S: Final = 5.0
REPORT_S: Final = 10.0
LATE_S: Final = 2.0


class Outputs:
    """What takes records, events and truths, and what is to be done once a second. `stack` closes what was opened.

    `finish` waits for deliveries and says how many there were; `failed` is whether any failed.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.records: list[Callable[[Telemetry], None]] = []
        self.events: list[Callable[[Event], None]] = []
        self.truths: list[Callable[[Sequence[Truth]], None]] = []
        self.seconds: list[Callable[[], None]] = []
        self.finish: Callable[[], str] = lambda: ""
        self.failed = False
        self._stack = stack

    def to_kafka(self, kafka: KafkaSettings, queue_mb: int) -> None:
        """Publish records and events. Raises KafkaUnreachableError."""
        publisher = Publisher(kafka.client(), queue_mb)
        publisher.check(10.0)
        self.records.append(publisher.publish_all)
        self.events.append(publisher.publish_all)
        self.seconds.append(publisher.poll)

        def finish() -> str:
            left = publisher.flush(FLUSH_S)
            publisher.close(1.0)
            self.failed |= bool(left or publisher.counts.failed)
            return f"{publisher.counts.delivered} messages delivered" + (f", {left} not" if left else "")

        self.finish = finish

    def to_recording(self, directory: Path) -> None:
        """Write a recording. Raises RecordingError."""
        writer = self._stack.enter_context(RecordingWriter(directory))
        self.records.append(writer.write)
        flushed = time.monotonic()

        def flush() -> None:
            nonlocal flushed
            if time.monotonic() - flushed > RECORD_FLUSH_S:
                flushed = time.monotonic()
                writer.flush()

        self.seconds.append(flush)

    def to_file(self, path: Path) -> None:
        """Write truths as lines of JSON, each at once."""
        file = self._stack.enter_context(path.open("w", encoding="utf-8"))

        def write(truths: Sequence[Truth]) -> None:
            file.writelines(f"{truth.line()}\n" for truth in truths)
            file.flush()

        self.truths.append(write)

    def to_clickhouse(self, settings: ClickHouseSettings) -> None:
        """Store truths while ClickHouse answers; when it does not, that is said once and the simulation goes on."""
        from sinks.warehouse.migrate import Layout, MigrationError, apply, migrations  # noqa: PLC0415
        from sinks.warehouse.store import Store, StoreError  # noqa: PLC0415
        from sinks.warehouse.truth import insert_truth  # noqa: PLC0415

        # What goes wrong is told here, once.
        for name in ("clickhouse_connect", "urllib3"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        store = Store(settings, timeout_s=5)
        self._stack.callback(store.close)
        try:
            apply(store, migrations(), Layout(store.database, store.cluster))
        except (StoreError, MigrationError) as error:
            print(f"the truth does not go to ClickHouse: {error}", file=sys.stderr)
            return
        waiting: list[Truth] = []
        said = False

        def insert(truths: Sequence[Truth]) -> None:
            nonlocal said
            waiting.extend(truths)
            try:
                insert_truth(store, waiting)
            except StoreError as error:
                if not said:
                    print(f"the truth waits for ClickHouse: {error}", file=sys.stderr)
                said = True
                return
            waiting.clear()
            said = False

        self.truths.append(insert)


def simulate(fleet: Fleet, outputs: Outputs, seconds: int | None, speed: float, stopped: Callable[[], bool]) -> bool:
    """Run `fleet` for `seconds` (None is for ever), at `speed` times real time (0 is as fast as it goes) or until
    `stopped`; whether everything arrived.
    """
    began = time.monotonic()
    progress = Progress(began, len(fleet.hosts), speed)
    try:
        # What happens in a second can be told when the second is over, as by an agent.
        while not stopped() and (seconds is None or progress.seconds < seconds):
            if speed > 0 and not _wait(began + (progress.seconds + 1) / speed, stopped):
                break
            _second(fleet, outputs, progress)
    finally:
        left = fleet.cut_off(float(progress.seconds))
        for keep in outputs.truths:
            keep(left)
    told = outputs.finish()
    took = time.monotonic() - began
    print(
        f"{progress.seconds} s of {len(fleet.hosts)} hosts in {took:.1f} s: {progress.records} records,"
        f" {progress.faults} faults" + (f"; {told}" if told else "")
    )
    return not outputs.failed


def _second(fleet: Fleet, outputs: Outputs, progress: Progress) -> None:
    """Simulate a second and hand it on."""
    index = progress.seconds
    # First the telemetry: random faults of the second are made with it.
    for record in fleet.records(index):
        for take in outputs.records:
            take(record)
        progress.records += 1
    for event in fleet.events(index):
        for tell in outputs.events:
            tell(event)
    if truths := fleet.truths(index):
        for keep in outputs.truths:
            keep(truths)
        progress.faults += sum(truth.kind == "fault" and truth.state == "begun" for truth in truths)
        _say(truths)
    for each in outputs.seconds:
        each()
    progress.seconds += 1
    progress.report()


@dataclass(slots=True)
class Progress:
    """How far it is, told every ten seconds."""

    began: float
    hosts: int
    speed: float
    seconds: int = 0
    records: int = 0
    faults: int = 0
    reported: float = 0.0

    def report(self) -> None:
        now = time.monotonic()
        if now - max(self.reported, self.began) < REPORT_S:
            return
        self.reported = now
        late = now - self.began - self.seconds / self.speed if self.speed > 0 else 0.0
        words = f", {late:.1f} s late: too many hosts for this machine" if late > LATE_S else ""
        print(
            f"{self.seconds} s of {self.hosts} hosts, {self.records} records, {self.faults} faults{words}",
            file=sys.stderr,
        )


def _wait(until: float, stopped: Callable[[], bool]) -> bool:
    """Sleep until then; False when told to stop before."""
    while (left := until - time.monotonic()) > 0:
        if stopped():
            return False
        time.sleep(min(left, 0.1))
    return True


def _say(truths: Sequence[Truth]) -> None:
    for truth in truths:
        if truth.kind == "fault":
            where = f" ({truth.instance})" if truth.instance else ""
            when = datetime.fromtimestamp(truth.onset_ns / 1e9 if truth.state == "begun" else truth.end_ns / 1e9, UTC)
            print(f"{when:%H:%M:%S} {truth.host}: {truth.name}{where} {truth.state}", file=sys.stderr)
