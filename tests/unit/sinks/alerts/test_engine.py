"""The engine in simulated time: life-cycle, groups, breaker, silences, limits, ages, failing receivers, restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.alerts.commands import Ack, decode_command, encode_command
from sinks.alerts.held import OVER, Held, decode_held, make_key, short_id
from sinks.alerts.matching import Matcher
from sinks.alerts.notification import DELIVERED, FAILED, REFUSED, Notification, Outcome
from sinks.alerts.silences import Expected, Maintenance, Silence
from tests.unit.sinks.alerts.simulated import SECOND, START, World, episode

KEY = "host/h1/gpu"
PAGER = '[receivers.pager]\nchannel = "pagerduty"\nrouting_key = "k"\n[[routes]]\nreceivers = ["pager"]\n'
CHAT = '[receivers.chat]\nchannel = "slack"\nurl = "https://x.invalid"\n[[routes]]\nreceivers = ["chat"]\n'
MANAGER = '[receivers.am]\nchannel = "alertmanager"\nurls = ["https://x.invalid"]\n[[routes]]\nreceivers = ["am"]\n'


# Life-cycle


def test_fires_after_the_wait_and_resolves_after_it_kept_firing() -> None:
    world = World()
    world.feed(episode("h1", 0))
    world.run(4)
    assert world.told() == []
    world.run(2)
    assert world.told() == [("firing", KEY)]
    world.at = 100
    world.feed(episode("h1", 100, "closed", revision=1))
    world.run(119)
    assert world.told() == [("firing", KEY)]
    world.run(2)
    assert world.told() == [("firing", KEY), ("resolved", KEY)]
    assert world.states(KEY) == ["firing", "resolved"]
    alert = world.sent["log"][1][1].alerts[0]
    assert alert.resolved_ns == START + 100 * SECOND
    revisions = [each.revision for each in world.alerts]
    assert revisions == sorted(set(revisions))


def test_flapping_is_one_alert() -> None:
    world = World()
    for number in range(20):
        world.feed(episode("h1", world.at, number=number))
        world.run(20)
        world.feed(episode("h1", world.at, "closed", number=number, revision=1))
        world.run(40)
    world.run(200)
    assert world.told() == [("firing", KEY), ("resolved", KEY)]
    assert list(world.engine.alerts) == [KEY]


def test_one_that_comes_and_goes_within_the_wait_still_fires_and_another_day_it_is_a_new_one() -> None:
    world = World()
    world.feed(episode("h1", 0))
    world.run(2)
    world.feed(episode("h1", 2, "closed", revision=1))
    world.run(200)
    assert world.told() == [("firing", KEY), ("resolved", KEY)]
    world.run(3600, 10)
    world.feed(episode("h1", world.at, number=1))
    world.run(10)
    assert world.told()[2:] == [("firing", KEY)]
    assert world.engine.alerts[KEY].since_ns == START + int((world.at - 10 - 3) * SECOND)


def test_what_was_never_told_is_not_told_to_be_over() -> None:
    world = World("[timing]\nwait = 300")
    world.feed(episode("h1", 0))
    world.run(2)
    world.feed(episode("h1", 2, "closed", revision=1))
    world.run(600)
    assert world.told() == []
    assert world.states(KEY) == ["firing", "resolved"]


def test_updates_are_told_seldom_and_only_when_there_is_news() -> None:
    world = World()
    world.feed(episode("h1", 0, cause=None))
    world.run(6)
    for revision in range(1, 40):
        world.feed(episode("h1", world.at, "updated", revision=revision, severity=5.0, cause="thermal_throttling"))
        world.run(10)
    assert world.told() == [("firing", KEY), ("updated", KEY)]
    assert world.sent["log"][1][0] == pytest.approx(6 + 300, abs=1)
    world.feed(episode("h1", world.at, "updated", revision=50, severity=20.0))
    world.run(310)
    assert world.sent["log"][-1][1].alerts[0].severity == "critical"


def test_the_key_stays_when_the_subsystem_changes() -> None:
    world = World()
    world.feed(episode("h1", 0, subsystem="cpu", cause=None))
    world.run(6)
    world.feed(episode("h1", 6, "updated", revision=1, subsystem="gpu"))
    world.run(2)
    world.feed(episode("h1", 8, "closed", revision=2, subsystem="gpu"))
    world.run(200)
    assert {key for _, key in world.told()} == {"host/h1/cpu"}
    assert world.told()[-1] == ("resolved", "host/h1/cpu")


def test_read_again_changes_nothing() -> None:
    world = World()
    states = [episode("h1", 0), episode("h1", 1, "updated", revision=1), episode("h1", 2, "closed", revision=2)]
    world.feed(*states)
    world.run(3)
    before = (list(world.alerts), dict(world.state))
    world.feed(*states)
    world.turn()
    assert (world.alerts, world.state) == before


def test_an_end_without_a_beginning_is_nothing() -> None:
    world = World()
    world.feed(episode("h1", 0, "closed", revision=5))
    world.run(300)
    assert world.alerts == []


def test_a_backlog_expires_and_is_recorded() -> None:
    world = World()
    world.at = 10_000
    world.feed(episode("h1", 0), episode("h1", 60, "closed", revision=1), episode("h2", 100))
    world.run(300)
    assert world.told() == []
    assert [(alert.host, alert.state) for alert in world.alerts] == [("h1", "expired"), ("h2", "expired")]
    assert "2 h 46 min old: from a backlog or a replay" in world.alerts[0].reason
    world.feed(episode("h2", world.at, "updated", revision=1))
    world.run(10)
    assert world.told() == [("firing", "host/h2/gpu")]


def test_one_of_which_nothing_is_heard_expires_and_receivers_hear_it() -> None:
    world = World()
    world.feed(episode("h1", 0))
    world.run(901)
    assert world.told() == [("firing", KEY), ("expired", KEY)]
    assert world.engine.alerts[KEY].reason == "nothing was heard of it any more"
    world.feed(episode("h1", world.at, "updated", revision=1))
    world.run(6)
    assert world.told()[-1] == ("firing", KEY)


def test_old_alerts_are_forgotten_with_their_records() -> None:
    world = World()
    world.feed(episode("h1", 0), episode("h1", 1, "closed", revision=1))
    world.run(300)
    assert f"alert/{KEY}".encode() in world.state
    world.run(90_000, 600)
    assert world.engine.alerts == {}
    assert f"alert/{KEY}".encode() not in world.state
    world.feed(episode("h1", world.at, number=1))
    world.run(6)
    revisions = [alert.revision for alert in world.alerts]
    assert revisions == sorted(set(revisions))


# People


def test_acknowledged_stays_quiet_until_it_is_over() -> None:
    world = World(PAGER)
    world.feed(episode("h1", 0))
    world.run(6)
    world.ask(Ack(KEY, "ada", "on it"))
    world.feed(episode("h1", 7, "updated", revision=1, severity=30.0))
    world.run(600)
    world.feed(episode("h1", world.at, "closed", revision=2))
    world.run(130)
    assert world.told("pager") == [("firing", KEY), ("acknowledged", KEY), ("resolved", KEY)]
    assert not any(key.startswith(b"ack/") for key in world.state)


def test_acknowledged_before_anybody_was_told_calls_nobody() -> None:
    world = World(PAGER)
    world.feed(episode("h1", 0))
    world.run(1)
    world.ask(Ack(KEY, "ada"))
    world.run(100)
    assert world.told("pager") == []


def silence(**changes: object) -> Silence:
    made = Silence("s1", Matcher({"host": ("h*",)}), START, START + 60 * SECOND, by="ada", comment="works")
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_silence_holds_back_and_its_end_lets_out() -> None:
    world = World()
    world.ask(silence())
    world.feed(episode("h1", 0), episode("x1", 0))
    world.run(59)
    assert world.told() == [("firing", "host/x1/gpu")]
    assert world.states(KEY) == ["silenced"]
    assert world.alerts[0].reason == "silence s1 by ada: works"
    world.run(8)
    assert world.told()[-1] == ("firing", KEY)
    assert world.engine.silences == {}
    assert b"silence/s1" not in world.state


def test_a_silence_in_the_middle_and_what_ends_meanwhile_is_told_to_be_over() -> None:
    world = World()
    world.feed(episode("h1", 0))
    world.run(6)
    world.ask(silence(ends_ns=START + 3600 * SECOND))
    world.feed(episode("h1", 7, "updated", revision=1, severity=30.0))
    world.run(400)
    assert world.told() == [("firing", KEY)]
    world.feed(episode("h1", world.at, "closed", revision=2))
    world.run(130)
    assert world.told() == [("firing", KEY), ("resolved", KEY)]


def test_a_silence_that_is_taken_back_and_one_that_begins_later() -> None:
    world = World()
    world.ask(silence(starts_ns=START + 30 * SECOND, ends_ns=START + 9999 * SECOND))
    world.feed(episode("h1", 0))
    world.run(10)
    assert world.told() == [("firing", KEY)]
    world.at = 40
    world.feed(episode("h2", 40))
    world.run(10)
    assert world.states("host/h2/gpu") == ["silenced"]
    world.engine.withdrawn("silence/s1")
    world.run(7)
    assert world.told()[-1] == ("firing", "host/h2/gpu")


def test_silence_of_one_alert() -> None:
    world = World()
    world.ask(silence(matcher=Matcher(), key=KEY))
    world.feed(episode("h1", 0), episode("h2", 0))
    world.run(10)
    assert world.told() == [("firing", "host/h2/gpu")]


@pytest.mark.parametrize("cause", ["thermal_throttling", None, "ecc_errors"])
def test_expected_is_quiet_on_that_host_for_that_kind(cause: str | None) -> None:
    world = World()
    world.ask(Expected("e1", "h1", "gpu", "thermal_throttling", START + 100 * SECOND, "ada", "burn-in"))
    world.feed(
        episode("h1", 0, cause=cause),
        episode("h2", 0, cause=cause),
        episode("h1", 0, number=1, subsystem="cpu", cause="x"),
    )
    world.run(10)
    quiet = cause != "ecc_errors"
    assert (("firing", KEY) in world.told()) == (not quiet)
    assert {("firing", "host/h2/gpu"), ("firing", "host/h1/cpu")} <= set(world.told())
    if cause is None:
        # It turns out to be something else.
        world.feed(episode("h1", world.at, "updated", revision=1, cause="ecc_errors"))
        world.run(6)
        assert ("firing", KEY) in world.told()
    world.run(100)
    assert ("firing", KEY) in world.told()
    assert world.engine.expected == {}


def test_maintenance_windows() -> None:
    monday_2200 = Maintenance("patches", Matcher(), days=(0,), from_s=22 * 3600, to_s=2 * 3600)
    midnight = 1_790_000_000 // 86_400 * 86_400  # 2026-09-21, a Monday
    for hour, running in ((21.9, False), (22, True), (23.5, True), (25.9, True), (26, False), (46, False)):
        assert monday_2200.running(int((midnight + hour * 3600) * SECOND)) is running
    world = World(
        '[[maintenance]]\nname = "move"\nmatch = {host = "h*"}\n'
        "starts = 2026-09-21T00:00:00Z\nends = 2026-09-22T00:00:00Z"
    )
    world.feed(episode("h1", 0))
    world.run(10)
    assert world.states(KEY) == ["silenced"]
    assert world.alerts[0].reason == "maintenance move"


# Groups


RACKS = """
[fleet]
hosts = 1000
[labels]
pattern = "(?P<zone>z[0-9])-(?P<rack>r[0-9])-"
[grouping]
labels = {rack = 3, zone = 6}
cause = 12
"""


def test_hosts_of_a_rack_are_one_alert() -> None:
    world = World(RACKS)
    world.feed(*(episode(f"z1-r1-h{number}", 0) for number in range(4)), episode("z2-r5-h1", 0))
    world.run(15)
    assert sorted(world.told()) == [("firing", "host/z2-r5-h1/gpu"), ("firing", "label/rack/r1/thermal_throttling")]
    group = next(each.alerts[0] for _, each in world.sent["log"] if each.alerts[0].scope == "label")
    assert group.summary.startswith("rack r1: 4 hosts, gpu, probable cause thermal throttling, since")
    assert group.labels == {"zone": "z1", "rack": "r1"}
    assert {alert.parent for alert in world.alerts if alert.host.startswith("z1") and alert.state == "updated"} == {
        group.key
    }
    for number in range(4):
        world.feed(episode(f"z1-r1-h{number}", world.at, "closed", revision=1))
    world.run(130)
    assert [key for state, key in world.told() if state == "resolved"] == [group.key]


@pytest.mark.parametrize(
    ("hosts", "key"),
    [
        ([f"z1-r{number % 4}-h{number}" for number in range(8)], "label/zone/z1/thermal_throttling"),
        ([f"z{number % 4}-r{number}-h" for number in range(10)] + ["z5-r1-h", "z5-r2-h"], "cause/thermal_throttling"),
    ],
)
def test_wider_groups(hosts: list[str], key: str) -> None:
    world = World(RACKS)
    world.feed(*(episode(host, 0) for host in hosts))
    world.run(15)
    assert world.told() == [("firing", key)]
    assert world.engine.alerts[key].hosts == sorted(hosts)


def test_late_comers_join_and_what_was_told_alone_goes_on_alone() -> None:
    world = World(RACKS)
    for number in range(5):
        world.feed(episode(f"z1-r1-h{number}", world.at))
        world.run(10)
    group = "label/rack/r1/thermal_throttling"
    assert world.told() == [
        ("firing", "host/z1-r1-h0/gpu"),
        ("firing", "host/z1-r1-h1/gpu"),
        ("firing", group),
    ]
    assert len(world.engine.alerts[group].hosts) == 5
    for number in range(5):
        world.feed(episode(f"z1-r1-h{number}", world.at, "closed", revision=1))
    world.run(130)
    assert sorted(key for state, key in world.told() if state == "resolved") == sorted({key for _, key in world.told()})


def test_other_causes_do_not_make_a_group() -> None:
    world = World(RACKS)
    world.feed(*(episode(f"z1-r1-h{number}", 0, cause=f"cause{number}") for number in range(4)))
    world.run(10)
    assert {key for _, key in world.told()} == {f"host/z1-r1-h{number}/gpu" for number in range(4)}


def test_the_breaker_closes_and_single_hosts_are_told_again() -> None:
    world = World("[breaker]\nhosts = 20\ncalm = 300")
    world.feed(*(episode(f"h{number}", 0) for number in range(30)))
    world.run(20)
    assert world.told() == [("firing", "fleet")]
    assert "fleet: 30 hosts at once, mostly thermal throttling" in world.sent["log"][0][1].alerts[0].summary
    for number in range(29):
        world.feed(episode(f"h{number}", world.at, "closed", revision=1))
    world.feed(episode("h29", world.at, "updated", revision=1))
    world.run(400)
    # One of them goes on for long, in the alert of the fleet; it must not swallow what comes later.
    world.feed(episode("new", world.at))
    world.run(10)
    assert world.told()[-1] == ("firing", "host/new/gpu")
    world.feed(episode("h29", world.at, "closed", revision=2))
    world.run(130)
    assert ("resolved", "fleet") in world.told()
    assert "fleet: 30 hosts" in next(
        each.alerts[0].summary for _, each in world.sent["log"] if each.alerts[0].state == "resolved"
    )


def test_half_of_a_known_fleet_trips_the_breaker_and_a_handful_does_not() -> None:
    world = World("[fleet]\nhosts = 30")
    world.feed(*(episode(f"h{number}", 0, cause=f"c{number}") for number in range(14)))
    world.run(10)
    assert len(world.told()) == 14
    world = World("[fleet]\nhosts = 30")
    world.feed(*(episode(f"h{number}", 0, cause=f"c{number}") for number in range(15)))
    world.run(10)
    assert world.told() == [("firing", "fleet")]


# Receivers


def test_routes_by_severity_label_and_continue() -> None:
    world = World(
        """
