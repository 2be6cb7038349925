"""The command: its arguments, its exit status, what it writes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.stack.errors import StackError
from tests.laboratory import __main__ as command
from tests.laboratory.judge import Episode, Trial
from tests.laboratory.session import Session
from tests.laboratory.table import FAULTS, Fault


class Acted:
    """A session in which every fault is found after two seconds, or fails as it is told to."""

    def __init__(self, fails: BaseException | None = None) -> None:
        self.done: list[str] = []
        self.fails = fails

    def __call__(self, *_: object) -> Acted:
        return self

    def __enter__(self) -> Acted:
        return self

    def __exit__(self, *_: object) -> None:
        self.done.append("undone")

    def warm_up(self) -> None:
        self.done.append("warm-up")

    def be_quiet(self, seconds: float) -> tuple[float, float]:
        self.done.append(f"quiet {seconds:g}")
        return 0.0, seconds

    def recover(self) -> None:
        self.done.append("recover")

    def act(self, fault: Fault, seconds: float) -> Trial:
        self.done.append(f"{fault.name} {seconds:g}")
        if self.fails is not None:
            raise self.fails
        return Trial(fault, fault.cause, 1000.0, 1015.0)

    def episodes(self) -> list[Episode]:
        return [Episode("e", 1000.0, 1002.0, 1020.0, "cpu", "cpu_contention", ("cpu.run_delay",))]


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def acted(monkeypatch: pytest.MonkeyPatch) -> Acted:
    session = Acted()
    monkeypatch.setattr(command, "Session", session)
    monkeypatch.setattr(command, "provide", lambda say: None)
    monkeypatch.setattr(command, "read_in", lambda: None)
    return session


def run(*arguments: str) -> int:
    return command.main(arguments, {}, lambda: 0)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "cpu-hog,flood"], "no fault flood; there are cpu-hog"),
        (["--quiet-minutes", "-1"], "no number from 0"),
        (["--seconds", "many"], "no number from 5"),
        (["--seconds", "nan"], "no number from 5"),
        (["--loud"], "unrecognized arguments"),
    ],
)
def test_wrong_arguments_are_refused(
    acted: Acted, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(*arguments)
    assert complaint in capsys.readouterr().err
    assert not acted.done


def test_only_root_may(acted: Acted, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([], {}, lambda: 1000) == 1
    assert "needs root" in capsys.readouterr().err
    assert not acted.done


def test_the_list_needs_nobody(acted: Acted, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"], {}, lambda: 1000) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in FAULTS)
    assert not acted.done


def test_a_run_recovers_before_each_fault_and_writes_what_it_found(
    acted: Acted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    assert run("--json", str(path), "--only", "cpu-hog,freeze", "--quiet-minutes", "0.5", "--seconds", "9") == 0
    course = ["warm-up", "quiet 30", "recover", "cpu-hog 9", "recover", "freeze 9", "recover", "undone"]
    assert acted.done == course
    told = json.loads(path.read_text())
    assert [(row["fault"], row["delay"], row["evidence_rank"]) for row in told["faults"]] == [
        ("cpu-hog", 2.0, 1),
        ("freeze", 2.0, 1),
    ]
    assert told["quiet"] == {"hours": 0.0083, "false_episodes": 0}
    shown = capsys.readouterr().out
    assert "median delay      2.0 s" in shown
    assert "right cause       50%" in shown


@pytest.mark.parametrize(
    ("fails", "status", "said"),
    [
        (StackError("the stack ended"), 1, "could not run: the stack ended"),
        (KeyboardInterrupt(), 130, "everything is undone"),
    ],
)
def test_whatever_ends_it_all_is_undone(
    acted: Acted, fails: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    acted.fails = fails
    assert run("--only", "cpu-hog", "--quiet-minutes", "0") == status
    assert acted.done[-2:] == ["cpu-hog 15", "undone"]
    assert said in capsys.readouterr().err


def test_a_place_for_the_results_that_cannot_be_written_is_told_before_anything_starts(
    acted: Acted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", str(tmp_path / "nowhere" / "out.json")) == 1
    assert "No such file" in capsys.readouterr().err
    assert not acted.done


def test_sessions_have_what_the_command_asks_for() -> None:
    wanted = {name for name in vars(Acted) if not name.startswith("_")}
    assert wanted <= set(dir(Session))
