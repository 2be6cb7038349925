"""Migration files: their form, and that every statement can be run twice on a server and embedded."""

from __future__ import annotations

import re

import pytest

from schemas.settings import ClickHouseSettings, SettingsError, WarehouseSettings, load
from sinks.warehouse.migrate import Layout, MigrationError, migrations, parse, retention
from sinks.warehouse.store import Store

GOOD = "-- words\n\n-- up\nCREATE TABLE IF NOT EXISTS a (x Int8);\nSELECT 1;\n\n-- down\nDROP TABLE IF EXISTS a;\n"


def test_parses_statements() -> None:
    step = parse("0007_a_table.sql", GOOD)
    assert (step.number, step.name) == (7, "a_table")
    assert step.up == ("CREATE TABLE IF NOT EXISTS a (x Int8)", "SELECT 1")
    assert step.down == ("DROP TABLE IF EXISTS a",)
    assert parse("0007_a_table.sql", GOOD + "\n").checksum != step.checksum


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("7_a.sql", GOOD),
        ("0007_a.sql", GOOD.replace("-- down", "-- undo")),
        ("0007_a.sql", GOOD.replace("DROP TABLE IF EXISTS a;", "")),
        ("0007_a.sql", "-- down\nA;\n-- up\nB;\n"),
    ],
)
def test_refuses_other_forms(name: str, text: str) -> None:
    with pytest.raises(MigrationError):
        parse(name, text)


@pytest.mark.parametrize("layout", [Layout("reveal"), Layout("reveal", "fleet")], ids=["single", "cluster"])
def test_every_statement_can_be_run_twice(layout: Layout) -> None:
    for step in migrations():
        for statement in (*step.up, *step.down):
            text = layout.render(statement)
            if text.startswith("ALTER TABLE `reveal`."):
                for change in re.split(r",\s+(?=ADD|DROP|MODIFY)", text.partition("\n")[2]):
                    assert re.match(
                        r"\s*(ADD (COLUMN|INDEX) IF NOT EXISTS|DROP (COLUMN|INDEX) IF EXISTS|MODIFY COLUMN) \w+", change
                    )
            else:
                assert re.match(r"(CREATE (TABLE|VIEW) IF NOT EXISTS|DROP (TABLE|VIEW) IF EXISTS) `reveal`\.", text)
            assert ("ON CLUSTER 'fleet'" in text) == bool(layout.cluster)
            assert "ENGINE = MergeTree" not in text
            # Servers before 26.8 take them in this order only; the embedded engine takes both.
            assert not re.search(r"CODEC.*COMMENT '", text)
            if "ENGINE" in text:
                assert ("ENGINE = ReplicatedReplacingMergeTree" in text) == bool(layout.cluster)


def test_the_cluster_is_a_setting_and_only_a_name() -> None:
    settings = load(ClickHouseSettings, {"REVEAL_CLICKHOUSE_CLUSTER": "fleet-1"})
    assert Store(settings).cluster == "fleet-1"
    with pytest.raises(SettingsError, match="cluster must be a name"):
        load(ClickHouseSettings, {"REVEAL_CLICKHOUSE_CLUSTER": "a' DROP"})


def test_every_log_has_a_retention_but_the_books_of_the_sink_itself() -> None:
    tables = {
        match[1]
        for step in migrations()
        for sql in step.up
        if (match := re.search(r"TABLE IF NOT EXISTS \S+\.(\w+)", sql))
    }
    assert tables - retention(WarehouseSettings()).keys() == {"rollups_log", "fault_truth_log"}
