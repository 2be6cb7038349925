"""The routing file: what it means, and that whatever is wrong is told with its place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sinks.alerts.channels import CHANNELS
from sinks.alerts.channels.base import Surroundings
from sinks.alerts.duration import in_words, parse_duration
from sinks.alerts.limits import Limit
from sinks.alerts.receivers import build_channels
from sinks.alerts.routing import Routing
from sinks.alerts.routing_file import RoutingError, parse_routing, read_routing

ROUTE = '[[routes]]\nreceivers = ["a"]\n'
LOG = '[receivers.a]\nchannel = "log"\n'


def test_nothing_is_the_default_which_tells_the_log() -> None:
    assert parse_routing("") == Routing() == read_routing(None)
    assert list(Routing().receivers) == ["log"]


def test_everything() -> None:
    routing = parse_routing(
        """
[timing]
wait = "10s"
keep_firing = "1h30m"
stale = 1200
[severity]
critical = 12
causes = {gpu_ecc = "critical"}
[labels]
pattern = '(?P<zone>z\\d)-(?P<rack>r\\d+)-'
[labels.hosts.odd]
rack = "r0"
[grouping]
window = "10m"
labels = {rack = 4, zone = 9}
cause = 0
[breaker]
hosts = 40
share = 0.25
[fleet]
hosts = 2000
[links]
console = "https://console.example/{host}?e={episode}"
[receivers.a]
channel = "slack"
url = "${HOOK}"
limit = {burst = 5, per_hour = 6}
updates = false
[receivers.b]
channel = "webhook"
url = "https://example.invalid"
[[routes]]
match = {severity = "critical", rack = ["r1", "r2"]}
receivers = ["a", "b"]
continue = true
[[routes]]
receivers = "b"
[[maintenance]]
name = "patches"
match = {zone = "z1"}
days = ["mon", "sun"]
from = "22:30"
to = 02:00:00
"""
    )
    assert (routing.timing.wait, routing.timing.keep_firing, routing.timing.stale) == (10, 5400, 1200)
    assert routing.severity.of(3, "gpu_ecc") == routing.severity.of(12, None) == "critical"
    assert routing.severity.of(12, "checkpoint") == "info"
    assert routing.labels.of("z1-r12-h7") == {"zone": "z1", "rack": "r12"}
    assert routing.labels.of("odd") == {"rack": "r0"}
    assert list(routing.grouping.labels.items()) == [("rack", 4), ("zone", 9)]
    assert (routing.breaker.hosts, routing.breaker.share, routing.fleet) == (40, 0.25, 2000)
    assert routing.receivers["a"].limit == Limit(5, 6.0)
    assert not routing.receivers["a"].updates
    assert routing.receivers["b"].limit == Limit(60, 600)
    assert [route.receivers for route in routing.routes] == [("a", "b"), ("b",)]
    assert routing.routes[0].goes_on
    assert routing.routes[0].matcher.words() == "rack=r1,r2 severity>=critical"
    (window,) = routing.maintenance
    assert (window.days, window.from_s, window.to_s) == ((0, 6), 81_000, 7_200)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = 1", "a: is not known; known are timing"),
        ("[", "is not TOML"),
        ("[timing]\nwait = 'soon'", "timing.wait: 'soon' is no span of time"),
        ("[timing]\nwait = -1", "timing.wait"),
        ("[timing]\nwaits = 1", "timing.waits: is not known; known are wait"),
        ("[severity]\ncritical = 1\nwarning = 2", "severity.critical: must not be below"),
        ("[severity]\ncauses = {x = 'bad'}", "severity.causes.x: must be one of info"),
        ("[labels]\npattern = '('", "labels.pattern: is no regular expression"),
        ("[labels]\npattern = 'x'", "labels.pattern: names no label"),
        ("[labels.hosts]\nh1 = 'r1'", "labels.hosts: must be such as"),
        ("[labels.hosts.h1]\nrack = 1", "labels.hosts.h1.rack: must be a text"),
        ("[grouping]\nlabels = {rack = 'x'}", "grouping.labels.rack: must be a whole number"),
        ("[breaker]\nshare = 2", "breaker.share: must be above 0 and at most 1"),
        ("[breaker]\nhosts = 1", "breaker.hosts: must be at least 2"),
        ("[links]\nconsole = 'x'", "links.console: must begin with https"),
        ("[links]\nconsole = 'https://x/{hosts}'", r"links.console: there is no {hosts}; there are episode, host"),
        ("[receivers]", "receivers: must be tables"),
        ("[receivers.a]\nchannel = 'pigeon'", "receivers.a.channel: must be one of log, kafka"),
        ("[receivers.a]\nchannel = 'webhook'", "receivers.a.url: is missing"),
        ("[receivers.a]\nchannel = 'log'\nx = 1", "receivers.a.x: is not known"),
        (LOG, "routes: there is none, so no receiver would be told"),
        (LOG + "limit = 3\n" + ROUTE, "receivers.a.limit: must be such as"),
        (LOG + "limit = {burst = 3, per_hour = 0}\n" + ROUTE, "receivers.a.limit.per_hour: must be above 0"),
        (LOG + "updates = 1\n" + ROUTE, "receivers.a.updates: must be true or false"),
        (LOG + "[[routes]]\nreceivers = ['b']", r"routes\[1\].receivers: there is no receiver 'b'; there are a"),
        (LOG + "[[routes]]\nreceivers = 3", r"routes\[1\].receivers: must be a text or a list"),
        (LOG + ROUTE + "match = {severity = 'bad'}", r"routes\[1\].match.severity: must be one of info"),
        (LOG + ROUTE + "match = {scope = 'rack'}", r"routes\[1\].match.scope: must be host, label"),
        (LOG + ROUTE + "match = 3", r"routes\[1\].match: must be such as"),
        ("[[routes]]\nreceivers = ['nobody']", r"routes\[1\].receivers: there is no receiver 'nobody'; there are log"),
        ("[[maintenance]]\nname = 'x'", r"maintenance\[1\]: needs starts and ends, or days"),
        ("[[maintenance]]\ndays = ['day']\nfrom = '1:00'\nto = '2:00'", r"maintenance\[1\].days: must be of mon"),
        ("[[maintenance]]\ndays = ['mon']\nfrom = '1'\nto = '2:00'", r"maintenance\[1\].from: must be a time of day"),
        ("[[maintenance]]\nstarts = 1\nends = 2", r"maintenance\[1\].starts: must be a time such as"),
        (
            "[[maintenance]]\nstarts = 2026-01-02T00:00:00Z\nends = 2026-01-01T00:00:00Z",
            r"maintenance\[1\].ends: must be later",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, words: str) -> None:
    with pytest.raises(RoutingError, match=words):
        parse_routing(text)


def test_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RoutingError, match=r"cannot read the routing file .*nothing\.toml"):
        read_routing(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("x = 1")
    with pytest.raises(RoutingError, match=r"bad\.toml: x: is not known"):
        read_routing(tmp_path / "bad.toml")


def test_the_file_in_the_documentation_has_all_defaults() -> None:
    page = (Path(__file__).parents[4] / "docs" / "alerts.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    routing, default = parse_routing(text), Routing()
    assert routing.timing == default.timing
    assert routing.breaker == default.breaker
    assert replace(routing.severity, causes=default.severity.causes) == default.severity
    assert replace(routing.grouping, labels={}) == default.grouping
    assert list(routing.receivers) == ["oncall", "chat", "prometheus"]
    for name, kind in CHANNELS.items():
        (row,) = re.findall(rf"^\| `{name}` \|(.*)\|$", page, re.MULTILINE)
        limit = "none" if kind.limit.unlimited else f"{kind.limit.burst}, {kind.limit.per_hour:g}/h"
        assert row.split("|")[1].strip() == limit
        assert all(f"`{option}`" in row for option in kind.options.__slots__)


def test_a_missing_secret_is_told_when_channels_are_built_and_not_before() -> None:
    routing = parse_routing('[receivers.a]\nchannel = "slack"\nurl = "${HOOK}"\n' + ROUTE)
    nowhere = Surroundings(lambda: 0, lambda *_: None)
    with pytest.raises(RoutingError, match=r"receivers\.a\.url: the variable HOOK is not set"):
        build_channels(routing, {}, nowhere)
    assert set(build_channels(routing, {"HOOK": "https://x.invalid"}, nowhere)) == {"a"}
    routing = parse_routing(
        '[receivers.a]\nchannel = "email"\nhost = "m"\nto = "o@x.invalid"\nsender = "r@x.invalid"\nsecurity = "no"\n'
        + ROUTE
    )
    with pytest.raises(RoutingError, match=r"receivers\.a\.security: must be one of starttls, tls, none"):
        build_channels(routing, {}, nowhere)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(90, 90), ("90", 90), ("90s", 90), ("1h30m", 5400), ("7d", 604_800), ("0.5m", 30), ("1W", 604_800)],
)
def test_spans(value: object, seconds: float) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize("value", ["", "h", "5x", "-5m", -1, None, True, float("inf"), "m5"])
def test_what_is_no_span(value: object) -> None:
    with pytest.raises(ValueError, match="is no span of time"):
        parse_duration(value)


def test_spans_in_words() -> None:
    assert [in_words(s) for s in (0, 59.6, 61, 7200, 7500, 90_000)] == [
        *("0 s", "1 min", "1 min 1 s", "2 h", "2 h 5 min", "1 d 1 h")
    ]
