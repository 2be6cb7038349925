"""The sink's pages."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pages.site import TEXT, Site
from schemas.settings import SettingsError, WarehouseSettings, load
from sinks.warehouse.endpoint import HANGS_S, site
from sinks.warehouse.status import Status

STATUS = Status(
    instance="warehouse-1",
    version="1.0",
    messages=7,
    rows={"telemetry_log": 70},
    rejected={"not-avro": 2},
    lag={"reveal.verdicts": 3},
    lag_s=1.5,
    upkeep={"minutes": 4},
)


class Told:
    def __init__(self) -> None:
        self.status = STATUS


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def pages(told: Told) -> Site:
    return site(lambda: told.status)


def test_metrics_are_prometheus_text(pages: Site) -> None:
    code, _, text = pages.get("/metrics")
    assert code == 200
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["reveal_warehouse_messages_total",] == 7
    assert found["reveal_warehouse_rows_total", "telemetry_log"] == 70
    assert found["reveal_warehouse_rejected_total", "not-avro"] == 2
    assert found["reveal_warehouse_lag_messages", "reveal.verdicts"] == 3
    assert found["reveal_warehouse_lag_seconds",] == 1.5
    assert found["reveal_warehouse_upkeep_total", "minutes"] == 4


def test_a_sink_that_waits_is_alive_and_not_ready_and_one_that_hangs_is_neither(pages: Site, told: Told) -> None:
    assert pages.get("/readyz") == (200, TEXT, "ok\n")
    told.status = Status("warehouse-1", "1.0", waiting="ClickHouse does not answer")
    assert pages.get("/healthz") == (200, TEXT, "ok\n")
    assert pages.get("/readyz") == (503, TEXT, "waiting: ClickHouse does not answer\n")
    told.status = Status("warehouse-1", "1.0", turn_s=HANGS_S + 1)
    assert pages.get("/healthz") == (503, TEXT, "no sign of life for 61 s\n")


@pytest.mark.parametrize(
    ("text", "address"),
    [("", None), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9", ("::1", 9)), ("0.0.0.0:19102", ("0.0.0.0", 19102))],
)
def test_where_to_listen(text: str, address: tuple[str, int] | None) -> None:
    assert load(WarehouseSettings, {"REVEAL_WAREHOUSE_LISTEN": text}).address() == address


@pytest.mark.parametrize("text", ["19102", "host:", "host:port", ":1", "host:70000"])
def test_where_nobody_can_listen(text: str) -> None:
    with pytest.raises(SettingsError, match="listen must be host:port"):
        load(WarehouseSettings, {"REVEAL_WAREHOUSE_LISTEN": text})
