"""What the metrics of a window do, which subsystem that points to, and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from schemas.records import Telemetry
from schemas.settings import PipelineSettings
from stream_processors.amounts import settled
from stream_processors.attribution import (
    EVIDENCE_ROWS,
    attribute,
    contributions,
    examine,
    merged,
    only_of,
    stands_out,
)
from stream_processors.baseline import Baseline
from stream_processors.families import family
from stream_processors.features import feature_table, window_features
from stream_processors.moves import Moves, metric_index, moves
from stream_processors.rows import Row
from stream_processors.scaling import USUAL
from stream_processors.seconds import reduce_batch
from stream_processors.windows import Window, Windows
from tests.synthetic import CPU_HOG, WRITEBACK, Fault, run

SETTINGS = PipelineSettings(warmup_windows=40, rows=48)
WARM = 60


def windows(batches: list[Telemetry]) -> list[Window]:
    known, found = Windows(SETTINGS), []
    for batch in batches:
        for second in reduce_batch(batch):
            known.add(batch.subsystem, second, batch.start_ns / 1e9, batch.start_ns / 1e9)
        found += list(known.close())
    return found


@cache
def baseline() -> Baseline:
    rows = [Row.of(window, window_features(window.stats)) for window in windows(list(run(["a"], WARM)))]
    return Baseline.fit(rows, 1, SETTINGS)


@cache
def last(*effects: tuple[str, float]) -> Window:
    """A window in which the first instance of metrics is off by shares of their level."""
    return windows(list(run(["a"], WARM + 6, Fault(WARM, 1000, dict(effects)), WARM)))[-1]


def judged(effects: Mapping[str, float]) -> tuple[Window, np.ndarray, np.ndarray, Mapping[str, float]]:
    window = last(*effects.items())
    features = window_features(window.stats)
    deviations = baseline().deviations(features)
    return window, features, deviations, baseline().score(deviations)[1]


def what(effects: Mapping[str, float]) -> Moves:
    window, features, deviations, _ = judged(effects)
    return moves(features, deviations, baseline(), window)


def test_an_ordinary_window_moves_little() -> None:
    still = what({})
    there = ~np.isnan(still.rise)
    assert there.sum() > 50
    assert np.isnan(still.rise).any()  # a host without GPUs
    assert np.nanmedian(np.fmax(still.rise, still.fall)) < 2
    assert not (still.rise[there] < 0).any()


def test_up_down_and_where() -> None:
    index = metric_index()
    moved = what({"cpu.time.user": 1.0, "cpu.time.idle": -0.8, "cpu.load1": 1.0})
    for name, way, other in (("cpu.time.user", "rise", "fall"), ("cpu.time.idle", "fall", "rise")):
        row = index[name]
        assert getattr(moved, way)[row] > 10
        assert getattr(moved, way)[row] > 2 * getattr(moved, other)[row]
        assert moved.strongest[row] == "0"
        assert moved.few[row]
        assert not moved.many[row]
    assert moved.apart[index["cpu.time.user"]] > 10
    assert moved.seen[index["cpu.time.user"]] == pytest.approx(2 * moved.used[index["cpu.time.user"]], rel=0.1)
    assert moved.high[index["cpu.time.user"]] > 1.5 * moved.low[index["cpu.time.user"]]
    load = index["cpu.load1"]
    assert moved.strongest[load] == ""
    assert np.isnan(moved.high[load])
    assert moved.level[load] == pytest.approx(2 * moved.usual[load], rel=0.1)


def test_an_only_instance_is_one_and_all() -> None:
    row = metric_index()["disk.writes"]
    moved = what({"disk.writes": 1.0})
    assert moved.few[row]
    assert moved.many[row]
    assert moved.strongest[row] == "vda"


def test_instances_that_were_renamed_are_not_compared() -> None:
    window, features, deviations, _ = judged(CPU_HOG)
    before = baseline()
    levels = {
        place: type(each)(tuple(f"new{name}" for name in each.names), each.center, each.scale)
        for place, each in before.levels.items()
    }
    renamed = Baseline(
        before.version, before.center, before.scale, before.candidates, before.chance, before.blocks, levels
    )
    moved = moves(features, deviations, renamed, window)
    assert set(moved.strongest) == {""}
    assert moved.rise[metric_index()["cpu.busy_pct"]] > 10


@pytest.mark.parametrize(("effects", "subsystem"), [(CPU_HOG, "cpu"), ({"tcp.retrans_segs": 2.0}, "network")])
def test_the_subsystem_that_is_strange_has_the_largest_share(effects: dict[str, float], subsystem: str) -> None:
    _, _, deviations, strangeness = judged(effects)
    found = attribute(deviations, strangeness)
    assert found.subsystem == subsystem
    assert sum(found.shares.values()) == pytest.approx(1)
    assert stands_out(deviations)


@pytest.mark.parametrize(
    ("metric", "less"),
    [
        ("cpu.perf.minor_faults", False),
        ("cpu.psi.some", False),
        ("tcp.retrans_segs", False),
        ("net.rx_bytes", True),
        ("cpu.time.idle", True),
        ("cpu.freq.current", True),
    ],
)
def test_less_of_what_costs_is_nothing_to_show(metric: str, less: bool) -> None:
    table = feature_table()
    place = next(i for i, f in enumerate(table.features) if (f.metric.name, f.kind) == (metric, "level"))
    deviations = np.full(len(table), np.nan, np.float32)
    deviations[place] = 9.0
    assert stands_out(deviations)
    deviations[place] = -9.0
    assert stands_out(deviations) == less
    deviations[table.slices["storage"].start] = 5.0
    assert stands_out(deviations)


@pytest.mark.parametrize(("kind", "more"), [("minimum", False), ("maximum", True), ("level", True), ("trend", True)])
def test_a_least_that_is_less_low_is_nothing_to_show(kind: str, more: bool) -> None:
    table = feature_table()
    place = next(i for i, f in enumerate(table.features) if (f.metric.name, f.kind) == ("net.tx_packets", kind))
    deviations = np.full(len(table), np.nan, np.float32)
    deviations[place] = 9.0
    assert stands_out(deviations) == more
    deviations[place] = -9.0
    assert stands_out(deviations)


def test_contributions_lead_back_to_the_metrics_that_were_moved() -> None:
    _, _, deviations, strangeness = judged(CPU_HOG)
    shares = contributions(deviations, baseline(), strangeness)
    assert shares.sum() == pytest.approx(1, abs=1e-3)
    moved = [metric_index()[name] for name in CPU_HOG]
    assert shares[moved].sum() > 0.5
    assert not contributions(deviations, baseline(), dict.fromkeys(strangeness, 0.0)).any()


def test_evidence_has_every_subsystem_that_speaks_and_no_family_twice_before_others() -> None:
    window, features, deviations, strangeness = judged(CPU_HOG | WRITEBACK)
    finding = examine(features, deviations, baseline(), window, strangeness=strangeness)
    assert {"cpu.busy_pct", "disk.queue_ms"} <= set(finding.strange)
    kept = merged((), finding.rows, None)
    assert len(kept) <= EVIDENCE_ROWS
    assert {row.subsystem for row in kept} >= {"cpu", "memory", "storage"}
    families = {family(row.metric) for row in kept}
    assert len(families) >= len(kept) // 2
    for row in finding.rows:
        assert abs(row.deviation) > USUAL
        assert row.direction == ("down" if row.metric == "cpu.time.idle" else "up")
        assert (row.instance_observed is None) == (row.instance == "")
    assert [abs(row.deviation) for row in kept] == sorted((abs(row.deviation) for row in kept), reverse=True)
    assert finding.fits["writeback_storm"] > 0.5


def test_what_events_tell_may_be_the_cause() -> None:
    window, features, deviations, strangeness = judged(CPU_HOG)
    silent = examine(features, deviations, baseline(), window, strangeness=strangeness)
    told = examine(features, deviations, baseline(), window, strangeness=strangeness, happened=frozenset({("xid", 79)}))
    assert "gpu_lost" not in silent.fits
    assert told.fits["gpu_lost"] > 0.9


def off(**sizes: float) -> np.ndarray:
    """Deviations of which only those of the features METRIC__KIND are not 0."""
    table = feature_table()
    found = np.zeros(len(table), np.float32)
    for name, size in sizes.items():
        metric, kind = name.split("__")
        places = [
            i
            for i, each in enumerate(table.features)
            if each.metric.name.replace(".", "_") == metric and each.kind == kind
        ]
        assert places, name
        found[places] = size
    return found


def test_levels_of_amounts_that_do_not_move_are_what_is_left() -> None:
    assert settled(off())
    assert settled(off(mem_free__level=-40.0, mem_cached__maximum=12.0, tcp_time_wait__level=9.0))
    assert settled(off(mem_free__level=-40.0, cpu_busy_pct__level=USUAL))
    assert not settled(off(mem_free__level=-40.0, mem_free__trend=-5.0))  # still running out
    assert not settled(off(mem_free__level=-40.0, cpu_busy_pct__level=5.0))
    assert not settled(off(mem_dirty__level=9.0))
    assert not settled(off(mem_hugetlb__level=9.0))  # speaks of a fault
    absent = off(mem_free__level=-40.0)
    absent[0] = np.nan
    assert settled(absent)


def test_only_of_some_subsystems() -> None:
    table = feature_table()
    part = only_of(off(mem_free__level=-40.0, cpu_busy_pct__level=5.0), {"cpu"})
    assert not np.isnan(part[table.slices["cpu"]]).any()
    assert np.isnan(np.delete(part, np.r_[table.slices["cpu"]])).all()
