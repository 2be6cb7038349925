"""The alert service on a real Kafka: killed in mid-stream, taken over, asked by commands, told to a real receiver."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from deploy.cli import main
from deploy.kafka.ports import free_ports
from deploy.kafka.server import LocalKafka
from deploy.signals import STOP_S
from schemas.codec import decode, encode
from schemas.records import Alert, Delivery, Episode, Feedback
from schemas.settings import ClickHouseSettings
from schemas.topics import ALERTS, ANOMALIES, DELIVERIES, FEEDBACK
from sinks.warehouse.store import Store, StoreError
from tests import alertmanager
from tests.clickhouse_fixture import ClickHouseProcess
from tests.kafka_fixture import NewKafka
from tests.streams import PARTITIONS, make_topics, wait_for
from tests.unit.sinks.alerts.simulated import SECOND, episode

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
DOCUMENTATION = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")

QUICK = """
[timing]
wait = 1
keep_firing = 1
update = 1
[breaker]
hosts = 10000
least = 10000
[grouping]
cause = 0
"""


class Receiver:
    """An HTTP server that keeps every alert it is sent, by key, in order. `status` is what it answers."""

    def __init__(self) -> None:
        self.status = 200
        self.alerts: dict[str, list[Mapping[str, Any]]] = {}
        self.posts = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.take(body)
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def take(self, body: Mapping[str, Any]) -> None:
        with self._lock:
            self.posts += 1
            if self.status == 200:
                for alert in body["alerts"]:
                    self.alerts.setdefault(alert["host"], []).append(alert)

    def last(self, host: str) -> str:
        with self._lock:
            return str(self.alerts[host][-1]["state"]) if host in self.alerts else ""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@dataclass
class Bench:
    """One test's services, receiver and hosts. The broker's topics are shared, so the group decides whose state."""

    kafka: LocalKafka
    directory: Path
    receiver: Receiver = field(default_factory=Receiver)
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")
    services: list[subprocess.Popen[bytes]] = field(default_factory=list)
    routing: str = ""
    more: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began_ns = time.time_ns()
        self.producer = Producer(
            {"bootstrap.servers": self.kafka.bootstrap, "partitioner": "murmur2_random", "linger.ms": 1}
        )
        self.routing = self.routing or QUICK + (
            f'[receivers.hook]\nchannel = "webhook"\nurl = "{self.receiver.url}"\nsecret = "${{HOOK_SECRET}}"\n'
            "limit = {burst = 0}\n"
            '[[routes]]\nreceivers = ["hook"]\n'
        )

    def environ(self, instance: str = "alerts-1") -> dict[str, str]:
        path = self.directory / "routing.toml"
        path.write_text(self.routing)
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("REVEAL_")},
            "REVEAL_KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "REVEAL_ALERTS_ROUTING": str(path),
            "REVEAL_ALERTS_INSTANCE": instance,
            # A test does not wait until those that the last one killed are given up.
            "REVEAL_ALERTS_GROUP": self.name,
            "REVEAL_ALERTS_HTTP_PORT": "0",
            "HOOK_SECRET": "a secret of the test",
            **self.more,
        }

    def start(self, instance: str = "alerts-1") -> subprocess.Popen[bytes]:
        with self.log_of(instance).open("ab") as log:
            service = subprocess.Popen(
                [sys.executable, "-m", "deploy.cli", "alerts", "run"], env=self.environ(instance), stderr=log
            )
        self.services.append(service)
        return service

    def log_of(self, instance: str) -> Path:
        return self.directory / f"{instance}.log"

    def log(self, instance: str = "alerts-1") -> str:
        return self.log_of(instance).read_text()

    def wait_owner(self, instance: str = "alerts-1", times: int = 1) -> None:
        wait_for(lambda: self.log(instance).count("owner of") >= times, lambda: self.log(instance))

    def reveal(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command as a user has it, in this process: it is quicker."""
        command, out, err = ["reveal", "alerts", *arguments], io.StringIO(), io.StringIO()
        environ = mock.patch.dict(os.environ, self.environ(), clear=True)
        with environ, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(command[1:])
        return subprocess.CompletedProcess(command, status, out.getvalue(), err.getvalue())

    def host(self, number: int = 0) -> str:
        return f"{self.name}-{number}"

    def now(self, host: str, state: str = "opened", revision: int = 0, number: int = 0, **more: Any) -> Episode:
        made, now_ns = episode(host, 0, state, number=number, revision=revision, **more), time.time_ns()
        shift = now_ns - made.updated_ns
        times = {name: getattr(made, name) + shift for name in ("start_ns", "opened_ns", "updated_ns", "peak_ns")}
        return replace(made, **times, closed_ns=now_ns if state == "closed" else None)

    def send(self, *episodes: Episode) -> None:
        for each in episodes:
            self.producer.produce(ANOMALIES, encode(each), each.host.encode())
            self.producer.poll(0)
        assert self.producer.flush(30) == 0

    def records(self, topic: str, kind: type[Any]) -> list[Any]:
        """Records of this test's hosts."""
        consumer = Consumer(
            {"bootstrap.servers": self.kafka.bootstrap, "group.id": "test", "enable.partition.eof": True}
        )
        found: list[Any] = []
        ended: set[int | None] = set()
        try:
            consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
            deadline = time.monotonic() + 20
            while len(ended) < PARTITIONS and time.monotonic() < deadline:
                for message in consumer.consume(500, 0.1):
                    if message.error() is None:
                        found.append(decode(message.value()))
                    else:
                        ended.add(message.partition())
        finally:
            consumer.close()
        assert all(isinstance(record, kind) for record in found)
        return [record for record in found if self.name in repr(record)]

    def close(self) -> None:
        # The state is shared: what still fires would be told to the next test's receiver, which does not care.
        for service in self.services:
            if service.poll() is None:
                service.kill()
            service.wait()
        self.receiver.close()


