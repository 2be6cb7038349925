"""Presets: what a file says of itself, and what is bound."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from deploy.commands.query import moment
from sinks.warehouse.preset import PresetError, parse, presets

TEXT = """-- What is there
-- More of it.
-- metric = cpu.busy_pct
-- at =
SELECT {metric:String}, {at:DateTime64(3, 'UTC')}, {limit:UInt32}
"""


def test_a_file_says_what_it_takes() -> None:
    preset = parse("there", TEXT)
    assert (preset.title, preset.about) == ("What is there", "More of it.")
    assert preset.types == {"metric": "String", "at": "DateTime64(3, 'UTC')", "limit": "UInt32"}
    assert preset.sql.startswith("SELECT")
    assert preset.bind({"at": "x", "limit": "1", "host": "h"}) == {"metric": "cpu.busy_pct", "at": "x", "limit": "1"}


@pytest.mark.parametrize(("given", "words"), [({"limit": "1"}, "needs at"), ({"at": "x", "color": "y"}, "no color")])
def test_what_is_missing_or_unknown_is_told(given: dict[str, str], words: str) -> None:
    with pytest.raises(PresetError, match=words):
        parse("there", TEXT).bind(given)


@pytest.mark.parametrize("text", ["SELECT 1", "-- title\n", "-- title\n-- x = 1\nSELECT 1"])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(PresetError):
        parse("there", text)


def test_all_files_are_presets_with_common_parameters_of_one_type() -> None:
    kinds: dict[str, set[str]] = {}
    for preset in presets().values():
        for name, kind in preset.types.items():
            kinds.setdefault(name, set()).add(kind)
        assert preset.title[0].isupper() or preset.title.startswith("`")
        assert "_log" not in preset.sql, "ask the views"
    assert {name: kinds[name] for name in ("since", "until", "host", "subsystem", "limit")} == {
        "since": {"DateTime64(3, 'UTC')"},
        "until": {"DateTime64(3, 'UTC')"},
        "host": {"String"},
        "subsystem": {"String"},
        "limit": {"UInt32"},
    }


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("0s", "2026-01-31 12:00:00.000"),
        ("1.5h", "2026-01-31 10:30:00.000"),
        ("7d", "2026-01-24 12:00:00.000"),
        ("2026-01-31T12:00:00+02:00", "2026-01-31 10:00:00.000"),
        ("2026-01-31", "2026-01-31 00:00:00.000"),
    ],
)
def test_moments(text: str, then: str) -> None:
    assert moment(text, datetime(2026, 1, 31, 12, tzinfo=UTC)) == then
