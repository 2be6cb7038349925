"""A thousand hosts open at once, flap for ten minutes and recover: few messages, nothing lost, everything over."""

from __future__ import annotations

import random

import pytest

from sinks.alerts.held import OVER
from tests.unit.sinks.alerts.simulated import World, episode

HOSTS = 1_000
FLAPPING_S = 600
STEP_S = 2
BOUND = {"pager": 6, "chat": 6, "log": 6}
"""Messages that any of the receivers may get of the whole storm: the breaker makes it one alert, told when it begins,
at each doubling of hosts at most every five minutes, and when it is over.
"""
ROUTING = """
[fleet]
hosts = 2000

[receivers.pager]
channel = "pagerduty"
routing_key = "k"

[receivers.chat]
channel = "slack"
url = "https://example.invalid/hook"

[receivers.log]
channel = "log"

[[routes]]
receivers = ["pager", "chat", "log"]
"""


@pytest.mark.parametrize("crashes", [False, True], ids=["steady", "with crashes"])
def test_storm(crashes: bool) -> None:
    world, chance = World(ROUTING), random.Random(7)
    is_open = dict.fromkeys(range(HOSTS), False)
    number = dict.fromkeys(range(HOSTS), -1)
    revision = dict.fromkeys(range(HOSTS), 0)
    for second in range(0, FLAPPING_S, STEP_S):
        for host in range(HOSTS):
            flips = second == host % 2 * STEP_S if number[host] < 0 else chance.random() < STEP_S / 20
            if flips and not is_open[host]:
                number[host] += 1
                revision[host] = 0
                world.feed(episode(f"h{host}", second, number=number[host]))
                is_open[host] = True
            elif flips:
                revision[host] += 1
                world.feed(episode(f"h{host}", second, "closed", number=number[host], revision=revision[host]))
                is_open[host] = False
        world.run(STEP_S, STEP_S)
        if crashes and second in (2, 60, 300):
            world.die_and_return()
    for host in range(HOSTS):
        if is_open[host]:
            world.feed(episode(f"h{host}", FLAPPING_S, "closed", number=number[host], revision=revision[host] + 1))
    world.run(300, STEP_S)

    for receiver, bound in BOUND.items():
        sent = [notification for _, notification in world.sent[receiver]]
        print(
            f"{receiver}: {len(sent)} messages",
            [(at, n.alerts[0].state, len(n.alerts)) for at, n in world.sent[receiver]],
        )
        assert 2 <= len(sent) <= bound
        last = {alert.key: alert.state for notification in sent for alert in notification.alerts}
        assert set(last.values()) == {"resolved"}
        # Nothing is lost: each host was told of, by itself or within the alert that says how many there are.
        told = [alert for notification in sent for alert in notification.alerts]
        alone = {alert.host for alert in told if alert.host}
        assert max(alert.host_count for alert in told if not alert.host) + len(alone) >= HOSTS
    assert {alert.state for alert in world.engine.alerts.values()} <= OVER
    began = {alert.host for alert in world.alerts if alert.scope == "host" and alert.state == "firing"}
    over = {alert.host for alert in world.alerts if alert.scope == "host" and alert.state == "resolved"}
    assert began == over == {f"h{host}" for host in range(HOSTS)}


def test_without_the_breaker_the_limit_holds_and_a_digest_has_the_rest() -> None:
    world = World(ROUTING + "\n[breaker]\nhosts = 100000\nleast = 100000\n[grouping]\ncause = 0\n")
    for host in range(HOSTS):
        world.feed(episode(f"h{host}", 0))
    world.run(120)
    chat = [notification for _, notification in world.sent["chat"]]
    assert len(chat) <= 11
    told = [alert.host for notification in chat for alert in notification.alerts]
    assert sorted(told) == sorted(f"h{host}" for host in range(HOSTS))
    assert [notification.digest for notification in chat][9] is True
    assert len(chat[9].alerts) == HOSTS - 9
