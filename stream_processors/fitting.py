"""Fits that do not hold up the stream: asked for in one window, there in a later one.

Which window takes up the new model is settled when the fit is asked for, in event time, so that how long a fit takes
changes no verdict: a replay, a backtest and a worker that takes over have the same model for the same window.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Final, Protocol

from schemas.settings import PipelineSettings
from stream_processors.baseline import Baseline
from stream_processors.rows import Row

log = logging.getLogger("reveal.worker")

LONGEST_WAIT_S: Final = 60.0
"""A fit that is not there so long after its window came is made on the spot."""


class Fit(Protocol):
    """A fit that was asked for."""

    def done(self) -> bool:
        """Whether `result` has it without waiting."""

    def result(self) -> Baseline:
        """The model; raises what Baseline.fit raises."""


class Fitter(Protocol):
    """Makes fits."""

    def __call__(self, rows: Sequence[Row], version: int, settings: PipelineSettings) -> Fit:
        """Ask for the model of `rows`, in order of time, which must not change meanwhile."""


@dataclass(slots=True)
class Inline:
    """A fit that is made when it is needed, by whoever needs it: for backtests and tests."""

    rows: Sequence[Row]
    version: int
    settings: PipelineSettings

    def done(self) -> bool:
        """There is nothing to wait for."""
        return True

    def result(self) -> Baseline:
        """Fits."""
        return Baseline.fit(list(self.rows), self.version, self.settings)


@dataclass(slots=True)
class Background:
    """Fits in an executor. One thread does: the heavy parts leave the interpreter to the stream."""

    executor: Executor
    longest_wait_s: float = LONGEST_WAIT_S

    def __call__(self, rows: Sequence[Row], version: int, settings: PipelineSettings) -> Fit:
        """Ask for it."""
        inline = Inline(rows, version, settings)
        return _Asked(inline, self.executor.submit(inline.result), self.longest_wait_s)


@dataclass(slots=True)
class _Asked:
    inline: Inline
    future: Future[Baseline]
    longest_wait_s: float
    _made: Baseline | None = field(default=None)

    def done(self) -> bool:
        return self.future.done()

    def result(self) -> Baseline:
        if self._made is not None:
            return self._made
        try:
            return self.future.result(self.longest_wait_s)
        except TimeoutError:
            if self.future.done():  # it is the fit that raised it
                raise
        log.warning("a model was not fitted within %.0f s: it is fitted while the stream waits", self.longest_wait_s)
        self.future.cancel()
        self._made = self.inline.result()
        return self._made
