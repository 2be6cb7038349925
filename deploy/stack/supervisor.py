"""All services: started in the order of their needs, kept running, and stopped in the opposite order."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deploy.stack.service import Service, ServiceSpec, State

STOP_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
BUSY_TICK_S: Final = 0.05
CALM_TICK_S: Final = 0.5


class Supervisor:
    """Runs a table of services until SIGINT, SIGTERM or SIGHUP, or until one of them has failed for good.

    directory  of logs and ready files
    say        (service, what happened in words) for every change
    changed    called after every change, with all services; for whoever records or shows their state
    """

    def __init__(
        self,
        specs: Sequence[ServiceSpec],
        directory: Path,
        say: Callable[[str, str], None],
        changed: Callable[[Supervisor], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        names = [spec.name for spec in specs]
        for position, spec in enumerate(specs):
            if missing := set(spec.after) - set(names[:position]):
                raise ValueError(f"{spec.name} comes after {', '.join(missing)}, which is not above it in the table")
        self._pool = ThreadPoolExecutor(len(specs), thread_name_prefix="health")
        self.services = {
            spec.name: Service(spec, directory, lambda text, name=spec.name: say(name, text), self._pool, clock)  # type: ignore[misc]
            for spec in specs
        }
        self.stopping = False
        # Whoever started us with a signal ignored, as nohup does, means it.
        self._stop_signals = {wanted for wanted in STOP_SIGNALS if signal.getsignal(wanted) is not signal.SIG_IGN}
        self._changed = changed

    @property
    def ready(self) -> bool:
        """Whether every service is."""
        return all(service.satisfied for service in self.services.values())

    @property
    def failed(self) -> bool:
        """Whether one has failed for good."""
        return any(service.state is State.FAILED for service in self.services.values())

    def run(self) -> bool:
        """Until told to stop, from the main thread. Returns whether it ended as wished, not by a failed service.

        A second signal while stopping kills what still runs.
        """
        with _blocked(self._stop_signals | {signal.SIGCHLD}):
            try:
                self._changed(self)
                while not self.failed:
                    self._turn()
                    if self._signalled(CALM_TICK_S if self.ready else BUSY_TICK_S):
                        break
            finally:
                self._stop()
                self._pool.shutdown(wait=False, cancel_futures=True)
        return not self.failed

    def _turn(self) -> None:
        changes = [
            service.step(all(self.services[name].satisfied for name in service.spec.after))
            for service in self.services.values()
        ]
        if any(changes):
            self._changed(self)

    def _stop(self) -> None:
        self.stopping = True
        self._changed(self)
        services = list(self.services.values())
        while any(service.pid is not None for service in services):
            for service in services:
                if service.state is not State.FAILED and not self._needed(service.spec.name):
                    service.stop()
            self._turn()
            if self._signalled(BUSY_TICK_S):
                for service in services:
                    service.kill()
        for service in services:
            if service.state is not State.FAILED:
                service.stop()
        self._changed(self)

    def _needed(self, name: str) -> bool:
        """Whether something runs that comes after service `name`, directly or not."""
        return any(
            name in service.spec.after and (service.pid is not None or self._needed(service.spec.name))
            for service in self.services.values()
        )

    def _signalled(self, timeout_s: float) -> bool:
        """Wait for the end of a child, a signal to stop, or the timeout; whether a signal to stop came."""
        received = signal.sigtimedwait(self._stop_signals | {signal.SIGCHLD}, timeout_s)
        return received is not None and received.si_signo in self._stop_signals


@contextmanager
def _blocked(signals: Iterable[signal.Signals]) -> Iterator[None]:
    # Signals are waited for, not handled: nothing interrupts the loop in the middle of a change.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
