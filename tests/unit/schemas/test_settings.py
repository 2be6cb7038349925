"""Settings: environment over file over defaults; errors say where, what and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.settings import (
    SECTIONS,
    AgentSettings,
    ClickHouseSettings,
    KafkaSettings,
    PipelineSettings,
    SettingsError,
    load,
    read_file,
)


@pytest.mark.parametrize("kind", SECTIONS.values(), ids=SECTIONS)
def test_defaults_are_sound(kind: type) -> None:
    load(kind, {}).check()


def test_environment_over_file_over_default(tmp_path: Path) -> None:
    path = tmp_path / "reveal.toml"
    path.write_text('[agent]\nhost = "from-file"\nperiod_ms = 200\ndisable = ["snmp"]\n')
    settings = load(AgentSettings, {"REVEAL_AGENT_HOST": "from-env", "REVEAL_OTHER": "x"}, read_file(path))
    assert (settings.host, settings.period_ms, settings.disable, settings.procfs) == (
        "from-env",
        200,
        ("snmp",),
        "/proc",
    )
    assert load(AgentSettings, {"REVEAL_AGENT_DISABLE": "a, b,"}).disable == ("a", "b")


def test_secrets_come_from_files_and_do_not_show(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    settings = load(
        KafkaSettings, {"REVEAL_KAFKA_SASL_PASSWORD_FILE": str(path), "REVEAL_KAFKA_SASL_MECHANISM": "PLAIN"}
    )
    assert settings.client()["sasl.password"] == "hunter2"
    assert "hunter2" not in settings.describe()
    assert "hunter2" not in repr(settings)
    assert "***" in settings.describe()


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"REVEAL_CLICKHOUSE_PORT": "many"}, "REVEAL_CLICKHOUSE_PORT must be a number, not 'many'"),
        ({"REVEAL_CLICKHOUSE_PORT": "0"}, "port must be a port from 1 to 65535"),
        ({"REVEAL_CLICKHOUSE_SECURE": "maybe"}, "must be true or false"),
        ({"REVEAL_CLICKHOUSE_PROT": "1"}, "REVEAL_CLICKHOUSE_PROT: no such setting"),
        ({"REVEAL_CLICKHOUSE_PASSWORD_FILE": "/nowhere"}, "cannot read /nowhere"),
    ],
)
def test_wrong_environment_is_explained(environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(ClickHouseSettings, environ)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pipeline]\nwindow = 3", "has no setting window"),
        ("[pipeline]\nwindow_s = 'three'", r"\[pipeline\] window_s must be of type int"),
        ("[pipeline]\nwindow_s = true", r"\[pipeline\] window_s must be of type int"),
        ("[pipeline]\ncoverage = 2", "coverage must be above 0 and at most 1"),
        ("[pipeline]\nstep_s = 5", "samples between windows would never be looked at"),
        ("[pipeline]\nwarmup_windows = 5", "at least 30"),
        ("[kafka]\nsecurity_protocol = 'TLS'", "must be one of PLAINTEXT"),
        ("[agent]\nperiod_ms = 170", "must divide 1000"),
    ],
)
def test_wrong_file_is_explained(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "reveal.toml"
    path.write_text(text)
    content = read_file(path)
    with pytest.raises(SettingsError, match=message):
        for section in content:
            load(SECTIONS[section], {}, content)


@pytest.mark.parametrize(("text", "message"), [("[nonsense]", "unknown section"), ("= 1", "is not TOML")])
def test_file_that_is_no_settings_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "reveal.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_file(path)
    with pytest.raises(SettingsError, match="cannot read the settings file"):
        read_file(tmp_path / "missing.toml")


def test_float_takes_whole_numbers(tmp_path: Path) -> None:
    path = tmp_path / "reveal.toml"
    path.write_text("[pipeline]\ngrace_s = 2")
    assert load(PipelineSettings, {}, read_file(path)).grace_s == 2.0