@pytest.fixture
def bench(broker: LocalKafka, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(broker, tmp_path)
    yield made
    made.close()


def test_fires_resolves_and_stops_cleanly_and_the_documented_consumer_runs(bench: Bench) -> None:
    service = bench.start()
    bench.wait_owner()
    host, began = bench.host(), time.monotonic()
    bench.send(bench.now(host, severity=11.0))
    wait_for(lambda: bench.receiver.last(host) == "firing", bench.log)
    print(f"told {time.monotonic() - began:.2f} s after the episode, of which 1 s is the wait")
    bench.send(bench.now(host, "closed", 1, severity=11.0))
    wait_for(lambda: bench.receiver.last(host) == "resolved", bench.log)
    assert [alert["state"] for alert in bench.receiver.alerts[host]] == ["firing", "resolved"]
    key = bench.receiver.alerts[host][0]["key"]
    states = [alert.state for alert in bench.records(ALERTS, Alert) if alert.key == key]
    assert states == ["firing", "resolved"]

    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENTATION, re.DOTALL)
    assert len(example.splitlines()) <= 22
    said = bench.directory / "example.out"
    with said.open("wb") as out:
        command = [sys.executable, "-c", example]
        environ = bench.environ() | {"PYTHONPATH": str(ROOT)}
        consumer = subprocess.Popen(command, env=environ, stdout=out, stderr=subprocess.STDOUT)
    bench.services.append(consumer)

    listed = bench.reveal("list", "--all")
    assert host in listed.stdout, listed.stderr
    wait_for(lambda: f"drain {host}: {host}: gpu, probable cause" in said.read_text(), said.read_text)
    consumer.send_signal(signal.SIGINT)
    assert consumer.wait(60) == 0, said.read_text()
    service.terminate()
    assert service.wait(60) == 0
    assert "a secret of the test" not in bench.log()
    wait_for(lambda: len(bench.records(DELIVERIES, Delivery)) == 2, "two deliveries")
    assert {each.status for each in bench.records(DELIVERIES, Delivery)} == {"delivered"}


