"""The local Kafka without a broker: pinned jars, start-up cache, settings, ports, progress."""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.commands import kafka as command
from deploy.kafka import jars
from deploy.kafka.config import server_properties
from deploy.kafka.errors import JarError, LocalKafkaError, PortBusyError
from deploy.kafka.jars import Jar, JarStore, default_cache, pinned_jars
from deploy.kafka.locks import exclusive
from deploy.kafka.ports import check_free, free_ports, is_free, listens
from deploy.kafka.progress import LineProgress
from deploy.kafka.runtime import Runtime, StartupCache, Train
from deploy.kafka.server import LocalKafka

CONTENT = {"one-1.0.jar": b"first jar", "two-2.0.jar": b"second jar"}
JARS = [
    Jar(
        f"org.example:{name.rsplit('-')[0]}:{name.split('-')[1].removesuffix('.jar')}",
        len(content),
        hashlib.sha256(content).hexdigest(),
    )
    for name, content in CONTENT.items()
]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "RETRY_S", 0)


class Repository:
    """Serves jars as a Maven repository would, and counts. broken: how many of the next attempts break off half-way."""

    def __init__(self, content: dict[str, bytes], broken: int = 0) -> None:
        self.content = content
        self.broken = broken
        self.served: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, jar: Jar, directory: Path) -> Path:
        path = directory / jar.name
        assert not path.exists(), "a half file of an earlier attempt is in the way"
        with self._lock:
            self.served.append(jar.name)
            breaks = self.broken > 0
            self.broken -= breaks
        path.write_bytes(self.content[jar.name][: 3 if breaks else None])
        if breaks:
            raise ConnectionError("connection reset")
        return path


def offline(jar: Jar, directory: Path) -> Path:
    raise OSError("network is unreachable")


def test_pinned_jars_are_complete_and_distinct() -> None:
    pinned = pinned_jars()
    assert len({jar.name for jar in pinned}) == len(pinned) == 45
    assert {"kafka_2.13-4.4.0.jar", "kafka-clients-4.4.0.jar", "log4j-slf4j-impl-2.25.5.jar"} <= {
        jar.name for jar in pinned
    }
    assert all(len(bytes.fromhex(jar.sha256)) == 32 and jar.size > 0 for jar in pinned)


def test_jars_are_fetched_once_with_progress(tmp_path: Path) -> None:
    repository = Repository(CONTENT)
    seen: list[tuple[int, int]] = []
    store = JarStore(tmp_path / "cache", JARS, repository)
    paths = store.ensure(lambda done, total, name: seen.append((done, total)))
    assert [path.name for path in paths] == list(CONTENT)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert seen[0] == (0, 19)
    assert seen[-1] == (19, 19)
    assert JarStore(tmp_path / "cache", JARS, offline).ensure() == paths
    assert sorted(repository.served) == sorted(CONTENT)
    assert not list((tmp_path / "cache").glob(f"{jars.SCRATCH}*"))


def test_a_broken_download_is_tried_again(tmp_path: Path) -> None:
    repository = Repository(CONTENT, broken=2)
    JarStore(tmp_path, JARS, repository).ensure()
    assert len(repository.served) == 4


def test_offline_says_which_files_are_missing_and_where_they_go(tmp_path: Path) -> None:
    (tmp_path / "one-1.0.jar").write_bytes(CONTENT["one-1.0.jar"])
    with pytest.raises(JarError) as raised:
        JarStore(tmp_path, JARS, offline).ensure()
    text = str(raised.value)
    assert "network is unreachable" in text
    assert "org.example:two:2.0  two-2.0.jar" in text
    assert "one-1.0.jar" not in text
    assert str(tmp_path) in text


def test_files_put_there_by_hand_count(tmp_path: Path) -> None:
    for name, content in CONTENT.items():
        (tmp_path / name).write_bytes(content)
    assert len(JarStore(tmp_path, JARS, offline).ensure()) == 2


@pytest.mark.parametrize("content", [b"second jaX", b"second", b""])
def test_a_wrong_file_in_the_cache_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "two-2.0.jar"
    path.write_bytes(content)
    with pytest.raises(JarError, match=r"not the pinned org\.example:two:2\.0") as raised:
        JarStore(tmp_path, JARS, Repository(CONTENT)).ensure()
    assert str(path) in str(raised.value)
    assert path.read_bytes() == content


def test_a_jar_changed_after_it_was_verified_is_refused(tmp_path: Path) -> None:
    JarStore(tmp_path, JARS, Repository(CONTENT)).ensure()
    (tmp_path / "two-2.0.jar").write_bytes(b"second jaX")
    os.utime(tmp_path / "two-2.0.jar", (1, 1))
    with pytest.raises(JarError, match=r"two-2\.0\.jar"):
        JarStore(tmp_path, JARS, offline).ensure()


def test_a_wrong_download_never_reaches_the_cache(tmp_path: Path) -> None:
    with pytest.raises(JarError, match=r"not the pinned org\.example:two:2\.0"):
        JarStore(tmp_path, JARS, Repository({**CONTENT, "two-2.0.jar": b"second jaX"})).ensure()
    assert not (tmp_path / "two-2.0.jar").exists()


def test_a_file_from_elsewhere_on_the_machine_is_copied(tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.mkdir()
    for name, content in CONTENT.items():
        (local / name).write_bytes(content)
    JarStore(tmp_path / "cache", JARS, lambda jar, _: local / jar.name).ensure()
    assert {path.name for path in local.iterdir()} == set(CONTENT)


def test_two_at_once_fetch_each_jar_once(tmp_path: Path) -> None:
    repository = Repository(CONTENT)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: JarStore(tmp_path, JARS, repository).ensure(), range(4)))
    assert len(set(results)) == 1
    assert sorted(repository.served) == sorted(CONTENT)


