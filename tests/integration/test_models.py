"""`reveal models` on the real Kafka: what it shows, and workers that obey it, live and after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.cli import main
from deploy.kafka.ports import free_ports
from deploy.kafka.server import LocalKafka
from schemas.codec import encode
from schemas.records import DeadLetter, StateRecord, Verdict
from schemas.topics import CONTROL, DEAD, MODELS, VERDICTS
from tests.kafka_fixture import NewKafka
from tests.streams import PARTITIONS, Service, eventually, make_topics, publish, publish_raw, read_all
from tests.synthetic import START, run

HOST = "gpu-001"
Say = Callable[..., tuple[int, str, str]]
Start = Callable[[], Service]


@pytest.fixture
def broker(new_kafka: NewKafka, monkeypatch: pytest.MonkeyPatch) -> LocalKafka:
    kafka = new_kafka()
    for name, value in {
        "REVEAL_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "REVEAL_KAFKA_PARTITIONS": str(PARTITIONS),
        "REVEAL_PIPELINE_WARMUP_WINDOWS": "30",
        "REVEAL_PIPELINE_ROWS": "32",
        "REVEAL_PIPELINE_REFIT_WINDOWS": "20",
        "REVEAL_PIPELINE_ROW_EVERY": "2",
    }.items():
        monkeypatch.setenv(name, value)
    return kafka


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs `reveal models`: exit status, stdout, stderr."""

    def run_it(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["models", *arguments])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run_it


@pytest.fixture
def start(broker: LocalKafka, tmp_path: Path) -> Iterator[Start]:
    services: list[Service] = []

    def make() -> Service:
        environ = {"REVEAL_WORKER_DIRECTORY": str(tmp_path / "worker")}
        services.append(Service("worker", environ, tmp_path / "worker.log"))
        return services[-1]

    yield make
    for running in services:
        if running.process.poll() is None:
            running.kill()


def versions(broker: LocalKafka, seconds: range) -> list[int]:
    """Versions that scored the windows of HOST that begin in these seconds, each once, in order, when all are there."""
    found: dict[int, int] = {}

    def complete() -> bool:
        found.clear()
        found.update(
            {
                v.window_start_ns // 10**9 - START: v.model_version
                for v in read_all(broker.bootstrap, VERDICTS, Verdict)
                if v.host == HOST
            }
        )
        return set(seconds) <= set(found)

    eventually(complete, f"verdicts of {seconds}")
    return list(dict.fromkeys(found[second] for second in seconds))


def held(say: Say) -> dict[str, Any]:
    status, out, err = say("show", HOST, "--json")
    assert status == 0, err
    shown: dict[str, Any] = json.loads(out)
    return shown


def test_versions_are_shown_pinned_rolled_back_and_unpinned(broker: LocalKafka, say: Say, start: Start) -> None:
    make_topics(broker.bootstrap)
    worker = start()
    publish(broker.bootstrap, run([HOST, "gpu-002"], 90))
    newest = versions(broker, range(85, 88))[-1]
    assert newest >= 2
    # Verdicts and state are of different topics, so a verdict may be read before the state that goes with it.
    eventually(lambda: held(say)["using"] == newest, f"version {newest} in use")
    shown = held(say)
    assert (shown["state"], shown["using"], shown["pinned"]) == ("learning", newest, None)
    assert [model["version"] for model in shown["models"]] == [newest, newest - 1]
    model = shown["models"][0]
    assert model["learnt_rows"] == 32
    assert 0 < model["features_kept"] < model["features"]
    assert 0 < model["metrics_kept"] <= model["metrics"]
    assert set(model["thresholds"]) == {"cpu", "memory", "network", "storage"}
    status, out, _ = say("list", "--json")
    assert (status, [each["host"] for each in json.loads(out)]) == (0, [HOST, "gpu-002"])
    status, out, _ = say("list")
    assert HOST in out
    assert "gpu-002" in out
    status, out, _ = say("list", "--host", "gpu-002")
    assert HOST not in out
    status, out, _ = say("show", HOST)
    assert f"version {newest} (in use)" in out

    assert say("rollback", HOST)[:2] == (0, f"{HOST} keeps version {newest - 1} of its model\n")
    publish(broker.bootstrap, run([HOST], 140, begin=90))
    assert versions(broker, range(90, 138)) == [newest - 1]
    shown = held(say)
    assert (shown["state"], shown["using"], shown["pinned"]) == ("pinned", newest - 1, newest - 1)
    status, _, err = say("rollback", HOST)
    assert status == 1
    assert "none before it is kept" in err

    worker.kill()
    worker = start()
    publish(broker.bootstrap, run([HOST], 160, begin=140))
    assert versions(broker, range(140, 158)) == [newest - 1]
    assert say("pin", HOST, str(newest))[0] == 0
    publish(broker.bootstrap, run([HOST], 170, begin=160))
    assert versions(broker, range(160, 168)) == [newest]
    assert say("unpin", HOST)[:2] == (0, f"{HOST} learns on\n")
    publish(broker.bootstrap, run([HOST], 200, begin=170))
    assert versions(broker, range(195, 198))[-1] > newest
    assert worker.stop() == 0, worker.tail()
    assert read_all(broker.bootstrap, DEAD, DeadLetter) == []


def test_what_cannot_be_done_is_said(broker: LocalKafka, say: Say, start: Start) -> None:
    status, _, err = say("list")
    assert status == 1
    assert f"no topic {MODELS}" in err
    make_topics(broker.bootstrap)
    # A broker that has just made a topic may have no leader of it yet.
    eventually(lambda: say("list")[:2] == (0, "no model of any host\n"), "an empty list")
    status, _, err = say("show", HOST)
    assert status == 1
    assert f"nothing is known of {HOST}" in err
    worker = start()
    publish(broker.bootstrap, run([HOST], 40))
    eventually(lambda: any(v.model_version for v in read_all(broker.bootstrap, VERDICTS, Verdict)), "a scored window")
    status, _, err = say("pin", HOST, "9")
    assert status == 1
    assert "version 9" in err
    assert "these are: 1" in err
    status, _, err = say("unpin", HOST)
    assert status == 1
    assert "no version pinned" in err
    # What reaches the worker and cannot be obeyed, or is no command, is among the dead letters.
    unknown = StateRecord("nobody", "control", '{"pinned": null}', {})
    publish_raw(broker.bootstrap, CONTROL, b"nobody", encode(unknown), b"garbage")
    eventually(lambda: len(read_all(broker.bootstrap, DEAD, DeadLetter)) >= 2, "dead letters")
    assert {each.reason for each in read_all(broker.bootstrap, DEAD, DeadLetter)} == {"not-obeyed", "not-avro"}
    assert worker.stop() == 0, worker.tail()
    status, _, err = say("pin", HOST, "1", "--wait", "0.5")
    assert status == 1
    assert "no worker has said" in err


def test_kafka_that_is_away_is_said(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    monkeypatch.setenv("REVEAL_KAFKA_BOOTSTRAP", f"127.0.0.1:{port}")
    status, out, err = say("list")
    assert (status, out) == (1, "")
    assert f"Kafka at 127.0.0.1:{port}" in err
    assert "REVEAL_KAFKA_BOOTSTRAP" in err
