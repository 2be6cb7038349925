"""SIGKILL of the sink at every step of a batch, over and over: nothing is lost and nothing is there twice, in the
tables and in the sums of minutes and hours.

A real sink dies by its own hand, so that the step is known: before the n-th insert of its life, after it, after all of
a batch and before the commit, or after the commit was sent. The processes are forked from one that has loaded
everything, so that a hundred of them start soon.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deploy.kafka.server import LocalKafka
from schemas.settings import ClickHouseSettings, KafkaSettings, WarehouseSettings
from sinks.warehouse.consumer import Sink
from sinks.warehouse.migrate import Layout, apply, migrations
from sinks.warehouse.rollups import HOUR, MINUTE, roll_up
from sinks.warehouse.store import Store
from tests.clickhouse_fixture import ClickHouseProcess
from tests.landing.test_warehouse import Bench, Stream
from tests.streams import wait_for

pytestmark = pytest.mark.stack

KILLS = 100
STEPS = ("before insert", "after insert", "before commit", "after commit")


class Doomed(Store):
    """A store whose process dies at its n-th insert, before or after it."""

    def __init__(self, settings: ClickHouseSettings, step: str, number: int) -> None:
        super().__init__(settings)
        self._step = step
        self._left = number

    def insert(self, table: str, rows: pa.Table) -> None:
        self._left -= 1
        if self._left == 0 and self._step == "before insert":
            os.kill(os.getpid(), signal.SIGKILL)
        super().insert(table, rows)
        if self._left == 0 and self._step == "after insert":
            os.kill(os.getpid(), signal.SIGKILL)


class DoomedSink(Sink):
    """A sink whose process dies around its n-th commit."""

    step = ""
    left = 0

    def _commit(self, *, synchronous: bool = False) -> None:
        self.left -= 1
        if self.left == 0 and self.step == "before commit":
            os.kill(os.getpid(), signal.SIGKILL)
        super()._commit(synchronous=synchronous)
        if self.left == 0 and self.step == "after commit":
            os.kill(os.getpid(), signal.SIGKILL)


def live(bootstrap: str, clickhouse: ClickHouseSettings, group: str, step: str, number: int) -> None:
    """One life of a sink; number 0 lives on."""
    store = Doomed(clickhouse, step, number)
    # Small batches: many steps in a short life.
    settings = WarehouseSettings(group=group, batch_rows=3_000, batch_s=0.05, listen="")
    sink = DoomedSink(KafkaSettings(bootstrap=bootstrap), settings, store, stop=threading.Event())
    sink.step, sink.left = step, number if "commit" in step else 0
    sink.run()


@pytest.mark.timeout(600)
def test_a_hundred_kills_at_every_step(broker: LocalKafka, clickhouse: ClickHouseProcess, tmp_path: Path) -> None:
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([__name__])
    bench = Bench(broker, clickhouse, tmp_path)
    layout = Layout(bench.name)
    apply(bench.store, migrations(), layout)
    # What is there twice is to stay.
    bench.store.command(f"SYSTEM STOP MERGES {bench.name}.telemetry_log")

    def start(step: str, number: int) -> BaseProcess:
        process = forks.Process(target=live, args=(broker.bootstrap, bench.settings, bench.name, step, number))
        process.start()
        return process

    died: Counter[str] = Counter()
    process: Any = None
    try:
        with Stream(bench, hosts=2, pause_s=0.1) as stream:
            wait_for(lambda: stream.seconds > 2, "something to store")
            for kill in range(KILLS):
                step = STEPS[kill % len(STEPS)]
                number = 1 + kill // len(STEPS) % 9 if "insert" in step else 1 + kill // len(STEPS) % 2
                process = start(step, number)
                process.join(40)
                assert process.exitcode == -signal.SIGKILL, f"{step} {number}: ended with {process.exitcode}"
                died[step] += 1
                if kill % 10 == 0:
                    # Sums over what is half there are made right by the next ones.
                    roll_up(bench.store, MINUTE)
                    roll_up(bench.store, HOUR)
        process = start("", 0)
        bench.expect(stream.expected())
        assert died == dict.fromkeys(STEPS, KILLS // len(STEPS))
        time.sleep(1.1)  # sums go up to the last whole second of the server's clock
        roll_up(bench.store, MINUTE)
        roll_up(bench.store, HOUR)
        exact = bench.rows("SELECT sum(samples), sum(toFloat64(mean) * samples), min(min), max(max) FROM telemetry")
        assert exact[0][0] > 0
        for view in ("telemetry_minute", "telemetry_hour"):
            sums = bench.rows(f"SELECT sum(samples), sum(toFloat64(mean) * samples), min(min), max(max) FROM {view}")
            assert sums[0] == (exact[0][0], pytest.approx(exact[0][1], rel=1e-6), *exact[0][2:])
        # The test is one: much was stored twice.
        assert bench.rows("SELECT count() > (SELECT count() FROM telemetry) FROM telemetry_log") == [(1,)]
    finally:
        if process is not None and process.is_alive():
            process.kill()
            process.join()
        bench.close()
