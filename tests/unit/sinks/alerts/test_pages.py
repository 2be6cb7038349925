"""The pages of the service: health, metrics, and feedback by signed links."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sinks.alerts.endpoint import site
from sinks.alerts.feedback import LINK_S, Links, judge
from sinks.alerts.held import Held
from sinks.alerts.service import Status
from tests.unit.sinks.alerts.simulated import SECOND, START

SECRET = "sixteen letters or more"
KEY = "host/h1/gpu"
HELD = Held(KEY, "host", "h1", subsystem="gpu", cause="ecc_errors", episodes={"e1": 3, "e2": 1})


class Bench:
    def __init__(self, secret: str = SECRET) -> None:
        self.now_ns, self.clock = START, 100.0
        self.status = Status(turned_s=100.0)
        self.links = Links(secret, "https://reveal.invalid/")
        self.stored: list[tuple[str, str, str, str]] = []
        self.pages = site(self.status, self.links, self.judge, clock=lambda: self.clock, now_ns=lambda: self.now_ns)

    def judge(self, key: str, verdict: str, by: str, note: str) -> str:
        if key != KEY:
            raise ValueError(f"there is no alert {key}")
        self.stored.append((key, verdict, by, note))
        return f"stored: {verdict}"

    def query(self, verdict: str = "false", key: str = KEY) -> str:
        return urlsplit(self.links.of(key, self.now_ns)[f"feedback_{verdict}"]).query


def test_a_look_stores_nothing_and_a_click_does() -> None:
    bench = Bench()
    code, _, page = bench.pages.get("/feedback", bench.query())
    assert (code, bench.stored) == (200, [])
    assert "is it a false alarm?" in page
    code, _, page = bench.pages.post("/feedback", bench.query(), urlencode({"by": " ada  l ", "note": "x" * 900}))
    assert (code, "stored: false" in page) == (200, True)
    assert bench.stored == [(KEY, "false", "ada l", "x" * 500)]


def test_what_is_shown_is_escaped() -> None:
    bench = Bench()
    key = "host/<script>/gpu"
    assert "<script>" not in bench.pages.get("/feedback", bench.query(key=key))[2]
    code, _, page = bench.pages.post("/feedback", bench.query(key=key), "")
    assert code == 409
    assert "<script>" not in page


@pytest.mark.parametrize(
    "change", [{"verdict": "true"}, {"alert": "host/h2/gpu"}, {"expires": "9999999999"}, {"sig": ""}, {"sig": "é"}]
)
def test_a_changed_link_is_refused(change: dict[str, str]) -> None:
    bench = Bench()
    query = urlencode({**dict(parse_qsl(bench.query())), **change})
    for code, _, page in (bench.pages.get("/feedback", query), bench.pages.post("/feedback", query, "")):
        assert code == 403
        assert "was not made here, or was changed" in page
    assert bench.stored == []


def test_a_link_expires_and_nonsense_is_refused() -> None:
    bench = Bench()
    query = bench.query()
    bench.now_ns += LINK_S * SECOND
    assert bench.pages.post("/feedback", query, "")[0] == 200
    bench.now_ns += 3600 * SECOND
    code, _, page = bench.pages.post("/feedback", query, "")
    assert code == 403
    assert "has expired" in page
    assert bench.pages.get("/feedback", "x=y")[0] == 403


def test_without_a_secret_there_is_no_page_and_no_link() -> None:
    bench = Bench("")
    assert bench.links.of(KEY, START) == {}
    for code, _, _ in (bench.pages.get("/feedback", ""), bench.pages.post("/feedback", "", "")):
        assert code == 404
    with_secret = Bench()
    assert bench.pages.post("/feedback", with_secret.query(), "")[0] == 404


def test_another_secret_is_another_signature() -> None:
    assert Links("a" * 16, "https://x").link(KEY, "true", 1) != Links("b" * 16, "https://x").link(KEY, "true", 1)


def test_health_is_that_of_the_loop() -> None:
    bench = Bench()
    assert bench.pages.get("/healthz", "")[2] == "ok\nstanding by\n"
    bench.status.owner = True
    assert bench.pages.get("/healthz", "")[2] == "ok\nowner\n"
    bench.clock += 61
    assert bench.pages.get("/healthz", "")[0] == 503
    assert bench.pages.get("/nothing", "")[0] == 404


def test_metrics() -> None:
    bench = Bench()
    bench.status.owner = True
    bench.status.tries['a"b', "failed"] += 3
    bench.status.waiting = {"pager": 2}
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(bench.pages.get("/metrics").text)
        for sample in family.samples
    }
    assert found["reveal_alerts_owner",] == 1
    assert found["reveal_alerts_tries_total", 'a"b', "failed"] == 3
    assert found["reveal_alerts_waiting", "pager"] == 2
    assert not any(name.startswith("reveal_alerts_held") for name, *_ in found)


def test_feedback_holds_what_it_is_about() -> None:
    said, expected = judge(HELD, "false", until_ns=5, by="ada", note="n", now_ns=START)
    assert (said.host, said.subsystem, said.cause, said.episode) == ("h1", "gpu", "ecc_errors", "e2")
    assert (said.until_ns, expected) == (None, None)
    said, expected = judge(HELD, "expected", until_ns=START + 9, by="ada", note="n", now_ns=START)
    assert expected is not None
    assert (said.until_ns, expected.until_ns, expected.cause) == (START + 9, START + 9, "ecc_errors")
    with pytest.raises(ValueError, match="must be one of"):
        judge(HELD, "maybe", until_ns=5, by="", note="", now_ns=START)
    with pytest.raises(ValueError, match="a group is not expected"):
        judge(Held("fleet", "fleet"), "expected", until_ns=5, by="", note="", now_ns=START)