[labels.hosts.h1]
team = "blue"
[receivers.pager]
channel = "pagerduty"
routing_key = "k"
[receivers.chat]
channel = "slack"
url = "https://x.invalid"
[receivers.blue]
channel = "log"
[[routes]]
match = {team = "blue"}
receivers = ["blue"]
continue = true
[[routes]]
match = {severity = "critical"}
receivers = ["pager", "chat"]
[[routes]]
receivers = ["chat"]
"""
    )
    world.feed(episode("h1", 0, severity=11.0), episode("h2", 0))
    world.run(10)
    assert world.told("pager") == [("firing", KEY)]
    assert sorted(world.told("chat")) == [("firing", KEY), ("firing", "host/h2/gpu")]
    assert world.told("blue") == [("firing", KEY)]


def failing(
    until: float, status: str = FAILED, retry_after_s: float | None = None
) -> Callable[[Notification], Outcome]:
    def answer(notification: Notification) -> Outcome:
        if world_of[0].at < until:
            return Outcome(status, 1.0, 500, "no", retry_after_s)
        return Outcome(DELIVERED, 1.0, 200)

    world_of: list[World] = []
    answer.world_of = world_of  # type: ignore[attr-defined]
    return answer


def failing_world(routing: str, until: float, status: str = FAILED, retry_after_s: float | None = None) -> World:
    answer = failing(until, status, retry_after_s)
    world = World(routing, answer)
    answer.world_of.append(world)  # type: ignore[attr-defined]
    return world


def test_a_receiver_that_fails_is_tried_with_growing_pauses_and_told_the_present() -> None:
    world = failing_world(PAGER, 3600)
    world.feed(episode("h1", 0), episode("gone", 0))
    world.run(60)
    world.feed(episode("gone", 60, "closed", revision=1))
    for revision in range(1, 70):
        world.run(60)
        world.feed(episode("h1", world.at, "updated", revision=revision))
    tries = [at for at, _ in world.sent["pager"] if at < 3600]
    pauses = [later - earlier for earlier, later in pairwise(tries) if later > earlier]
    assert pauses == sorted(pauses)
    assert 200 <= pauses[-1] <= 301
    assert len(tries) < 30
    delivered = [each for at, each in world.sent["pager"] if at >= 3600]
    assert [(each.alerts[0].state, each.alerts[0].host) for each in delivered] == [("firing", "h1")]
    failed = [each for each in world.deliveries if each.status == "failed"]
    assert len({(each.id, each.attempt) for each in failed}) == len(failed) == len(tries)
    assert {each.code for each in failed} == {500}


def test_retry_after_is_honoured() -> None:
    world = failing_world(PAGER, 20, retry_after_s=120)
    world.feed(episode("h1", 0))
    world.run(200)
    first, second = (at for at, _ in world.sent["pager"])
    assert 120 <= second - first <= 122


def test_what_is_refused_is_not_tried_again_and_the_next_news_is() -> None:
    world = failing_world(PAGER, 20, REFUSED)
    world.feed(episode("h1", 0))
    world.run(400)
    assert len(world.sent["pager"]) == 1
    assert [each.status for each in world.deliveries] == ["refused"]
    world.feed(episode("h1", world.at, "closed", revision=1))
    world.run(130)
    assert world.told("pager")[-1] == ("resolved", KEY)


def test_a_dead_receiver_does_not_hold_up_the_others() -> None:
    routing = (
        '[receivers.dead]\nchannel = "slack"\nurl = "https://x.invalid"\n[receivers.log]\nchannel = "log"\n'
        '[[routes]]\nreceivers = ["dead", "log"]'
    )
    world = World(routing, lambda each: Outcome(FAILED if each.receiver == "dead" else DELIVERED, 1.0))
    world.feed(*(episode(f"h{number}", 0, cause=f"c{number}") for number in range(9)))
    world.run(10)
    assert len(world.told("log")) == 9


def test_a_full_queue_is_filled_as_it_empties() -> None:
    world = World(free=2)
    world.feed(*(episode(f"h{number}", 0, cause=f"c{number}") for number in range(9)))
    world.run(6)
    assert len(world.told()) == 4  # two turns
    world.run(10)
    assert len(world.told()) == 9


def test_limits_digest_and_refill() -> None:
    world = World(CHAT + "[grouping]\ncause = 0\n[breaker]\nhosts = 1000\nleast = 1000")
    for number in range(40):
        world.feed(episode(f"h{number}", world.at, cause=f"c{number}"))
        world.run(10)
    sent = [each for _, each in world.sent["chat"]]
    # A burst of 10, and 30 an hour: one each two minutes.
    assert len(sent) <= 10 + 400 / 120 + 1
    assert sum(each.digest for each in sent) >= 2
    world.run(240)
    assert {alert.host for _, each in world.sent["chat"] for alert in each.alerts} == {
        f"h{number}" for number in range(40)
    }


def test_ends_cost_nothing_where_they_page_nobody() -> None:
    world = World(
        PAGER.replace('"k"', '"k"\nlimit = {burst = 3, per_hour = 1}')
        + "[grouping]\ncause = 0\n[breaker]\nhosts = 99\nleast = 99"
    )
    world.feed(*(episode(f"h{number}", 0, cause=f"c{number}") for number in range(8)))
    world.run(10)
    assert [len(each.alerts) for _, each in world.sent["pager"]] == [1, 1, 6]
    world.feed(*(episode(f"h{number}", world.at, "closed", revision=1) for number in range(8)))
    world.run(130)
    assert sorted(key for state, key in world.told("pager") if state == "resolved") == [
        f"host/h{n}/gpu" for n in range(8)
    ]


def test_alertmanager_is_told_again_in_time_and_in_one_request() -> None:
    world = World(MANAGER)
    world.feed(*(episode(f"h{number}", 0, cause=f"c{number}") for number in range(5)))
    world.run(300)
    times = [at for at, _ in world.sent["am"]]
    assert len(times) == 5
    assert max(later - earlier for earlier, later in pairwise(times)) <= 61
    assert {len(each.alerts) for _, each in world.sent["am"]} == {5}
    # Each minute for hours: what says nothing new is not recorded.
    assert len(world.deliveries) == 1


def test_receivers_that_want_no_ends_and_no_updates() -> None:
    world = World(CHAT.replace('invalid"', 'invalid"\nresolved = false\nupdates = false'))
    world.feed(episode("h1", 0, cause=None))
    world.run(10)
    world.feed(episode("h1", 10, "updated", revision=1))
    world.run(400)
    world.feed(episode("h1", world.at, "closed", revision=2))
    world.run(130)
    assert world.told("chat") == [("firing", KEY)]
    world.feed(episode("h1", world.at, number=1))
    world.run(10)
    assert world.told("chat") == [("firing", KEY)] * 2


# Restarts


def test_a_restart_between_delivery_and_note_tells_the_same_again() -> None:
    world = World(PAGER)
    world.feed(episode("h1", 0))
    world.run(4)
    stored = dict(world.state)
    world.run(1)
    assert len(world.sent["pager"]) == 1
    world.state = stored
    world.die_and_return()
    world.run(1)
    first, again = (each for _, each in world.sent["pager"])
    assert again.alerts[0].key == first.alerts[0].key
    assert again.id == first.id


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(1, 90)), max_size=40),
    st.sets(st.integers(0, 39)),
    st.sets(st.integers(0, 39)),
)
def test_whatever_happens_receivers_end_with_the_truth(
    happenings: list[tuple[int, bool, int]], crashes: set[int], outages: set[int]
) -> None:
    down = [False]
    world = World(
        PAGER + RACKS,
        lambda _: Outcome(FAILED, 1.0) if down[0] else Outcome(DELIVERED, 1.0),
    )
    number: dict[int, int] = {}
    is_open: dict[int, bool] = {}
    for index, (host, opens, pause) in enumerate(happenings):
        name = f"z1-r{host % 2}-h{host}"
        down[0] = index in outages
        if opens and not is_open.get(host):
            number[host] = number.get(host, -1) + 1
            world.feed(episode(name, world.at, number=number[host]))
        elif not opens and is_open.get(host):
            world.feed(episode(name, world.at, "closed", number=number[host], revision=1))
        is_open[host] = opens and (is_open.get(host, False) or opens)
        world.run(pause, 5)
        if index in crashes:
            world.die_and_return()
    down[0] = False
    for host in [host for host, opened in is_open.items() if opened]:
        world.feed(episode(f"z1-r{host % 2}-h{host}", world.at, "closed", number=number[host], revision=9))
    world.run(1200, 5)
    assert {alert.state for alert in world.engine.alerts.values()} <= OVER
    believed: dict[str, str] = {}
    for (_, notification), delivery in zip(world.sent["pager"], world.deliveries, strict=True):
        if delivery.status == "delivered":
            believed |= {alert.key: alert.state for alert in notification.alerts}
    assert set(believed.values()) <= {"resolved", "expired"}


# Forms


def test_state_survives_its_form_and_other_versions() -> None:
    world = World(RACKS)
    world.feed(*(episode(f"z1-r1-h{number}", 0) for number in range(4)))
    world.run(10)
    for alert in world.engine.alerts.values():
        assert decode_held(alert.encode()) == alert
    assert decode_held(b'{"key":"k","scope":"host","of_tomorrow":1}') == Held("k", "host")
    for broken in (b"", b"[]", b"{}", b'{"key":1}', b'{"key":"k","told":{"a":{"x":1}}}'):
        with pytest.raises(ValueError, match=r".*"):
            decode_held(broken)


@pytest.mark.parametrize("command", [Ack("k", "ada", "c"), silence(), Expected("e", "h", "gpu", None, 5, "ada", "n")])
def test_commands_survive_their_form(command: Ack | Silence | Expected) -> None:
    key, value = encode_command(command)
    assert value is not None
    assert decode_command(key.decode(), value) == command
    for broken in (b"", b"{}", b"[]", b'{"id":1}'):
        with pytest.raises(ValueError, match=r".*"):
            decode_command(key.decode(), broken)


def test_keys_are_readable_and_short() -> None:
    assert make_key("host", "a/b", "gpu") == "host/a_b/gpu"
    long = make_key("host", "x" * 400, "gpu")
    assert len(long) <= 200
    assert long != make_key("host", "x" * 401, "gpu")
    assert len(short_id(long)) == 12


def test_severity_goes_by_the_cause_and_never_down_once_it_is_told() -> None:
    world = World(PAGER + '[[routes]]\nreceivers = ["pager"]\n[severity.causes]\ngpu_lost = "critical"')
    world.feed(episode("h1", 0, severity=50.0, cause=None))
    world.run(1)
    assert world.engine.alerts[KEY].severity == "critical"
    world.feed(episode("h1", 1, "updated", revision=1, severity=50.0, cause="checkpoint"))
    world.run(10)
    assert world.sent["pager"][0][1].alerts[0].severity == "info"
    world.feed(episode("h1", 11, "updated", revision=2, severity=3.0, cause="gpu_lost"))
    world.run(310)
    world.feed(episode("h1", world.at, "updated", revision=3, severity=3.0, cause="checkpoint"))
    world.run(310)
    assert [each.alerts[0].severity for _, each in world.sent["pager"][1:]] == ["critical", "critical"]
