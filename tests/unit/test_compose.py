"""docker-compose.yml and Dockerfile: by the schema of the Compose specification, and against our own settings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deploy import ready
from deploy.cli import COMMANDS
from schemas.settings import SECTIONS, AgentSettings, ClickHouseSettings, KafkaSettings, load

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if "build" in service)
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()


def test_follows_the_compose_specification() -> None:
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_text())
    jsonschema.Draft7Validator(schema).validate(COMPOSE)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema).validate({"services": {"agent": {"imagee": "x"}}})


def test_every_service_of_the_stack_is_there() -> None:
    assert OURS == ["agent", "alerts", "topics", "warehouse", "worker"]
    assert {"kafka", "clickhouse"} < set(SERVICES)


@pytest.mark.parametrize("name", OURS)
def test_ours_run_a_command_that_exists(name: str) -> None:
    service = SERVICES[name]
    assert service["command"][0] in COMMANDS
    assert (ROOT / service["build"]["dockerfile"]).exists()


@pytest.mark.parametrize("name", OURS)
def test_settings_are_known(name: str) -> None:
    environ = SERVICES[name]["environment"]
    known = {f"REVEAL_{section.upper()}_" for section in SECTIONS}
    for variable in environ:
        assert variable == ready.VARIABLE or variable.startswith(tuple(known))
    for kind in SECTIONS.values():
        load(kind, environ)  # refuses a variable of its section that it does not know, and a wrong value


def test_addresses_are_those_of_the_neighbours() -> None:
    inside = SERVICES["worker"]["environment"]
    assert load(KafkaSettings, inside).bootstrap == "kafka:9092"
    clickhouse = load(ClickHouseSettings, inside)
    assert (clickhouse.host, clickhouse.port) == ("clickhouse", 8123)
    # The agent is in the host's network: what is published there must be what it is told, and the defaults.
    agent = SERVICES["agent"]["environment"]
    assert SERVICES["agent"]["network_mode"] == "host"
    assert load(KafkaSettings, agent).bootstrap == KafkaSettings().bootstrap
    port = KafkaSettings().bootstrap.rpartition(":")[2]
    assert f"127.0.0.1:{port}:{port}" in SERVICES["kafka"]["ports"]
    assert f"127.0.0.1:{ClickHouseSettings().port}:8123" in SERVICES["clickhouse"]["ports"]
    assert f"OUTSIDE://127.0.0.1:{port}" in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_agent_reads_the_hosts_trees_and_cannot_write_them() -> None:
    service = SERVICES["agent"]
    settings = load(AgentSettings, service["environment"])
    trees = {f"/proc:{settings.procfs}:ro", f"/sys:{settings.sysfs}:ro", f"/:{settings.rootfs}:ro,rslave"}
    (spool,) = set(service["volumes"]) - trees
    assert trees < set(service["volumes"])
    assert settings.spool.startswith(spool.partition(":")[2])
    assert service["cap_add"] == ["PERFMON", "SYSLOG", "DAC_READ_SEARCH"]


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].partition(":")
    assert image
    assert re.match(r"\d+\.\d+", tag)


@pytest.mark.parametrize("name", SERVICES)
def test_health_is_checked(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    if name == "topics":  # runs once; its exit status is what others wait for
        assert check == {"disable": True}
    else:
        assert check["test"][0] == "CMD"
        assert {"interval", "timeout", "retries"} <= set(check)


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_published_beyond_loopback(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("name", OURS)
def test_ours_have_no_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert "privileged" not in service


def test_services_wait_for_what_they_need() -> None:
    conditions = {
        "kafka": "service_healthy",
        "clickhouse": "service_healthy",
        "topics": "service_completed_successfully",
    }
    for service in SERVICES.values():
        for needed, how in service.get("depends_on", {}).items():
            assert how["condition"] == conditions[needed]
    assert set(SERVICES["warehouse"]["depends_on"]) == {"topics", "clickhouse"}


def test_volumes_are_declared() -> None:
    used = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())}
    assert {volume for volume in used if not volume.startswith("/")} == set(COMPOSE["volumes"])


def test_image_is_pinned_hashed_and_not_root() -> None:
    assert re.search(r"^FROM python:3\.12\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    assert "pip install --require-hashes -r requirements.txt" in DOCKERFILE
    user = re.search(r"^USER (\d+)", DOCKERFILE, re.MULTILINE)
    assert user is not None
    assert int(user[1]) > 0
    assert 'ENTRYPOINT ["reveal"]' in DOCKERFILE


def test_image_gets_all_it_copies() -> None:
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE):
        for source in line.split():
            assert f"!{source}" in ignored
