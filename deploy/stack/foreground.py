"""The stack in the foreground of a terminal: checked, started, shown line by line, recorded in stack.json."""

from __future__ import annotations

import os
import shlex
import time
from typing import TextIO

from deploy.kafka.progress import LineProgress
from deploy.stack.ports import check_ports
from deploy.stack.services import Stack
from deploy.stack.state import ServiceState, StackState, lock
from deploy.stack.supervisor import Supervisor
from schemas.settings import ClickHouseSettings, StackSettings


def run(stack: Stack, out: TextIO) -> int:
    """Runs the stack until a signal stops it: exit status 0; 1 when a service failed for good.

    Raises StackError, LocalKafkaError and SettingsError before anything is started.
    """
    screen = _Screen(stack, out)
    with lock(stack.directory):
        check_ports(stack.ports)
        print(f"Reveal starts in {stack.directory} (Ctrl-C stops it)", file=out, flush=True)
        specs = stack.services(LineProgress(out))
        supervisor = Supervisor(specs, stack.directory, screen.say, screen.changed)
        as_wished = supervisor.run()
        if not as_wished:
            print(f"Reveal gave up; the logs are in {stack.directory / 'logs'}", file=out, flush=True)
    return 0 if as_wished else 1


class _Screen:
    """Tells the terminal and stack.json of every change."""

    def __init__(self, stack: Stack, out: TextIO) -> None:
        self._stack = stack
        self._out = out
        self._began = time.monotonic()
        self._was_ready = False
        self._was_stopping = False

    def say(self, service: str, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {service:<10}  {text}", file=self._out, flush=True)

    def changed(self, supervisor: Supervisor) -> None:
        running = any(service.pid is not None for service in supervisor.services.values())
        if supervisor.stopping:
            state = "stopping" if running else "failed" if supervisor.failed else "stopped"
        else:
            state = "ready" if supervisor.ready else "starting"
        if supervisor.stopping and not self._was_stopping:
            self._was_stopping = True
            self.say("stack", "stopping (a second Ctrl-C kills at once)")
        if state == "ready" and not self._was_ready:
            self.say("stack", f"ready in {time.monotonic() - self._began:.1f} s")
            print(welcome(self._stack), file=self._out, flush=True)
        self._was_ready = self._was_ready or state == "ready"
        services = {
            name: ServiceState(service.state.value, service.pid, service.restarts)
            for name, service in supervisor.services.items()
        }
        stack = self._stack
        StackState(state, os.getpid(), stack.bootstrap, stack.clickhouse, str(stack.directory), services).write()


def welcome(stack: Stack) -> str:
    """Addresses of a stack and commands to try."""
    settings = stack.settings
    hint = ""
    if settings.clickhouse_port != ClickHouseSettings().port:
        hint = f"REVEAL_CLICKHOUSE_PORT={settings.clickhouse_port} "
    query = "SELECT host, subsystem, start, explanation FROM anomalies ORDER BY start DESC LIMIT 5"
    where = (
        ""
        if str(stack.directory) == os.path.abspath(StackSettings().directory)
        else f" --directory {shlex.quote(str(stack.directory))}"
    )
    return (
        f"\n  Kafka       {stack.bootstrap}\n"
        f"  ClickHouse  {stack.clickhouse}\n"
        f"  logs        {stack.directory / 'logs'}\n"
        f"  try         {hint}reveal sql {shlex.quote(query)}\n"
        f"              reveal agent --once\n"
        f"              reveal up --status{where}\n"
    )
