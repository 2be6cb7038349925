"""The contract of all channels: what they send, and what they make of a receiver that fails, hangs or asks to wait."""

from __future__ import annotations

import email
import email.policy
import json
import logging
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from schemas.codec import decode
from schemas.records import Alert
from sinks.alerts.channels import CHANNELS
from sinks.alerts.channels.base import Channel, ChannelError, Surroundings
from sinks.alerts.channels.http import retry_seconds
from sinks.alerts.channels.options import OptionError, check_options, resolve_options
from sinks.alerts.channels.webhook import SIGNATURE, TIMESTAMP, sign
from sinks.alerts.notification import Notification
from tests.unit.sinks.alerts.servers import HttpReceiver, SmtpReceiver
from tests.unit.sinks.alerts.simulated import START, World, episode

NOW_NS = START + 60 * 1_000_000_000
HTTP = ("alertmanager", "webhook", "slack", "pagerduty")
REMOTE = (*HTTP, "email")


def alert(**changes: object) -> Alert:
    """A real one, from the engine."""
    world = World('[labels.hosts.gpu-017]\nrack = "r12"\n[links]\nconsole = "https://console.invalid/{host}"')
    world.feed(episode("gpu-017", 0, severity=11.0))
    world.run(6)
    (found,) = world.sent["log"][0][1].alerts
    return replace(found, **changes)  # type: ignore[arg-type]


def notification(*alerts: Alert, digest: bool = False) -> Notification:
    return Notification("n1", "receiver", alerts or (alert(),), 1, digest)


@dataclass
class Bench:
    """A channel with the server that it talks to."""

    http: HttpReceiver
    smtp: SmtpReceiver
    produced: list[tuple[str, bytes, bytes]]

    def options(self, name: str) -> dict[str, Any]:
        url = self.http.url
        given: dict[str, dict[str, Any]] = {
            "log": {},
            "kafka": {"topic": "team.alerts"},
            "alertmanager": {"urls": [url], "timeout": 0.5},
            "webhook": {"url": f"{url}/hook?token=hidden", "secret": "hidden too", "timeout": 0.5},
            "slack": {"url": f"{url}/services/hidden", "timeout": 0.5},
            "pagerduty": {"routing_key": "hidden", "url": f"{url}/v2/enqueue", "timeout": 0.5},
            "email": {
                "host": "127.0.0.1",
                "port": self.smtp.port,
                "security": "none",
                "timeout": 0.5,
                "sender": "reveal@example.invalid",
                "to": ["ops@example.invalid"],
            },
            "apprise": {"urls": ["json://hidden"]},
        }
        return given[name]

    def channel(self, name: str, **more: Any) -> Channel:
        kind = CHANNELS[name]
        surroundings = Surroundings(lambda: NOW_NS, lambda *record: self.produced.append(record))
        return kind.build(resolve_options(kind.options, self.options(name) | more, {}), surroundings)

    def received(self, name: str) -> str:
        """Everything that the receiver of a channel has got, as text."""
        if name == "kafka":
            return repr([decode(value) for _, _, value in self.produced])
        if name == "email":
            return "".join(
                str(email.message_from_string(mail, policy=email.policy.default).get_content())
                for mail in self.smtp.mails
            )
        return "".join(request.body.decode() for request in self.http.requests)

    def fail(self, status: int, headers: Mapping[str, str] | None = None) -> None:
        self.http.behaviour.status = status
        self.http.behaviour.headers = headers or {}
        self.smtp.replies = {"end": f"{451 if status in (429, 500, 503) else 554} no"}


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(HttpReceiver(), SmtpReceiver(), [])
    yield made
    made.http.close()
    made.smtp.close()


