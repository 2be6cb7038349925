"""The pipeline: telemetry of any number of hosts in, verdicts, episodes and state out. The same under Faust, in a
backtest and in tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from schemas.codec import Rejected
from schemas.records import Event, StateRecord, Telemetry
from schemas.settings import PipelineSettings
from stream_processors.fitting import Fit, Fitter, Inline
from stream_processors.host import Forgotten, Host, Misplaced, Result
from stream_processors.seconds import SECOND_NS
from stream_processors.windows import LONGEST_GAP_S


@dataclass(slots=True)
class Pipeline:
    """State of all hosts of this worker.

    counts  how many messages were added, duplicate, gap, late, time-backwards, from-the-future, not-finite; events;
    silent hosts
    fitter  makes the fits
    """

    settings: PipelineSettings
    hosts: dict[str, Host] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    fitter: Fitter = Inline
    # Time in which messages flow, and what it was when a host was last heard or found silent.
    _flow: float = 0.0
    _arrived: float | None = None
    _heard: dict[str, tuple[float, float]] = field(default_factory=dict)  # and when its last message was sent, or 0
    _silent: dict[str, float] = field(default_factory=dict)

    def feed(
        self, batch: Telemetry, arrived: float, sent: float | None = None, read_to: float | None = None
    ) -> list[Result]:
        """Results that `batch` makes possible. `arrived` is when it came here, s since 1970-01-01 UTC: now, or in a
        backtest the end of the batch; `sent`, when it was sent; and everything that was sent before `read_to` is read
        (see `reading`). Both are `arrived` unless told otherwise.

        Raises Rejected, with reason time-backwards, late or from-the-future, for a sound message that cannot be
        placed in time; nothing of it is kept.
        """
        sent = arrived if sent is None else sent
        self._check_time(batch.start_ns, sent)
        if self._arrived is not None:
            self._flow += min(max(arrived - self._arrived, 0.0), LONGEST_GAP_S)
        self._arrived = arrived
        host = self.hosts.get(batch.host)
        if host is None:
            host = self.hosts[batch.host] = Host(batch.host, self.settings, self.fitter)
        self._heard[batch.host] = self._flow, sent
        self._silent.pop(batch.host, None)
        if batch.flaws:
            self.counts["not-finite"] += 1
        try:
            results, how = host.feed(batch, sent, arrived if read_to is None else read_to)
        except Misplaced as error:
            self.counts[error.reason] += 1
            raise Rejected(error.reason, error.detail) from None
        self.counts[how] += 1
        return results

    def feed_event(self, event: Event, sent: float) -> list[Result]:
        """Results of `event`, which was sent at `sent`, s: at most the record of what is known to have happened on its
        host. It becomes evidence of the host's episodes, and changes no verdict, nor when a host counts as silent.

        Raises Rejected with reason from-the-future.
        """
        self._check_time(event.time_ns, sent)
        self.counts["events"] += 1
        host = self.hosts.get(event.host)
        if host is None:
            host = self.hosts[event.host] = Host(event.host, self.settings, self.fitter)
            self._heard[event.host] = self._flow, sent
        return host.happened(event)

    def tick(self, now: float, read_to: Callable[[str], float] | None = None) -> list[Result]:
        """Results of time going on: new hosts that were waited for, hosts that fell silent while others are heard,
        and hosts to be forgotten. To be called about once a second. Everything of a host that was sent before
        `read_to` says is read, or before `now`.

        Silence is counted in time in which messages flow: silence of all is an outage of what lies between, and says
        nothing about the hosts. Nor does what is not read yet.
        """
        results: list[Result] = []
        for name, (heard, sent) in list(self._heard.items()):
            long, new = self._flow - heard > self.settings.silence_s, not self.hosts[name].windows.expected
            upto = read_to(name) if read_to is not None and (long or new or not sent) else now
            if not sent:  # it was restored: from now on
                self._heard[name] = heard, upto
            elif long and upto - sent > self.settings.silence_s:
                results += self.hosts[name].silence()
                self.counts["silent hosts"] += 1
                del self._heard[name]
                self._silent[name] = self._flow
            elif new:
                results += self.hosts[name].tick(upto)
        for name, since in list(self._silent.items()):
            if self._flow - since > self.settings.forget_s:
                results.append(Forgotten(name, self.hosts[name].slots()))
                self.forget([name])
        return results

    def waits_for(self, host: str, second: int) -> Fit | None:
        """The fit that a message of `host` whose last second is `second` may have to wait for, if fed now."""
        known = self.hosts.get(host)
        return known.waits_for(second) if known is not None else None

    def obey(self, host: str, pinned: int | None, model: StateRecord | None) -> list[Result]:
        """Let `host` keep the version `pinned` of its baseline, which `model` holds, or with None learn on.

        Raises Rejected, with reason not-obeyed, if there is no such host here or no such version; nothing changes.
        """
        known = self.hosts.get(host)
        if known is None:
            raise Rejected("not-obeyed", f"nothing is known of {host}")
        try:
            return known.obey(pinned, model)
        except (KeyError, TypeError, ValueError) as error:
            raise Rejected("not-obeyed", f"{type(error).__name__}: {error}") from None

    def epoch(self, host: str) -> int:
        """Epoch of `host`, to be kept with a message of it that was fed, for `covers`."""
        return self.hosts[host].epoch

    def covers(self, host: str, epoch: int, second: int) -> bool:
        """Whether the state that was told last covers `second` of `host`, fed in `epoch`: then it may be
        acknowledged.
        """
        known = self.hosts.get(host)
        return known is None or epoch < known.epoch or second < known.progressed

    def restore(self, host: str, records: Iterable[StateRecord]) -> str | None:
        """Take up the state of `host`; says what of it was lost, if anything was. Raises whatever records that are no
        state trip over, and leaves the host new.
        """
        fresh = Host(host, self.settings, self.fitter)
        lost = fresh.restore(records)
        self.hosts[host] = fresh
        self._heard[host] = self._flow, 0.0
        return lost

    def _check_time(self, time_ns: int, sent: float) -> None:
        ahead = time_ns / SECOND_NS - sent
        if ahead > self.settings.future_s:
            self.counts["from-the-future"] += 1
            raise Rejected("from-the-future", f"begins {ahead:.0f} s after it was sent; check the host's clock")

    def forget(self, hosts: Iterable[str]) -> None:
        """Drop hosts, for instance those that another worker has taken over."""
        for host in hosts:
            self.hosts.pop(host, None)
            self._heard.pop(host, None)
            self._silent.pop(host, None)