def test_a_lock_that_is_not_given_up_is_explained(tmp_path: Path) -> None:
    with exclusive(tmp_path / "lock"), pytest.raises(LocalKafkaError, match="another process"):  # noqa: SIM117
        with exclusive(tmp_path / "lock", timeout_s=0):
            pass


def test_default_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/reveal/kafka-4.4.0")
    assert default_cache({"XDG_CACHE_HOME": "relative"}) == tmp_path / ".cache/reveal/kafka-4.4.0"
    assert default_cache({}) == tmp_path / ".cache/reveal/kafka-4.4.0"


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    home = tmp_path / "java"
    for path in (home / "lib" / "modules", home / "bin" / "java", tmp_path / "a.jar"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return Runtime(home / "bin" / "java", (tmp_path / "a.jar",), ("-XX:+UseSerialGC",))


def trainer(content: bytes, runs: list[int]) -> Train:
    def train(directory: Path, options: Sequence[str]) -> None:
        runs.append(1)
        Path(options[0].removeprefix("-XX:AOTCacheOutput=")).write_bytes(content)

    return train


def test_startup_cache_is_made_once_and_again_when_damaged_or_stale(tmp_path: Path, runtime: Runtime) -> None:
    runs: list[int] = []
    cache = StartupCache(tmp_path, runtime)
    assert not cache.intact()
    cache.make(trainer(b"state of classes", runs))
    cache.make(trainer(b"state of classes", runs))
    assert cache.intact()
    assert len(runs) == 1

    cache.path.write_bytes(b"state of glasses")
    assert not cache.intact()
    cache.make(trainer(b"state of classes", runs))
    assert cache.intact()
    assert len(runs) == 2

    os.utime(runtime.jars[0], (1, 1))
    assert StartupCache(tmp_path, runtime).path != cache.path


def test_startup_caches_do_not_pile_up(tmp_path: Path, runtime: Runtime) -> None:
    for time in range(1, 6):
        os.utime(runtime.jars[0], (time, time))
        newest = StartupCache(tmp_path, runtime)
        newest.make(trainer(b"state", []))
    assert newest.intact()
    assert len(list(tmp_path.glob("startup-*"))) == 2 * StartupCache.KEEP


def test_a_training_run_without_a_result_is_an_error(tmp_path: Path, runtime: Runtime) -> None:
    with pytest.raises(LocalKafkaError, match="without writing"):
        StartupCache(tmp_path, runtime).make(lambda directory, options: None)


def test_settings_listen_on_loopback_only_and_bound_the_disk() -> None:
    lines = server_properties(Path("/srv/data"), 1111, 2222).splitlines()
    settings = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert settings["listeners"] == "BROKER://127.0.0.1:1111,CONTROLLER://127.0.0.1:2222"
    assert settings["auto.create.topics.enable"] == "false"
    assert int(settings["log.segment.bytes"]) * 4 <= int(settings["log.retention.bytes"])


def test_settings_take_any_path_but_one_with_a_comma() -> None:
    assert "log.dirs=/d\\u00e4ta \\ud83d\\ude00/\\\\x\n" in server_properties(Path("/däta 😀/\\x"), 1, 2)
    with pytest.raises(LocalKafkaError, match="choose another directory"):
        server_properties(Path("/a,b"), 1, 2)


def test_a_busy_port_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert listens(port)
        with pytest.raises(PortBusyError, match=rf"port {port} .* choose another port with --kafka-port"):
            check_free(port, "--kafka-port")
        (free,) = free_ports(1)
        with pytest.raises(PortBusyError, match=rf"port {port} .*--port"):
            LocalKafka(tmp_path, port=port, controller_port=free).start()
        with pytest.raises(PortBusyError, match=rf"port {port} .*--controller-port"):
            LocalKafka(tmp_path, port=free, controller_port=port).start()
    assert is_free(port)
    assert not listens(port)


def test_a_broker_that_is_not_prepared_has_no_command(tmp_path: Path) -> None:
    with pytest.raises(LocalKafkaError, match=r"prepare\(\)"):
        LocalKafka(tmp_path).command()


def test_a_cache_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalKafkaError, match=r"cannot be prepared: .*file"):
        LocalKafka(tmp_path / "kafka", cache=tmp_path / "file").prepare()


def test_progress_is_one_line_a_second() -> None:
    out, now = io.StringIO(), [0.0]
    progress = LineProgress(out, lambda: now[0])
    for done in (0, 1_000_000, 2_000_000):
        progress(done, 4_000_000, "a.jar")
    now[0] = 1.5
    progress(3_000_000, 4_000_000, "b.jar")
    progress(4_000_000, 4_000_000, "c.jar")
    progress(0, 1, "cache")
    progress(1, 1, "cache")
    assert out.getvalue().splitlines() == [
        "Kafka's jars: 0 of 4 MB (a.jar)",
        "Kafka's jars: 3 of 4 MB (b.jar)",
        "Kafka's jars: 4 of 4 MB (c.jar)",
        "cache ...",
        "cache: done",
    ]


def test_command_line_reports_a_busy_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert command.run(parser.parse_args(["--directory", str(tmp_path), "--port", str(port)])) == 1
    assert f"port {port}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
