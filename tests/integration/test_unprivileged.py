"""The agent as its systemd unit runs it: nobody in particular, with three capabilities."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "reveal-agent.service"
NOBODY = "65534"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_the_capabilities_of_the_unit_suffice(tmp_path: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    names = [name.removeprefix("CAP_").lower() for name in parser["Service"]["AmbientCapabilities"].split()]
    capabilities = ",".join(["-all", *(f"+{name}" for name in names)])
    sets = [option for kind in ("bounding-set", "inh-caps", "ambient-caps") for option in (f"--{kind}", capabilities)]
    nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", *sets]
    os.chmod(tmp_path, 0o777)
    done = subprocess.run(
        [*nobody, sys.executable, "-m", "deploy.cli", "agent", "--once", "--json"],
        env={**os.environ, "REVEAL_AGENT_SPOOL": str(tmp_path / "spool")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    metrics = {row["metric"] for row in json.loads(done.stdout)}
    # One that anybody may read, one for each capability of which this machine has the source.
    assert "cpu.time.user" in metrics
    assert "denied" not in done.stderr.lower()
    assert "not permitted" not in done.stderr.lower()
    if Path("/proc/slabinfo").exists():
        assert "slab.objects" in metrics
    if Path("/proc/sys/kernel/perf_event_paranoid").exists():
        assert "cpu.perf.context_switches" in metrics
