"""The pipeline: telemetry of any number of hosts in, verdicts, episodes and state out. The same under Faust, in a
backtest and in tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.codec import Rejected
from schemas.records import StateRecord, Telemetry
from schemas.settings import PipelineSettings
from stream_processors.host import Host, Misplaced, Result
from stream_processors.seconds import SECOND_NS
from stream_processors.windows import LONGEST_GAP_S


@dataclass(slots=True)
class Pipeline:
    """State of all hosts of this worker.

    counts  how many messages were added, duplicate, gap, late, time-backwards, from-the-future, not-finite
    """

    settings: PipelineSettings
    hosts: dict[str, Host] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _heard: dict[str, float] = field(default_factory=dict)
    _flow: float = 0.0
    _arrived: float | None = None

    def feed(self, batch: Telemetry, arrived: float) -> list[Result]:
        """Results that `batch` makes possible. `arrived` is its time of arrival, s since 1970-01-01 UTC: now, or in a
        backtest the end of the batch.

        Raises Rejected, with reason time-backwards, late or from-the-future, for a sound message that cannot be
        placed in time; nothing of it is kept.
        """
        ahead = batch.start_ns / SECOND_NS - arrived
        if ahead > self.settings.future_s:
            self.counts["from-the-future"] += 1
            raise Rejected("from-the-future", f"begins {ahead:.0f} s from now; check the host's clock")
        results: list[Result] = []
        host = self.hosts.get(batch.host)
        if host is None:
            host = self.hosts[batch.host] = Host(batch.host, self.settings)
        elif host.pause_before(batch) > self.settings.silence_s:
            results += host.silence()
        if self._arrived is not None:
            self._flow += min(max(arrived - self._arrived, 0.0), LONGEST_GAP_S)
        self._arrived = arrived
        self._heard[batch.host] = self._flow
        if batch.flaws:
            self.counts["not-finite"] += 1
        try:
            fresh, how = host.feed(batch, arrived)
        except Misplaced as error:
            self.counts[error.reason] += 1
            raise Rejected(error.reason, error.detail) from None
        self.counts[how] += 1
        return results + fresh

    def tick(self, now: float) -> list[Result]:
        """Results of time going on, above all of hosts that are silent while others are heard. To be called about
        once a second.

        Silence is counted in time in which messages flow: silence of all is an outage of what lies between, and says
        nothing about the hosts.
        """
        results: list[Result] = []
        for name, heard in list(self._heard.items()):
            if self._flow - heard > self.settings.silence_s:
                results += self.hosts[name].silence()
                self.counts["silent hosts"] += 1
                del self._heard[name]
            else:
                results += self.hosts[name].tick(now)
        return results

    def covered_until(self, host: str) -> int:
        """Seconds of `host` before this one are covered by the state that was told last, and may be acknowledged."""
        known = self.hosts.get(host)
        return known.progressed or 0 if known else 0

    def restore(self, host: str, records: Iterable[StateRecord]) -> None:
        """Take up the state of `host`. Raises ValueError, KeyError or TypeError, and leaves the host new, when
        `records` are no state.
        """
        fresh = Host(host, self.settings)
        fresh.restore(records)
        self.hosts[host] = fresh

    def forget(self, hosts: Iterable[str]) -> None:
        """Drop hosts that another worker has taken over."""
        for host in hosts:
            self.hosts.pop(host, None)
            self._heard.pop(host, None)
