"""Commands that need no service: what a person reads of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.cli import main
from schemas.recording import RecordingWriter
from stream_processors.detectors import DETECTORS
from tests.synthetic import Fault, run

SETTINGS = {"REVEAL_PIPELINE_WARMUP_WINDOWS": "40", "REVEAL_PIPELINE_ROWS": "48"}


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "200")
    with RecordingWriter(tmp_path / "rec") as writer:
        for batch in run(["gpu-001"], 90, Fault(60, 70)):
            writer.write(batch)
    return tmp_path / "rec"


def test_backtest_tells_what_it_finds(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backtest", str(recording)]) == 0
    told = capsys.readouterr().out
    # 40 windows of warm-up, up to 5 more that spread hosts, and 4 while the model is fitted.
    assert "88 windows: 47 warming, 41 scored" in told
    assert "360 messages: 360 added" in told
    episodes = told[told.index("episodes") :]
    assert "gpu-001" in episodes
    assert "cpu (" in episodes


def test_backtest_as_json_holds_every_window(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backtest", str(recording), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    verdicts = [line for line in lines if line["record"] == "verdict"]
    episodes = [line for line in lines if line["record"] == "episode"]
    assert len(verdicts) == 88
    assert [score["detector"] for score in verdicts[-1]["scores"]] == list(DETECTORS)
    assert episodes[-1]["state"] == "closed"
    assert episodes[-1]["evidence"]


def test_backtest_of_no_recording_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backtest", str(tmp_path)]) == 2
    assert "is no recording" in capsys.readouterr().err


def test_settings_show_defaults_values_and_no_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("REVEAL_PIPELINE_COVERAGE", "0.8")
    monkeypatch.setenv("REVEAL_KAFKA_SASL_PASSWORD", "hunter2")
    assert main(["settings"]) == 0
    told = capsys.readouterr().out
    row = next(line for line in told.splitlines() if "REVEAL_PIPELINE_COVERAGE" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["coverage", "REVEAL_PIPELINE_COVERAGE", "0.6", "0.8"]
    assert "hunter2" not in told
