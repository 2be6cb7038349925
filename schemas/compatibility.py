"""Which schema changes old readers or old writers could not survive.

Both directions count, because agents, workers and sinks of a fleet are never upgraded at the same moment: new readers
read old data, and old readers read new data. Beyond Avro's own resolution rules, what a metric means may not change
under its name: unit, kind and dimension are part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MEANING: Final = ("metric", "unit", "kind", "dimension")


def problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Reasons, in words, why `new` may not follow the published record schema `old`; empty when it may."""
    found: list[str] = []
    if (old["name"], old.get("namespace")) != (new["name"], new.get("namespace")):
        found.append(f"record {old['name']} is renamed to {new['name']}")
    _record(old, new, old["name"], found)
    return found


def _record(old: Mapping[str, Any], new: Mapping[str, Any], path: str, found: list[str]) -> None:
    old_fields = {field["name"]: field for field in old["fields"]}
    new_fields = {field["name"]: field for field in new["fields"]}
    for name, field in old_fields.items():
        if name not in new_fields:
            # An old reader fills the field from its own default, or fails.
            if "default" not in field:
                found.append(f"{path}.{name} is removed, and old readers have no default for it")
            continue
        _type(field["type"], new_fields[name]["type"], f"{path}.{name}", found)
        if "default" in field and "default" not in new_fields[name]:
            found.append(f"{path}.{name} lost its default")
        found += [
            f"{path}.{name} changes its {key} from {field.get(key)!r} to {new_fields[name].get(key)!r}"
            for key in MEANING
            if field.get(key) != new_fields[name].get(key)
        ]
    for name, field in new_fields.items():
        if name not in old_fields and "default" not in field:
            found.append(f"{path}.{name} is added without a default, and old writers do not send it")


def _type(old: Any, new: Any, path: str, found: list[str]) -> None:
    if isinstance(old, str) and isinstance(new, dict) and "logicalType" not in new:
        new = new.get("type")
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            found.append(f"{path} changes the branches of its union")
            return
        for old_branch, new_branch in zip(old, new, strict=True):
            _type(old_branch, new_branch, path, found)
    elif isinstance(old, dict) and isinstance(new, dict) and old["type"] == new["type"]:
        if old.get("logicalType") != new.get("logicalType"):
            found.append(f"{path} changes its logical type")
        if old["type"] == "record":
            _record(old, new, path, found)
        elif old["type"] == "array":
            _type(old["items"], new["items"], f"{path}[]", found)
        elif old["type"] == "map":
            _type(old["values"], new["values"], f"{path}{{}}", found)
        elif old["type"] == "enum" and old["symbols"] != new["symbols"]:
            # Old readers do not know a new symbol, and new readers may meet a removed one.
            found.append(f"{path} changes its symbols")
        elif old["type"] == "fixed" and old["size"] != new["size"]:
            found.append(f"{path} changes its size")
    elif old != new:
        # Avro would promote int to long for new readers, but old readers cannot read a long as an int.
        found.append(f"{path} changes its type from {old!r} to {new!r}")
