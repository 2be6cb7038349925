"""Amounts that lie elsewhere than they used to, and what is told of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from schemas.records import StateRecord
from schemas.settings import PipelineSettings
from stream_processors.amounts import amount_levels
from stream_processors.features import feature_table
from stream_processors.fitting import Inline
from stream_processors.learning import Learner
from stream_processors.pipeline import Pipeline
from stream_processors.regime import ADJUST_S, LEARNS_S, SETTLES_S, Regimes
from tests.synthetic import Fault, run


def place(metric: str, kind: str = "level") -> int:
    return next(i for i, f in enumerate(feature_table().features) if (f.metric.name, f.kind) == (metric, kind))


def learner() -> Learner:
    return Learner("a", PipelineSettings(), Inline)


def off(**sizes: float) -> np.ndarray:
    found = np.zeros(len(feature_table()), np.float32)
    for name, size in sizes.items():
        found[place(name.replace("__", "."))] = size
    return found


@pytest.mark.parametrize(
    ("metric", "kind", "amount"),
    [
        ("mem.free", "level", True),
        ("mem.free", "trend", False),
        ("mem.free_blocks", "level", True),
        ("mem.dirty", "level", False),
        ("mem.hugetlb", "level", False),  # speaks of a fault
        ("cpu.load1", "trend", True),
        ("cpu.busy_pct", "level", False),
        ("tcp.time_wait", "level", True),
    ],
)
def test_what_is_an_amount(metric: str, kind: str, amount: bool) -> None:
    assert amount_levels()[place(metric, kind)] == amount


def test_a_step_of_an_amount_is_strange_for_a_minute_and_anything_else_for_as_long_as_it_lasts() -> None:
    mine = learner()
    step = off(mem__free=-50.0, cpu__busy_pct=50.0)
    told = [mine.settle(step) for _ in range(90)]
    assert told[0][place("mem.free")] == -50.0
    assert told[10][place("mem.free")] < -25.0
    assert abs(told[60][place("mem.free")]) < 4.0
    assert {each[place("cpu.busy_pct")] for each in told} == {np.float32(50.0)}
    # It is given back, halfway at first: what is as it used to be is not strange, whatever was last.
    halfway = [mine.settle(off(mem__free=-20.0)) for _ in range(10)]
    assert {each[place("mem.free")] for each in halfway} == {np.float32(0.0)}
    back = [mine.settle(off()) for _ in range(150)]
    assert {each[place("mem.free")] for each in back} == {np.float32(0.0)}
    assert mine.shift is None


def test_what_is_given_back_beyond_what_is_usual_is_strange() -> None:
    mine = learner()
    for _ in range(90):
        mine.settle(off(mem__free=-50.0))
    more = mine.settle(off(mem__free=30.0))
    assert more[place("mem.free")] == 30.0
    less = mine.settle(off(mem__free=-80.0))
    assert less[place("mem.free")] < -25.0


def test_an_amount_that_grows_fast_stays_strange() -> None:
    mine = learner()
    told = [mine.settle(off(mem__free=-float(second))) for second in range(200)]
    assert told[-1][place("mem.free")] < -15.0


def test_an_absent_amount_stays_absent_and_is_remembered() -> None:
    mine = learner()
    for _ in range(60):
        mine.settle(off(mem__free=-50.0))
    gone = off()
    gone[place("mem.free")] = np.nan
    assert np.isnan(mine.settle(gone)[place("mem.free")])
    assert abs(mine.settle(off(mem__free=-50.0))[place("mem.free")]) < 4.0


def test_what_is_followed_is_in_the_state() -> None:
    """Whatever window a worker is killed after."""
    batches = list(run(["a"], 75, Fault(55, 70, {"mem.free": 0.2, "mem.committed": 3.0})))
    settings = PipelineSettings(warmup_windows=40, rows=48)
    whole = Pipeline(settings)
    slots: dict[str, StateRecord] = {}
    followed = 0
    for number, batch in enumerate(batches):
        for each in whole.feed(batch, batch.start_ns / 1e9 + 1):
            if not isinstance(each, StateRecord):
                continue
            slots[each.slot] = each
            shift = whole.hosts["a"].learner.shift
            if each.slot != "progress" or shift is None or number < 4 * 55:
                continue
            restored = Pipeline(settings)
            assert restored.restore("a", list(slots.values())) is None
            again = restored.hosts["a"].learner.shift
            assert again is not None
            np.testing.assert_array_equal(again, shift)
            followed += 1
    assert followed > 3


def test_what_a_change_moves_at_first_is_set_aside_and_the_rest_is_not() -> None:
    regimes = Regimes(2)
    regimes.begin("memory is allocated otherwise", 1000)
    change = off(mem__anon=40.0, cpu__busy_pct=20.0)
    for second in range(1000, 1000 + ADJUST_S + 1):
        assert regimes.rest(change, second) is None
    later = 1001 + ADJUST_S
    rest = regimes.rest(change, later)
    assert rest is not None
    assert not rest.any()
    # A fault that strikes meanwhile.
    rest = regimes.rest(off(mem__anon=40.0, cpu__busy_pct=20.0, disk__writes=30.0), later)
    assert rest is not None
    assert np.flatnonzero(rest).tolist() == [place("disk.writes")]
    # More of what it moves is one as well, if it is much more.
    rest = regimes.rest(off(cpu__busy_pct=39.0), later)
    assert rest is not None
    assert not rest.any()
    rest = regimes.rest(off(cpu__busy_pct=41.0), later)
    assert rest is not None
    assert np.flatnonzero(rest).tolist() == [place("cpu.busy_pct")]
    values, arrays = regimes.state()
    restored = Regimes.restore(2, json.loads(json.dumps(values)), arrays)
    rest = restored.rest(off(disk__writes=30.0), later)
    assert rest is not None
    assert rest.any()
    regimes.end()
    assert regimes.moves is None


def test_what_a_change_moves_no_longer_is_forgotten_and_what_grows_is_never_part_of_it() -> None:
    regimes = Regimes(2)
    regimes.begin("memory is allocated otherwise", 1000)
    for second in range(1000, 1000 + ADJUST_S + 1):
        assert regimes.rest(off(mem__anon=40.0, cpu__busy_pct=20.0), second) is None
    fault = off(mem__anon=40.0, cpu__busy_pct=30.0)
    for second in range(1001 + ADJUST_S, 1001 + LEARNS_S + 2 * SETTLES_S):
        rest = regimes.rest(off(mem__anon=40.0), second)
        assert rest is not None
        assert not rest.any()
        if second == 1000 + LEARNS_S:
            rest = regimes.rest(fault, second)
            assert rest is not None
            assert not rest.any(), "new work takes some time to show all that it does"
    rest = regimes.rest(fault, second + 1)
    assert rest is not None
    assert np.flatnonzero(rest).tolist() == [place("cpu.busy_pct")]
    # Slowly as it may come: each window is less than twice the one before it.
    regimes.begin("again", 2000)
    for second in range(2000, 2000 + ADJUST_S + 1):
        regimes.rest(off(mem__anon=40.0), second)
    grown = [regimes.rest(off(mem__anon=40.0, disk__writes=4.0 * 1.2**step), second + step) for step in range(1, 9)]
    assert grown[-1] is not None
    assert np.flatnonzero(grown[-1]).tolist() == [place("disk.writes")]
