"""The schemas are the catalogue."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from schemas.catalogue import SUBSYSTEMS, catalogue, schema_text, subsystem_metrics
from schemas.codec import RESULT_SCHEMAS, current_schema
from schemas.document import document
from schemas.topics import ALERT_STATE, MODELS, TELEMETRY, topic_table
from schemas.versions import published


def test_every_metric_is_described() -> None:
    assert len(catalogue()) >= 200
    for metric in catalogue().values():
        assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+", metric.name)
        assert metric.field == metric.name.replace(".", "_")
        assert metric.kind in ("counter", "gauge", "state")
        assert (metric.kind == "counter") == metric.unit.endswith("/s") or metric.unit in (
            "MiB/s",
            "Mbit/s",
            "Gbit/s",
            "GT/s",
        )
        assert metric.dimension
        assert metric.source
        assert len(metric.doc) > len("Reveals: ")


@pytest.mark.parametrize("subsystem", SUBSYSTEMS)
def test_every_metric_is_a_nullable_matrix(subsystem: str) -> None:
    fields = [field for field in json.loads(schema_text(subsystem))["fields"] if "metric" in field]
    assert len(fields) == len(subsystem_metrics(subsystem))
    for field in fields:
        assert field["type"] == ["null", {"type": "bytes", "logicalType": "float32-matrix"}]
        assert field["default"] is None


@pytest.mark.parametrize("name", [*SUBSYSTEMS, *RESULT_SCHEMAS])
def test_the_newest_published_version_is_the_current_schema(name: str) -> None:
    assert published(name)[-1] == json.loads(schema_text(name)), "publish it: python -m schemas.versions"


def test_fingerprints_tell_all_schemas_apart() -> None:
    headers = {current_schema(name).header for name in (*SUBSYSTEMS, *RESULT_SCHEMAS)}
    assert len(headers) == len(SUBSYSTEMS) + len(RESULT_SCHEMAS)


def test_topics_have_one_number_of_partitions_and_models_are_compacted() -> None:
    table = topic_table(7, 3)
    assert {spec.partitions for spec in table if spec.name != ALERT_STATE} == {7}
    assert [spec.partitions for spec in table if spec.name == ALERT_STATE] == [1]
    assert {spec.replication for spec in table} == {3}
    assert {spec.name for spec in table} >= {*TELEMETRY.values(), MODELS}
    assert {spec.name for spec in table if spec.configs["cleanup.policy"] == "compact"} == {MODELS, ALERT_STATE}


def test_the_page_of_metrics_is_up_to_date() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == document(), "python -m schemas.document > docs/metrics.md"
