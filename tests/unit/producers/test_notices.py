"""What several sources see is one thing; what is too much is counted."""

from __future__ import annotations

import pytest

from producers.notices import CAPACITY, LONGEST, REMEMBERED, SAME_NS, Notices

NOW = 1_790_000_000_000_000_000


def told(notices: Notices) -> list[tuple[str, str, str, int | None]]:
    return [(event.kind, event.instance, event.source, event.code) for event in notices.drain("h", "s", "1")]


def test_what_two_sources_tell_of_one_device_is_told_once() -> None:
    notices = Notices(lambda: NOW)
    for kind in ("link_down", "link_up", "link_down"):
        notices.add(kind, "network", "said", source="kernel log", instance="eth0")
    for kind in ("link_down", "link_up", "link_down"):
        notices.add(kind, "network", "seen", source="netlink", instance="eth0", time_ns=NOW + SAME_NS)
    assert told(notices) == [(kind, "eth0", "kernel log", None) for kind in ("link_down", "link_up", "link_down")]
    notices.add("link_down", "network", "seen", source="netlink", instance="eth0", time_ns=NOW + SAME_NS + 1)
    notices.add("link_down", "network", "seen", source="netlink", instance="eth1")
    notices.add("xid", "gpu", "said", source="kernel log", instance="gpu0", code=13)
    notices.add("xid", "gpu", "seen", source="nvml", instance="gpu0", code=13)
    notices.add("xid", "gpu", "seen", source="nvml", instance="gpu0", code=48)
    notices.add("oom_kill", "memory", "said", source="kernel log")
    notices.add("oom_kill", "memory", "seen", source="agent")
    assert told(notices) == [
        ("link_down", "eth0", "netlink", None),
        ("link_down", "eth1", "netlink", None),
        ("xid", "gpu0", "kernel log", 13),
        ("xid", "gpu0", "nvml", 48),
        ("oom_kill", "", "kernel log", None),
        ("oom_kill", "", "agent", None),
    ]


def test_events_are_counted_from_zero_without_gaps() -> None:
    notices = Notices(lambda: NOW)
    for _ in range(2):
        notices.add("link_down", "network", "said", source="kernel log", instance="eth0")
        notices.add("link_down", "network", "seen", source="netlink", instance="eth0")
    first = notices.drain("h", "s", "1")
    notices.add("suspend", "cpu", "x" * (2 * LONGEST))
    [last] = notices.drain("h", "s", "1")
    assert [event.sequence for event in (*first, last)] == [0, 1, 2]
    assert (last.host, last.session, last.agent, last.time_ns) == ("h", "s", "1", NOW)
    assert len(last.message) == LONGEST


def test_a_full_queue_counts_and_what_is_remembered_is_bounded() -> None:
    notices = Notices(lambda: NOW)
    for number in range(CAPACITY + 5):
        notices.add("disk_error", "storage", "x", instance=f"sd{number}")
    assert notices.lost == 5
    assert len(notices.drain("h", "s", "1")) == CAPACITY
    assert len(notices._told) == REMEMBERED


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'fan_stuck' is no kind of event; there are xid, "):
        Notices().add("fan_stuck", "cpu", "x")