def test_killed_in_mid_stream_and_taken_over(bench: Bench) -> None:
    first = bench.start("alerts-1")
    bench.wait_owner("alerts-1")
    bench.start("alerts-2")
    hosts = [bench.host(number) for number in range(60)]
    for number, host in enumerate(hosts):
        bench.send(bench.now(host))
        if number == 30:
            wait_for(lambda: bench.receiver.last(hosts[0]) == "firing", lambda: bench.log("alerts-1"))
            first.send_signal(signal.SIGKILL)
            first.wait()
            killed = time.monotonic()
    bench.wait_owner("alerts-2")
    took = time.monotonic() - killed
    wait_for(lambda: all(bench.receiver.last(host) == "firing" for host in hosts), lambda: bench.log("alerts-2"))
    bench.send(*(bench.now(host, "closed", 1) for host in hosts))
    wait_for(lambda: all(bench.receiver.last(host) == "resolved" for host in hosts), lambda: bench.log("alerts-2"))
    twice = sum(len(alerts) - len({alert["state"] for alert in alerts}) for alerts in bench.receiver.alerts.values())
    print(f"taken over {took:.1f} s after SIGKILL, {twice} of {2 * len(hosts)} told twice")
    assert twice <= 8  # what one receiver can have on its way: its queue of four, and those not noted yet
    for host in hosts:
        assert len({alert["key"] for alert in bench.receiver.alerts[host]}) == 1
    # In the topic each state is there once, since it is stored with the offsets.
    published = [(alert.key, alert.revision) for alert in bench.records(ALERTS, Alert)]
    assert len(published) == len(set(published))
    assert {alert.host for alert in bench.records(ALERTS, Alert) if alert.state == "firing"} == set(hosts)
    assert bench.log("alerts-2").count("owner of") == 1


def test_a_dead_receiver_is_told_how_things_are_when_it_is_back(bench: Bench) -> None:
    bench.receiver.status = 500
    bench.start()
    bench.wait_owner()
    come, gone = bench.host(1), bench.host(2)
    bench.send(bench.now(come), bench.now(gone))
    wait_for(lambda: bench.receiver.posts >= 2, bench.log)
    bench.send(bench.now(gone, "closed", 1))

    def state(host: str) -> str:
        held = json.loads(bench.reveal("list", "--all", "--json").stdout)["alerts"]
        return next(str(alert["state"]) for alert in held if alert["host"] == host)

    wait_for(lambda: state(gone) == "resolved", bench.log)
    bench.receiver.status = 200
    wait_for(lambda: bench.receiver.last(come) == "firing", bench.log)
    assert gone not in bench.receiver.alerts
    failed = [each for each in bench.records(DELIVERIES, Delivery) if each.status == "failed"]
    assert failed
    assert {each.code for each in failed} == {500}


