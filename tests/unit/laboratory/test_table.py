"""The table of faults: complete, and in the words of causes and metrics that there are."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from schemas.catalogue import catalogue
from stream_processors.causes import causes
from tests.laboratory.acts import ACTS
from tests.laboratory.needs import PROGRAMS
from tests.laboratory.table import FAULTS, Fault, Place
from tests.laboratory.wire import SOCKET

EVERY = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)


def place(directory: Path, pmu: bool = True) -> Place:
    return Place(directory, (11, 12), (0, 3), pmu, directory)


def test_all_kinds_of_faults_are_there() -> None:
    assert list(FAULTS) == [
        *("cpu-hog", "cpu-all-cores", "cache-thrash", "context-switches", "softirqs", "memory-pressure", "huge-pages"),
        *("page-faults", "writeback", "slow-disk", "packet-loss", "packet-delay", "packet-flood"),
        *("workload-retransmits", "freeze"),
    ]


@EVERY
def test_expected_causes_exist_and_lie_where_they_are_expected(fault: Fault) -> None:
    for cause in {fault.cause, fault.expected_cause(pmu=False)} - {None}:
        assert cause is not None
        # Of a machine without GPUs.
        assert causes()[cause].subsystem({"cpu": 0, "memory": 0, "network": 0, "storage": 0}) == fault.subsystem


@EVERY
def test_what_it_moves_are_metrics(fault: Fault) -> None:
    for pattern in fault.moves:
        assert any(fnmatchcase(name, pattern) for name in catalogue()), pattern
    assert not fault.moves_metric("gpu.util")


@EVERY
def test_its_program_is_one_of_ours_or_one_that_is_provided(fault: Fault, tmp_path: Path) -> None:
    argv = fault.argv(place(tmp_path), 7)
    if argv[0] != sys.executable:
        assert argv[0] in PROGRAMS
    elif argv[3] == "tests.laboratory.acts":
        assert argv[4] in ACTS
    assert any("7" in word for word in argv), "it must end by itself"
    # Nothing is left on disk but in the laboratory's own folder.
    assert fault.name in ("cpu-hog", "freeze") or any(str(tmp_path) in word for word in argv)


def test_hog_is_pinned_and_freeze_knows_the_workload(tmp_path: Path) -> None:
    hog = FAULTS["cpu-hog"].argv(place(tmp_path), 7)
    assert hog[hog.index("--taskset") + 1] == "3"
    assert FAULTS["freeze"].argv(place(tmp_path), 7)[-2:] == ("11", "12")


def test_without_performance_counters_a_cache_thrash_is_contention() -> None:
    assert FAULTS["cache-thrash"].expected_cause(pmu=True) == "cache_contention"
    assert FAULTS["cache-thrash"].expected_cause(pmu=False) == "cpu_contention"
    assert FAULTS["packet-loss"].expected_cause(pmu=False) == "packet_loss"


def test_what_cannot_be_acted_out_says_why(tmp_path: Path) -> None:
    assert "namespaces" in FAULTS["packet-loss"].unable(place(tmp_path))
    assert "no huge pages" in FAULTS["huge-pages"].unable(place(tmp_path))
    (tmp_path / SOCKET).touch()
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    (tmp_path / "proc/sys/vm/nr_hugepages").touch()
    assert not any(fault.unable(place(tmp_path)) for fault in FAULTS.values())


def test_the_page_of_faults_is_up_to_date() -> None:
    page = (Path(__file__).parents[3] / "docs" / "faults.md").read_text(encoding="utf-8")
    for fault in FAULTS.values():
        blind = f" (without performance counters: {fault.blind_cause})" if fault.blind_cause else ""
        assert f"| {fault.name} | {fault.does} | {fault.subsystem} | {fault.cause}{blind} |" in page
