"""The agent's unit, judged by systemd's own tools, and what the agent tells systemd."""

from __future__ import annotations

import configparser
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from deploy.ready import ReadyFile

UNIT = Path(__file__).parents[3] / "deploy" / "systemd" / "reveal-agent.service"
NEEDED = {"CAP_PERFMON", "CAP_SYSLOG", "CAP_DAC_READ_SEARCH"}


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_systemd_finds_nothing_wrong_with_the_unit() -> None:
    done = analyze("verify", str(UNIT))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_unit_is_little_exposed() -> None:
    done = analyze("security", "--offline=true", "--threshold=30", str(UNIT))
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_the_unit_runs_unprivileged_with_the_capabilities_that_it_explains() -> None:
    text = UNIT.read_text(encoding="utf-8")
    # systemd lets a key come twice, which adds to a list.
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    service = parser["Service"]
    assert service["DynamicUser"] == "yes"
    assert set(service["AmbientCapabilities"].split()) == set(service["CapabilityBoundingSet"].split()) == NEEDED
    for capability in NEEDED:
        assert f"#   {capability} " in text


@pytest.mark.parametrize("abstract", [False, True])
def test_beats_reach_systemd(tmp_path: Path, abstract: bool) -> None:
    name = f"@reveal-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    now = [100.0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name[1:]}" if abstract else name)
        systemd.settimeout(5)
        ready = ReadyFile({"NOTIFY_SOCKET": name}, lambda: now[0])
        for _ in range(3):
            ready.beat()
        assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.recv(100)
        now[0] += 10
        ready.beat()
        assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"


def test_a_systemd_that_is_gone_disturbs_nobody(tmp_path: Path) -> None:
    ready = ReadyFile({"NOTIFY_SOCKET": str(tmp_path / "nobody"), "REVEAL_READY_FILE": str(tmp_path / "ready")})
    ready.beat()
    assert (tmp_path / "ready").exists()