def test_commands_the_page_and_feedback_by_link(bench: Bench) -> None:
    (port,) = free_ports(1)
    base = f"http://127.0.0.1:{port}"
    bench.more = {
        "REVEAL_ALERTS_HTTP_PORT": str(port),
        "REVEAL_ALERTS_FEEDBACK_SECRET": "sixteen letters or more",
        "REVEAL_ALERTS_FEEDBACK_URL": base,
    }
    bench.start()
    bench.wait_owner()
    one, other = bench.host(1), bench.host(2)
    bench.send(bench.now(one))
    wait_for(lambda: bench.receiver.last(one) == "firing", bench.log)
    id_ = bench.receiver.alerts[one][0]["id"]

    link = bench.receiver.alerts[one][0]["links"]["feedback_false"]
    with urllib.request.urlopen(link, timeout=60) as page:
        assert "is it a false alarm?" in page.read().decode()
    assert bench.records(FEEDBACK, Feedback) == []
    form = urllib.parse.urlencode({"by": "ada", "note": "<b>fan test</b>"}).encode()
    with urllib.request.urlopen(link, form, timeout=60) as page:
        assert "stored" in page.read().decode()
    (said,) = bench.records(FEEDBACK, Feedback)
    assert (said.verdict, said.by, said.note) == ("false", "ada", "<b>fan test</b>")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(link.replace("verdict=false", "verdict=true"), form, timeout=60)
    refused.value.close()
    assert refused.value.code == 403
    with urllib.request.urlopen(f"{base}/healthz", timeout=60) as page:
        assert page.read() == b"ok\nowner\n"
    with urllib.request.urlopen(f"{base}/metrics", timeout=60) as page:
        metrics = page.read().decode()
    assert "reveal_alerts_owner 1" in metrics
    assert 'reveal_alerts_tries_total{receiver="hook",status="delivered"} ' in metrics
    assert "sixteen letters" not in bench.log()

    done = bench.reveal("ack", id_[:10], "--by", "ada", "--comment", "on it")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: bench.receiver.last(one) == "acknowledged", bench.log)
    assert bench.receiver.alerts[one][-1]["reason"] == "by ada: on it"

    done = bench.reveal("silence", "--match", f"host={other}", "--for", "10m", "--by", "ada")
    assert done.returncode == 0, done.stderr
    silence = re.match(r"silence (\w+):", done.stdout)
    assert silence is not None
    bench.send(bench.now(other))
    wait_for(
        lambda: [alert.state for alert in bench.records(ALERTS, Alert) if alert.host == other][-1:] == ["silenced"],
        bench.log,
    )
    assert other not in bench.receiver.alerts
    listed = bench.reveal("list").stdout
    assert silence[1] in listed
    assert f"silence {silence[1]} by ada" in listed
    assert bench.reveal("unsilence", silence[1]).returncode == 0
    wait_for(lambda: bench.receiver.last(other) == "firing", bench.log)

    bench.send(bench.now(other, "closed", 1))
    wait_for(lambda: bench.receiver.last(other) == "resolved", bench.log)
    told = bench.receiver.alerts[other][0]
    done = bench.reveal("feedback", told["id"], "expected", "--for", "1h", "--by", "ada", "--comment", "burn-in")
    assert done.returncode == 0, done.stderr
    (said,) = [each for each in bench.records(FEEDBACK, Feedback) if each.host == other]
    assert (said.verdict, said.by, said.note) == ("expected", "ada", "burn-in")
    # The command is read before the episode only if it came before: wait until it is known.
    wait_for(lambda: "expected" in bench.reveal("list").stdout, bench.log)
    number = len(bench.receiver.alerts[other])
    bench.send(bench.now(other, number=1))
    wait_for(lambda: [a for a in bench.records(ALERTS, Alert) if a.host == other][-1].state == "silenced", bench.log)
    assert len(bench.receiver.alerts[other]) == number

    nothing = bench.reveal("ack", "ffffffffffff")
    assert nothing.returncode == 1
    assert "there is no alert ffffffffffff" in nothing.stderr


def test_a_backlog_pages_nobody_and_what_still_fires_does(bench: Bench) -> None:
    old, going = bench.host(1), bench.host(2)
    hour = 3600 * SECOND
    then = replace(bench.now(old), start_ns=time.time_ns() - hour, updated_ns=time.time_ns() - hour)
    bench.send(then, replace(then, id=f"{going}-0", host=going))
    bench.start()
    bench.wait_owner()
    bench.send(bench.now(going, "updated", 1))
    wait_for(lambda: bench.receiver.last(going) == "firing", bench.log)
    assert old not in bench.receiver.alerts
    states = {host: [a.state for a in bench.records(ALERTS, Alert) if a.host == host] for host in (old, going)}
    assert states == {old: ["expired"], going: ["expired", "firing"]}