@pytest.fixture
def fake_apprise(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stands for the package, which is not among ours: the part of its interface that the channel uses."""
    sent: list[dict[str, Any]] = []

    class Apprise:
        works = True

        def add(self, url: str) -> bool:
            return url.startswith("json://")

        def notify(self, **message: Any) -> bool:
            sent.append(message)
            return self.works

    module = types.ModuleType("apprise")
    module.Apprise = Apprise  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "apprise", module)
    return sent


@pytest.mark.parametrize("name", [name for name in CHANNELS if name not in ("log", "apprise")])
def test_tells_the_essentials(bench: Bench, name: str) -> None:
    bench.channel(name).send(notification())
    text = bench.received(name)
    for part in ("gpu-017", "gpu", "thermal", "gpu.temperature on gpu3: 92 C, usually 60", "Look at the fans"):
        assert part in text


def test_the_log_has_a_line_an_alert(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        bench.channel("log").send(notification(alert(), alert(host="other")))
    assert len(caplog.messages) == 2
    assert caplog.messages[0].startswith("CRITICAL gpu-017: gpu, probable cause thermal throttling, since 2026-")


@pytest.mark.parametrize("name", REMOTE)
@pytest.mark.parametrize(("status", "again"), [(500, True), (503, True), (429, True), (400, False), (404, False)])
def test_what_is_tried_again_and_what_is_not(bench: Bench, name: str, status: int, again: bool) -> None:
    channel = bench.channel(name)
    bench.fail(status)
    with pytest.raises(ChannelError) as caught:
        channel.send(notification())
    assert caught.value.again is again
    assert caught.value.code == (status if name != "email" else 451 if again else 554)
    assert "hidden" not in str(caught.value)
    bench.fail(200)
    bench.smtp.replies = {}
    channel.send(notification())
    assert "gpu-017" in bench.received(name)


@pytest.mark.parametrize("name", HTTP)
def test_retry_after_is_passed_on(bench: Bench, name: str) -> None:
    bench.fail(429, {"Retry-After": "17"})
    with pytest.raises(ChannelError) as caught:
        bench.channel(name).send(notification())
    assert caught.value.retry_after_s == 17


def test_retry_after_may_be_a_date_and_nonsense_is_none() -> None:
    assert retry_seconds("Wed, 21 Oct 2026 07:28:00 GMT", 1_792_567_670.0) == pytest.approx(10)
    assert retry_seconds("soon", 0.0) is None
    assert retry_seconds(None, 0.0) is None


@pytest.mark.parametrize("name", REMOTE)
def test_a_receiver_that_hangs_costs_its_timeout(bench: Bench, name: str) -> None:
    bench.http.behaviour.hangs = bench.smtp.hangs = True
    began = time.monotonic()
    with pytest.raises(ChannelError, match=r"did not answer within 0\.5 s") as caught:
        bench.channel(name).send(notification())
    assert caught.value.again
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("name", REMOTE)
def test_a_receiver_that_is_not_there_is_tried_again(bench: Bench, name: str) -> None:
    channel = bench.channel(name)
    bench.http.close()
    bench.smtp.close()
    with pytest.raises(ChannelError) as caught:
        channel.send(notification())
    assert caught.value.again
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("name", HTTP)
def test_redirections_are_not_followed(bench: Bench, name: str) -> None:
    bench.fail(302, {"Location": f"{bench.http.url}/elsewhere"})
    with pytest.raises(ChannelError) as caught:
        bench.channel(name).send(notification())
    assert not caught.value.again
    assert len(bench.http.requests) == 1


def test_webhook_signs_time_and_body(bench: Bench) -> None:
    bench.channel("webhook", headers={"X-Team": "infra"}).send(notification())
    (request,) = bench.http.requests
    assert request.path == "/hook?token=hidden"
    assert request.headers[TIMESTAMP] == str(NOW_NS // 1_000_000_000)
    assert request.headers[SIGNATURE] == f"sha256={sign('hidden too', request.headers[TIMESTAMP], request.body)}"
    assert sign("hidden too", "0", request.body) not in request.headers[SIGNATURE]
    assert (request.headers["Idempotency-Key"], request.headers["X-Team"]) == ("n1", "infra")
    (told,) = request.json["alerts"]
    assert (told["state"], told["host"], told["severity"]) == ("firing", "gpu-017", "critical")
    assert request.json["version"] == 1


def test_pagerduty_triggers_acknowledges_and_resolves_by_key(bench: Bench) -> None:
    channel = bench.channel("pagerduty")
    for state in ("firing", "updated", "acknowledged", "resolved", "expired"):
        channel.send(notification(alert(state=state)))
    events = [request.json for request in bench.http.requests]
    assert [event["event_action"] for event in events] == ["trigger", "trigger", "acknowledge", "resolve", "resolve"]
    assert {event["dedup_key"] for event in events} == {"host/gpu-017/gpu"}
    assert {event["routing_key"] for event in events} == {"hidden"}
    payload = events[0]["payload"]
    assert (payload["source"], payload["severity"], payload["component"]) == ("gpu-017", "critical", "gpu")
    assert payload["timestamp"].endswith("Z")
    assert events[0]["links"] == [{"href": "https://console.invalid/gpu-017", "text": "console"}]
    bench.channel("pagerduty").send(notification(alert(), alert(key="k2"), digest=True))
    digest = bench.http.requests[-1].json["payload"]
    assert digest["summary"].endswith("and 1 more that the rate limit held back")
    assert len(digest["custom_details"]["others"]) == 1


def test_alertmanager_labels_times_and_changed_labels(bench: Bench) -> None:
    channel = bench.channel("alertmanager", token="hidden")
    channel.send(notification(alert(severity="warning")))
    (first,) = bench.http.requests[0].json
    assert bench.http.requests[0].path == "/api/v2/alerts"
    assert bench.http.requests[0].headers["Authorization"] == "Bearer hidden"
    assert first["labels"]["rack"] == "r12"
    assert first["labels"]["alertname"] == "RevealAnomaly"
    assert first["startsAt"] < first["endsAt"]
    assert first["annotations"]["summary"].startswith("gpu-017: gpu")
    # It is known by its labels: what was a warning is over when it is critical.
    channel.send(notification(alert(severity="critical")))
    old, new = bench.http.requests[1].json
    assert (old["labels"]["severity"], new["labels"]["severity"]) == ("warning", "critical")
    assert old["endsAt"] <= "2026-09-21T14:14:20.000Z" < new["endsAt"]
    channel.send(notification(alert(state="resolved", resolved_ns=NOW_NS)))
    (over,) = bench.http.requests[2].json
    assert over["labels"] == new["labels"]
    assert over["endsAt"] == "2026-09-21T14:14:20.000Z"


def test_alertmanager_needs_one_instance_of_its_cluster(bench: Bench) -> None:
    other = HttpReceiver()
    other.behaviour.status = 500
    try:
        channel = bench.channel("alertmanager", urls=[other.url, bench.http.url])
        assert channel.send(notification()) == 200
        assert len(bench.http.requests) == len(other.requests) == 1
        bench.fail(400)
        with pytest.raises(ChannelError) as caught:
            channel.send(notification())
        assert caught.value.again
    finally:
        other.close()


def test_slack_escapes_and_marks(bench: Bench) -> None:
    channel = bench.channel("slack")
    channel.send(notification(alert(description="a <b> & c")))
    channel.send(notification(alert(state="resolved", resolved_ns=NOW_NS)))
    first, second = (request.json["text"] for request in bench.http.requests)
    assert first.startswith(":rotating_light: *CRITICAL gpu-017")
    assert "a &lt;b&gt; &amp; c" in first
    assert second.startswith(":white_check_mark: *RESOLVED gpu-017")
    assert "over after 1 min" in second


def test_mail_has_a_thread_and_plain_headers(bench: Bench) -> None:
    channel = bench.channel("email", to=["a@example.invalid", "b@example.invalid"])
    channel.send(notification(alert(summary="one\nBcc: evil@example.invalid")))
    channel.send(notification(alert(state="resolved", resolved_ns=NOW_NS)))
    first, second = (email.message_from_string(mail, policy=email.policy.default) for mail in bench.smtp.mails)
    assert first["Bcc"] is None
    assert first["To"] == "a@example.invalid, b@example.invalid"
    assert first["References"] == second["References"]
    assert second["Subject"].startswith("RESOLVED gpu-017: gpu")


def test_mail_to_an_address_that_is_refused_is_not_tried_again(bench: Bench) -> None:
    bench.smtp.replies = {"RCPT": "550 nobody"}
    with pytest.raises(ChannelError, match="refused all addresses") as caught:
        bench.channel("email").send(notification())
    assert not caught.value.again


def test_mail_sends_no_password_in_clear_and_wants_starttls(bench: Bench) -> None:
    with pytest.raises(OptionError, match="anybody can read"):
        bench.channel("email", username="u", password="hidden")
    with pytest.raises(ChannelError, match="STARTTLS"):
        bench.channel("email", security="starttls").send(notification())
    assert bench.smtp.mails == []


def test_kafka_publishes_the_alert_under_its_key_and_not_into_ours(bench: Bench) -> None:
    bench.channel("kafka").send(notification())
    ((topic, key, value),) = bench.produced
    assert (topic, key) == ("team.alerts", b"host/gpu-017/gpu")
    assert decode(value) == alert()
    with pytest.raises(ChannelError, match=r"reveal\.alerts has every alert"):
        bench.channel("kafka", topic="reveal.verdicts").send(notification())


def test_apprise(bench: Bench, fake_apprise: list[dict[str, Any]]) -> None:
    channel = bench.channel("apprise")
    channel.send(notification())
    channel.send(notification(alert(state="resolved", resolved_ns=NOW_NS)))
    assert [message["notify_type"] for message in fake_apprise] == ["failure", "success"]
    assert "Look at the fans" in fake_apprise[0]["body"]
    channel._apprise.works = False  # type: ignore[attr-defined]
    with pytest.raises(ChannelError, match="could not deliver"):
        channel.send(notification())
    with pytest.raises(OptionError, match="does not understand number 1"):
        bench.channel("apprise", urls=["nonsense://hidden"])


def test_apprise_that_is_missing_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(OptionError, match="pip install apprise"):
        bench.channel("apprise")


def test_secrets_come_from_variables_and_files_and_do_not_show(tmp_path: Any, bench: Bench) -> None:
    options = CHANNELS["webhook"].options
    (tmp_path / "key").write_text("from a file\n")
    given = {"url": "https://x.invalid/${TOKEN}", "secret_file": str(tmp_path / "key")}
    made = resolve_options(options, given, {"TOKEN": "from the environment"})
    assert (made.url, made.secret) == ("https://x.invalid/from the environment", "from a file")
    assert "from a" not in repr(made)
    assert "from the" not in repr(made)
    with pytest.raises(OptionError, match="url: the variable TOKEN is not set"):
        resolve_options(options, given, {})
    with pytest.raises(OptionError, match="secret_file: cannot read"):
        resolve_options(options, given | {"secret_file": "/nowhere"}, {"TOKEN": "t"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda given: given.pop("url"), "url: is missing"),
        (lambda given: given.update(urll="x"), "urll: is not known; known are url, secret"),
        (lambda given: given.update(timeout="long"), "timeout: must be a number"),
        (lambda given: given.update(headers=["x"]), "headers: must be a table of texts"),
        (lambda given: given.update(secret_file="x"), "secret_file: is given together with secret"),
    ],
)
def test_wrong_options_are_told(change: Callable[[dict[str, Any]], object], words: str) -> None:
    given: dict[str, Any] = {"url": "https://x.invalid", "secret": "s"}
    change(given)
    with pytest.raises(OptionError, match=words):
        check_options(CHANNELS["webhook"].options, given)


def test_every_channel_has_a_style_and_a_limit_that_fits() -> None:
    for name, kind in CHANNELS.items():
        assert kind.style in ("message", "state", "batch"), name
        assert kind.limit.unlimited == (kind.style == "batch" or name == "log")
        assert not kind.again_s or kind.style == "batch"
        assert json.dumps(sorted(kind.options.__slots__)) is not None
