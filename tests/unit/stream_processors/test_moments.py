"""What takes a moment is in every window that holds the moment, and opens no episode all the same."""

from __future__ import annotations

import pytest

from schemas.records import Episode, Verdict
from schemas.settings import PipelineSettings
from stream_processors.backtest import backtest
from tests.synthetic import CPU_HOG, START, WRITEBACK, Fault, run

SETTINGS = PipelineSettings(warmup_windows=40, rows=48)
NANO = 10**9


def told(fault: Fault) -> tuple[list[Verdict], list[Episode]]:
    """Anomalous verdicts and opened episodes of a host on which `fault` strikes."""
    results = list(backtest(run(["a"], 90, fault), SETTINGS))
    strange = [each for each in results if isinstance(each, Verdict) and each.anomalous]
    return strange, [each for each in results if isinstance(each, Episode) and each.state == "opened"]


@pytest.mark.parametrize("effects", [CPU_HOG, WRITEBACK])
def test_a_second_is_three_anomalous_windows_and_no_episode(effects: dict[str, float]) -> None:
    strange, opened = told(Fault(70, 71, effects))
    assert [verdict.window_end_ns // NANO - START for verdict in strange] == [71, 72, 73]
    assert opened == []


@pytest.mark.parametrize("effects", [CPU_HOG, WRITEBACK])
def test_what_goes_on_opens_one_within_three_seconds(effects: dict[str, float]) -> None:
    _, [opened] = told(Fault(70, 80, effects))
    assert opened.start_ns // NANO - START == 70
    assert opened.opened_ns // NANO - START <= 73


@pytest.mark.parametrize("metric", ["net.rx_errors", "vm.oom_kill"])
def test_of_errors_one_matters(metric: str) -> None:
    strange, opened = told(Fault(70, 71, {metric: 1.0}))
    assert len(strange) == 3
    assert [episode.start_ns // NANO - START for episode in opened] == [70]