def test_a_real_alertmanager_receives_groups_and_resolves(bench: Bench) -> None:
    try:
        program = alertmanager.program()
    except alertmanager.NoAlertmanagerError as error:
        pytest.skip(str(error))
    hosts = [bench.host(number) for number in range(3)]
    racks = dict(zip(hosts, ("r1", "r1", "r2"), strict=True))
    posts: list[Mapping[str, Any]] = []
    bench.receiver.take = posts.append  # type: ignore[method-assign, assignment]
    with alertmanager.running(program, bench.directory, bench.receiver.url) as url:
        labels = "\n".join(f'{host} = {{rack = "{rack}"}}' for host, rack in racks.items())
        bench.routing = f"""{QUICK}
[labels.hosts]
{labels}
[receivers.am]
channel = "alertmanager"
urls = ["{url}"]
[[routes]]
receivers = ["am"]
"""
        bench.start()
        bench.wait_owner()
        bench.send(*(bench.now(host) for host in hosts))

        def told(status: str, rack: str) -> set[str]:
            """Hosts in the newest message of a group that has this status."""
            mine = [post for post in posts if post["groupLabels"] == {"rack": rack} and post["status"] == status]
            return {alert["labels"]["host"] for alert in mine[-1]["alerts"]} if mine else set()

        wait_for(lambda: told("firing", "r1") == set(hosts[:2]), lambda: f"{posts}\n{bench.log()}")
        wait_for(lambda: told("firing", "r2") == {hosts[2]}, lambda: f"{posts}\n{bench.log()}")
        summary = posts[-1]["alerts"][0]["annotations"]["summary"]
        assert "gpu, probable cause thermal throttling, since" in summary
        with urllib.request.urlopen(f"{url}/api/v2/alerts", timeout=60) as answer:
            held = json.loads(answer.read())
        assert {each["labels"]["host"] for each in held} >= set(hosts)
        bench.send(*(bench.now(host, "closed", 1) for host in hosts))
        wait_for(lambda: told("resolved", "r1") == set(hosts[:2]), lambda: f"{posts}\n{bench.log()}")
        wait_for(lambda: told("resolved", "r2") == {hosts[2]}, lambda: f"{posts}\n{bench.log()}")


def test_alerts_tries_and_feedback_are_rows(bench: Bench, clickhouse: ClickHouseProcess) -> None:
    """Into ClickHouse by the warehouse sink, and from there into the rehearsal of a routing file."""
    bench.more = {
        "REVEAL_CLICKHOUSE_PORT": str(clickhouse.port),
        "REVEAL_CLICKHOUSE_DATABASE": bench.name,
        "REVEAL_WAREHOUSE_GROUP": bench.name,
        "REVEAL_WAREHOUSE_LISTEN": "",
    }
    bench.start()
    with bench.log_of("warehouse").open("wb") as log:
        sink = subprocess.Popen([sys.executable, "-m", "deploy.cli", "warehouse"], env=bench.environ(), stderr=log)
    bench.services.append(sink)
    bench.wait_owner()
    host = bench.host()
    bench.send(bench.now(host, severity=11.0))
    wait_for(lambda: bench.receiver.last(host) == "firing", bench.log)
    assert bench.reveal("feedback", bench.receiver.alerts[host][0]["id"], "true", "--by", "ada").returncode == 0
    bench.send(bench.now(host, "closed", 1, severity=11.0))
    wait_for(lambda: bench.receiver.last(host) == "resolved", bench.log)
    store = Store(ClickHouseSettings(port=clickhouse.port, database=bench.name))

    def rows(sql: str) -> list[tuple[Any, ...]]:
        try:
            return [tuple(row) for row in store.query(sql, {"host": host}, database=bench.name).rows]
        except StoreError:
            return []

    states = "SELECT state FROM alerts WHERE host = {host:String} ORDER BY revision"
    wait_for(lambda: rows(states) == [("firing",), ("resolved",)], lambda: bench.log("warehouse"))
    assert rows("SELECT state, severity, cause, receivers FROM alerts_now WHERE host = {host:String}") == [
        ("resolved", "critical", "thermal_throttling", ["hook"])
    ]
    tries = "SELECT receiver, channel, status, code FROM deliveries WHERE alert LIKE concat('%', {host:String}, '%')"
    wait_for(lambda: rows(tries) == [("hook", "webhook", "delivered", 200)] * 2, lambda: str(rows(tries)))
    said = "SELECT verdict, by FROM feedback WHERE host = {host:String}"
    wait_for(lambda: rows(said) == [("true", "ada")], lambda: str(rows(said)))
    episodes = "SELECT state FROM episodes WHERE host = {host:String} ORDER BY revision"
    wait_for(lambda: rows(episodes) == [("opened",), ("closed",)], lambda: str(rows(episodes)))

    (documented,) = re.findall(r"```sql\n(.*?)```", DOCUMENTATION, re.DOTALL)
    # The tries of all tests before are there.
    assert any(row[0] == "hook" and row[1] >= 2 for row in rows(documented))

    shown = bench.reveal("test", str(bench.directory / "routing.toml"), "--since", "1h")
    assert shown.returncode == 0, shown.stderr
    told = [line for line in shown.stdout.splitlines() if f" {host}: gpu" in line]
    assert len(told) == 2
    assert "CRITICAL" in told[0]
    assert "RESOLVED" in told[1]
    assert "nothing was sent" in shown.stdout
    assert "hook (webhook): " in shown.stdout
    wrong = bench.directory / "wrong.toml"
    wrong.write_text('[receivers.x]\nchannel = "pigeon"\n')
    refused = bench.reveal("test", str(wrong))
    assert refused.returncode == 2
    assert "receivers.x.channel: must be one of log, kafka" in refused.stderr
    store.close()


