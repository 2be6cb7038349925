"""What holds for the pages of every service, whatever it says of itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pages.site import Site
from producers import endpoint as agent
from producers.status import Status as AgentStatus
from producers.vitals import Vitals
from sinks.alerts import endpoint as alerts
from sinks.alerts.feedback import Links
from sinks.alerts.service import Status as AlertsStatus
from sinks.warehouse import endpoint as warehouse
from sinks.warehouse.status import Status as WarehouseStatus

AGENT: Final = AgentStatus(
    host="gpu-001",
    version="1.0",
    since_sample_s=0.05,
    stalled="",
    samples=12,
    missed=0,
    batches=1,
    delivered=5,
    failed=0,
    waiting=0,
    reachable=True,
    vitals=Vitals(period_ms=100),
    errors={},
    costs={},
    problems=(),
)


class Mood:
    """Whether services can say how they are."""

    def __init__(self) -> None:
        self.broken = False

    def check(self) -> None:
        if self.broken:
            raise RuntimeError("nobody knows")

    def agent(self) -> AgentStatus:
        self.check()
        return AGENT

    def warehouse(self) -> WarehouseStatus:
        self.check()
        return WarehouseStatus("warehouse-1", "1.0")

    def clock(self) -> float:
        self.check()
        return 100.0


def new_agent(mood: Mood) -> Site:
    return agent.site(mood.agent, lambda: ())


def new_warehouse(mood: Mood) -> Site:
    return warehouse.site(mood.warehouse)


def new_alerts(mood: Mood) -> Site:
    status = AlertsStatus(turned_s=100.0)
    return alerts.site(status, Links("", ""), lambda *_: "", clock=mood.clock)


SERVICES: Final = {"agent": new_agent, "warehouse": new_warehouse, "alerts": new_alerts}
services = pytest.mark.parametrize(("name", "new"), SERVICES.items(), ids=SERVICES)


def faults(site: Site, name: str) -> float:
    """How many pages could not be made, as /metrics tells."""
    code, _, text = site.get("/metrics")
    assert code == 200
    families = text_string_to_metric_families(text)
    found = {sample.name: sample.value for family in families for sample in family.samples}
    return found[f"reveal_{name}_page_faults_total"]


@services
def test_a_service_that_is_well_says_so(name: str, new: Callable[[Mood], Site]) -> None:
    site = new(Mood())
    assert site.get("/healthz").code == 200
    assert site.get("/healthz").text.startswith("ok\n")
    assert faults(site, name) == 0


@services
def test_a_fault_is_answered_counted_and_logged(
    name: str, new: Callable[[Mood], Site], caplog: pytest.LogCaptureFixture
) -> None:
    mood = Mood()
    site = new(mood)
    mood.broken = True
    with caplog.at_level(logging.ERROR, "pages"):
        code, _, text = site.get("/healthz", "secret=1")
    assert (code, text) == (500, "a fault of the service; its log says which\n")
    assert "/healthz cannot be served" in caplog.text
    assert "nobody knows" in caplog.text
    assert "secret" not in caplog.text
    mood.broken = False
    assert site.get("/healthz").code == 200
    assert faults(site, name) == 1


@services
def test_what_there_is_not_is_answered_with_what_there_is(name: str, new: Callable[[Mood], Site]) -> None:
    code, _, text = new(Mood()).get("/")
    assert code == 404
    assert {"/metrics", "/healthz"} <= set(text.removeprefix("there is ").rstrip().split(", ")), name
    assert new(Mood()).post("/metrics", "", "").code == 404
