"""What receivers are told, when, and how that went: the difference between what they know and what is. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from schemas.records import Alert, Delivery
from sinks.alerts.backoff import Backoff
from sinks.alerts.channels import CHANNELS
from sinks.alerts.duration import SECOND_NS
from sinks.alerts.held import ACKNOWLEDGED, ACTIVE, FIRING, OVER, RESOLVED, SEVERITIES, UPDATED, Held, Told
from sinks.alerts.limits import Bucket
from sinks.alerts.notification import DELIVERED, FAILED, Notification, Outcome
from sinks.alerts.routing import Receiver, Routing

MOST_NAMES: Final = 200


class Telling:
    """Receivers with their limits, pauses and what is on its way to them.

    jitter   numbers from 0 to 1, for pauses between tries
    show     an alert as it is told: (alert, state, now_ns)
    changed  whether a limit was used since somebody set this to False
    """

    def __init__(self, routing: Routing, jitter: Callable[[], float], show: Callable[[Held, str, int], Alert]) -> None:
        self.changed = False
        self._routing = routing
        self._jitter = jitter
        self._show = show
        self._buckets = {name: Bucket(receiver.limit) for name, receiver in routing.receivers.items()}
        self._backoffs = {name: Backoff() for name in routing.receivers}
        self._sending: dict[str, dict[str, int]] = {name: {} for name in routing.receivers}

    def pace(self) -> dict[str, tuple[float, int]]:
        """What is left of each limit, and when that was."""
        return {name: (bucket.left, bucket.at_ns) for name, bucket in self._buckets.items()}

    def keep_pace(self, pace: Mapping[str, tuple[float, int]]) -> None:
        """Go on with the limits of another instance."""
        for name, (left, at_ns) in pace.items():
            if name in self._buckets:
                self._buckets[name].left, self._buckets[name].at_ns = float(left), int(at_ns)

    def due(self, alerts: Iterable[Held], now_ns: int, free: Mapping[str, int]) -> list[Notification]:
        """What is to be handed to receivers now, at most `free` of each: all that they do not know, within limits."""
        found: list[Notification] = []
        concerned: dict[str, list[Held]] = {}
        for alert in alerts:
            # Most alerts of a storm: part of a group, and nobody knows them.
            if not alert.told and (alert.parent is not None or alert.state in OVER):
                continue
            for name in {*alert.receivers, *alert.told}:
                if name in self._routing.receivers:
                    concerned.setdefault(name, []).append(alert)
        for name, mine in concerned.items():
            receiver = self._routing.receivers[name]
            if free.get(name, 0) < 1 or now_ns < self._backoffs[name].until_ns:
                continue
            sending = self._sending[name]
            wanted = []
            for alert in mine:
                state = "" if alert.key in sending else self.wanted(alert, receiver, now_ns)
                if state:
                    wanted.append((alert, state))
            if wanted:
                wanted.sort(key=lambda pair: (pair[1] in OVER, -SEVERITIES.index(pair[0].severity), pair[0].born_ns))
                found += self._packed(receiver, wanted, now_ns, free[name])
        return found

    def outcome(
        self, notification: Notification, outcome: Outcome, alerts: Mapping[str, Held], now_ns: int
    ) -> tuple[list[str], list[Delivery]]:
        """How a try went: keys of the `alerts` that know more now, and what is to be recorded of it."""
        noted: list[str] = []
        name = notification.receiver
        receiver = self._routing.receivers[name]
        for alert in notification.alerts:
            self._sending[name].pop(alert.key, None)
        if outcome.status == FAILED:
            self._backoffs[name].failed(now_ns, self._jitter, outcome.retry_after_s)
        else:
            self._backoffs[name].succeeded()
            for alert in notification.alerts:
                held = alerts.get(alert.key)
                if held is None:
                    continue
                state = RESOLVED if alert.state in OVER else ACKNOWLEDGED if alert.state == ACKNOWLEDGED else FIRING
                held.told[name] = Told(alert.revision, state, now_ns)
                # What is only said once more needs no note: after a restart it is said at once.
                if not notification.again:
                    noted.append(held.key)
        if notification.again and outcome.status == DELIVERED:
            return noted, []
        return noted, [_delivery(notification, receiver, outcome, now_ns)]

    def given_back(self, notification: Notification) -> None:
        """It was not even tried."""
        for alert in notification.alerts:
            self._sending[notification.receiver].pop(alert.key, None)

    def wanted(self, alert: Held, receiver: Receiver, now_ns: int) -> str:
        """State that `receiver` should hear of now; empty for none."""
        name, told, timing = receiver.name, alert.told.get(receiver.name), self._routing.timing
        again_ns = int(CHANNELS[receiver.channel].again_s * SECOND_NS)
        if told is None or told.state == RESOLVED:
            settled = now_ns - alert.born_ns >= timing.wait * SECOND_NS
            # What somebody looks after already calls nobody else.
            fires = alert.state == FIRING or (alert.state == ACKNOWLEDGED and again_ns > 0)
            mine = alert.parent is None and name in alert.receivers
            return alert.state if fires and mine and settled else ""
        if alert.state in OVER:
            return alert.state
        if alert.state == ACKNOWLEDGED and told.state != ACKNOWLEDGED:
            return ACKNOWLEDGED
        calm = now_ns - told.at_ns
        if (
            alert.state == FIRING
            and alert.news > told.revision
            and receiver.updates
            and calm >= timing.update * SECOND_NS
        ):
            return UPDATED
        if again_ns and alert.state in ACTIVE and (alert.news > told.revision or calm >= again_ns):
            return alert.state
        return ""

    def _packed(self, receiver: Receiver, wanted: list[tuple[Held, str]], now_ns: int, free: int) -> list[Notification]:
        style, bucket = CHANNELS[receiver.channel].style, self._buckets[receiver.name]
        if style == "batch":
            return [self._notification(receiver, wanted[:MOST_NAMES], now_ns)]
        costly = [pair for pair in wanted if style == "message" or pair[1] in (FIRING, UPDATED)]
        others = [pair for pair in wanted if style != "message" and pair[1] not in (FIRING, UPDATED)]
        tokens = bucket.available(now_ns)
        made: list[Notification] = []
        if len(costly) <= tokens:
            made = [self._notification(receiver, [pair], now_ns) for pair in costly[:free]]
        elif tokens:
            # The last message that may go now has all the rest.
            single = min(tokens, free) - 1
            made = [self._notification(receiver, [pair], now_ns) for pair in costly[:single]]
            made.append(self._notification(receiver, costly[single:], now_ns, digest=True))
        bucket.take(now_ns, len(made))
        self.changed = self.changed or bool(made and not receiver.limit.unlimited)
        made += [self._notification(receiver, [pair], now_ns) for pair in others[: max(0, free - len(made))]]
        return made

    def _notification(
        self, receiver: Receiver, chosen: list[tuple[Held, str]], now_ns: int, *, digest: bool = False
    ) -> Notification:
        alerts = tuple(self._show(alert, state, now_ns) for alert, state in chosen)
        again = all(
            (told := alert.told.get(receiver.name)) is not None
            and told.revision >= alert.news
            and told.state != RESOLVED
            for alert, state in chosen
            if state not in OVER
        ) and not any(state in OVER or state == ACKNOWLEDGED for _, state in chosen)
        text = "\n".join([receiver.name, *(f"{alert.key} {alert.revision} {alert.state}" for alert in alerts)])
        if again:
            text += f"\n{now_ns}"
        id_ = hashlib.sha256(text.encode()).hexdigest()[:20]
        for alert in alerts:
            self._sending[receiver.name][alert.key] = alert.revision
        return Notification(
            id_, receiver.name, alerts, self._backoffs[receiver.name].failures + 1, digest and len(alerts) > 1, again
        )


def _delivery(notification: Notification, receiver: Receiver, outcome: Outcome, now_ns: int) -> Delivery:
    first = notification.alerts[0]
    return Delivery(
        id=notification.id,
        attempt=notification.attempt,
        time_ns=now_ns,
        receiver=receiver.name,
        channel=receiver.channel,
        status=outcome.status,
        latency_ms=outcome.latency_ms,
        alert=first.key,
        state=first.state,
        revision=first.revision,
        code=outcome.code,
        error=outcome.error,
        alerts=tuple(alert.key for alert in notification.alerts[:MOST_NAMES]),
        count=len(notification.alerts),
        digest=notification.digest,
    )