def test_one_works_and_hands_over_and_one_that_was_taken_for_dead_writes_nothing_more(bench: Bench) -> None:
    first = bench.start("alerts-1")
    bench.wait_owner("alerts-1")
    second = bench.start("alerts-2")
    wait_for(lambda: "standing by" in bench.log("alerts-2"), lambda: bench.log("alerts-2"))
    host, other, last = (bench.host(number) for number in range(3))
    bench.send(bench.now(host))
    wait_for(lambda: bench.receiver.last(host) == "firing", lambda: bench.log("alerts-1"))
    assert "owner of" not in bench.log("alerts-2")

    first.send_signal(signal.SIGSTOP)
    bench.wait_owner("alerts-2")
    bench.send(bench.now(host, "closed", 1), bench.now(other))
    wait_for(lambda: bench.receiver.last(host) == "resolved", lambda: bench.log("alerts-2"))
    wait_for(lambda: bench.receiver.last(other) == "firing", lambda: bench.log("alerts-2"))
    first.send_signal(signal.SIGCONT)
    # It finds out by itself, or the broker refuses what it writes: then it ends, to be started again.
    wait_for(lambda: first.poll() == 1 or "standing by\n" in bench.log("alerts-1").partition("owner of")[2], "its end")
    published = [(alert.key, alert.revision) for alert in bench.records(ALERTS, Alert)]
    assert len(published) == len(set(published)) == 3
    # Told and stopped before that was noted, it is told once more, with the same key; nothing comes after the end.
    states = [alert["state"] for alert in bench.receiver.alerts[host]]
    assert list(dict.fromkeys(states)) == ["firing", "resolved"]
    assert states[-1] == "resolved"
    assert "Traceback" not in bench.log("alerts-1")

    if first.poll() is not None:
        first = bench.start("alerts-1")
    wait_for(lambda: bench.log("alerts-1").count("standing by") >= 2, lambda: bench.log("alerts-1"))
    second.terminate()
    assert second.wait(60) == 0
    left = time.monotonic()
    bench.wait_owner("alerts-1", times=2)
    print(f"handed over in {time.monotonic() - left:.1f} s")
    bench.send(bench.now(last))
    wait_for(lambda: bench.receiver.last(last) == "firing", lambda: bench.log("alerts-1"))
    assert [alert["state"] for alert in bench.receiver.alerts[other]] == ["firing"]


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_stops_within_seconds_although_kafka_is_gone(new_kafka: NewKafka, tmp_path: Path, fate: signal.Signals) -> None:
    broker = new_kafka()
    make_topics(broker.bootstrap)
    bench = Bench(broker, tmp_path)
    try:
        service = bench.start()
        bench.wait_owner()
        bench.send(*(bench.now(bench.host(number)) for number in range(20)))
        wait_for(lambda: bool(bench.receiver.alerts), bench.log)
        # What became of the deliveries is still to be stored.
        assert broker.pid is not None
        os.kill(broker.pid, fate)
        began = time.monotonic()
        service.terminate()
        assert service.wait(60) == 0
        assert time.monotonic() - began < STOP_S + 5
    finally:
        bench.close()
