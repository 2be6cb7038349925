"""The `reveal` command as a program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy import cli
from deploy.kafka.errors import JarError
from deploy.stack.errors import StackError
from schemas.settings import SettingsError

HEAVY = ("numpy", "confluent_kafka", "fastavro", "chdb", "faust", "sklearn", "pyarrow", "clickhouse_connect", "rich")


def reveal(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, **environ},
    )


def test_help_lists_every_command() -> None:
    done = reveal("--help")
    assert done.returncode == 0
    for name in cli.COMMANDS:
        assert f"\n  {name} " in done.stdout


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom deploy.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stderr.split())


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str) -> None:
    done = reveal(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"usage: reveal {name}" in done.stdout
    assert "--config" in done.stdout


def test_version() -> None:
    assert reveal("--version").stdout == "reveal 0.1.0\n"


def test_nothing_is_wrong_usage() -> None:
    done = reveal()
    assert done.returncode == 2
    assert "usage: reveal" in done.stderr


def test_unknown_command_is_wrong_usage() -> None:
    done = reveal("dance")
    assert done.returncode == 2
    assert "invalid choice: 'dance'" in done.stderr


def test_wrong_setting_is_one_line(tmp_path: Path) -> None:
    done = reveal("up", "--status", REVEAL_STACK_KAFKA_PORT="high")
    assert done.returncode == 2
    assert done.stderr == "reveal: REVEAL_STACK_KAFKA_PORT must be a number, not 'high'\n"


@pytest.mark.parametrize("where", ["before", "after", "environment"])
def test_settings_file(tmp_path: Path, where: str) -> None:
    path = tmp_path / "reveal.toml"
    path.write_text(f'[stack]\ndirectory = "{tmp_path}/here"\n')
    option = ("--config", str(path))
    if where == "before":
        done = reveal(*option, "up", "--status")
    elif where == "after":
        done = reveal("up", "--status", *option)
    else:
        done = reveal("up", "--status", REVEAL_CONFIG=str(path))
    assert f"no stack runs in {tmp_path}/here" in done.stdout
    assert done.returncode == 1


def test_missing_settings_file_is_told(tmp_path: Path) -> None:
    done = reveal("--config", str(tmp_path / "none.toml"), "up", "--status")
    assert done.returncode == 2
    assert "cannot read the settings file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("error", [SettingsError("x"), StackError("x"), JarError("x")])
def test_errors_for_people(error: Exception) -> None:
    assert cli.is_expected(error)
    assert not cli.is_expected(ValueError("x"))


def test_reader_that_leaves_is_no_error() -> None:
    code = "import sys; from deploy.cli import main; sys.stdin.readline(); sys.exit(main(['metrics', '--json']))"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_ctrl_c_is_quiet(tmp_path: Path) -> None:
    # A port that stays silent keeps the command waiting.
    with subprocess.Popen(
        [sys.executable, "-m", "deploy.cli", "topics", "--timeout", "30"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "REVEAL_KAFKA_BOOTSTRAP": "127.0.0.1:9"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"[kafka]")
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 130
        assert b"Traceback" not in process.stderr.read()


def test_missing_package_is_told(tmp_path: Path) -> None:
    code = "import sys; sys.modules['confluent_kafka'] = None\nfrom deploy.cli import main; sys.exit(main(['topics']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the package confluent_kafka is not installed" in done.stderr


def test_folder_in_the_way_is_not_taken_for_ours(tmp_path: Path) -> None:
    from deploy.process import reveal_argv

    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "__init__.py").write_text("raise SystemExit('wrong folder')")
    done = subprocess.run(reveal_argv("--version"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("reveal "), done.stderr
