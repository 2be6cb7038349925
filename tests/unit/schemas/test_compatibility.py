"""A schema change that old readers or writers could not survive is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from schemas.catalogue import SUBSYSTEMS, schema_text
from schemas.codec import RESULT_SCHEMAS
from schemas.compatibility import problems
from schemas.versions import published

Schema = dict[str, Any]


def schema(name: str) -> Schema:
    loaded: Schema = json.loads(schema_text(name))
    return loaded


def field(of: Schema, name: str) -> Schema:
    found: Schema = next(each for each in of["fields"] if each["name"] == name)
    return found


@pytest.mark.parametrize("name", [*SUBSYSTEMS, *RESULT_SCHEMAS])
def test_no_version_breaks_another(name: str) -> None:
    current = schema(name)
    for version in published(name):
        assert problems(version, current) == []


def add_metric(of: Schema) -> None:
    of["fields"].append({**field(of, "cpu_load1"), "name": "cpu_new", "metric": "cpu.new"})


def remove_metric(of: Schema) -> None:
    of["fields"].remove(field(of, "cpu_load1"))


def reword(of: Schema) -> None:
    field(of, "cpu_load1")["doc"] = "Reveals: something else"


@pytest.mark.parametrize("change", [add_metric, remove_metric, reword], ids=lambda change: change.__name__)
def test_survivable_changes_pass(change: Callable[[Schema], None]) -> None:
    changed = schema("cpu")
    change(changed)
    assert problems(schema("cpu"), changed) == []


def unit(of: Schema) -> None:
    field(of, "cpu_load1")["unit"] = "%"


def kind(of: Schema) -> None:
    field(of, "cpu_load1")["kind"] = "counter"


def dimension(of: Schema) -> None:
    field(of, "cpu_load1")["dimension"] = "core"


def remove_without_default(of: Schema) -> None:
    of["fields"].remove(field(of, "count"))


def add_without_default(of: Schema) -> None:
    of["fields"].append({"name": "new", "type": "string"})


def retype(of: Schema) -> None:
    field(of, "count")["type"] = "long"


def lose_default(of: Schema) -> None:
    del field(of, "cpu_load1")["default"]


def not_nullable(of: Schema) -> None:
    field(of, "cpu_load1")["type"] = {"type": "bytes", "logicalType": "float32-matrix"}


def other_logical_type(of: Schema) -> None:
    field(of, "cpu_load1")["type"][1]["logicalType"] = "float64-matrix"


def rename(of: Schema) -> None:
    of["name"] = "Other"


def map_value(of: Schema) -> None:
    field(of, "instances")["type"]["values"]["items"] = "int"


@pytest.mark.parametrize(
    "change",
    [
        unit,
        kind,
        dimension,
        remove_without_default,
        add_without_default,
        retype,
        lose_default,
        not_nullable,
        other_logical_type,
        rename,
        map_value,
    ],
    ids=lambda change: change.__name__,
)
def test_breaking_changes_are_named(change: Callable[[Schema], None]) -> None:
    changed = schema("cpu")
    change(changed)
    found = problems(schema("cpu"), changed)
    assert len(found) == 1, found


def test_changes_inside_nested_records_are_seen() -> None:
    changed = copy.deepcopy(schema("anomaly"))
    evidence = field(changed, "evidence")["type"]["items"]
    evidence["fields"].remove(next(each for each in evidence["fields"] if each["name"] == "metric"))
    assert problems(schema("anomaly"), changed) == [
        "Episode.evidence[].metric is removed, and old readers have no default for it"
    ]
