"""Delivery turn by turn, between a client that does what the test says and a real spool."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from producers import delivery
from producers.delivery import DISK_RETRY_S, DOUBT_S, MOST_OUT, Delivery
from producers.inbox import Inbox
from producers.ledger import Ledger
from producers.notices import Notices
from producers.segment import Stored
from producers.segment_file import Segment
from producers.sending import Outcome, Verdict
from producers.spool import Spool, SpoolError
from producers.vitals import Vitals

MB = 1 << 20
CPU, GPU, EVENTS = "reveal.telemetry.cpu", "reveal.telemetry.gpu", "reveal.events"


class ScriptedClient:
    """Kafka as the test wants it: `judge` says what becomes of a message when the client is asked, None for nothing."""

    def __init__(self) -> None:
        self.away = False
        self.broken = ""
        self.renewed = 0
        self.sent: list[Stored] = []
        self.delivered: list[Stored] = []
        self.most = 0
        self.judge: Callable[[Stored, list[Stored]], Verdict | None] = lambda message, batch: Verdict.DELIVERED
        self._flying: dict[int, Stored] = {}

    def send(self, token: int, message: Stored) -> Outcome | None:
        """As in Client."""
        if self.broken:
            return Outcome(token, Verdict.AGAIN, self.broken)
        self.sent.append(message)
        self._flying[token] = message
        self.most = max(self.most, len(self._flying))
        return None

    def poll(self, seconds: float) -> list[Outcome]:
        """As in Client."""
        batch, judge = list(self._flying.values()), self.judge
        outcomes = []
        for token, message in list(self._flying.items()):
            if not self.broken and (verdict := judge(message, batch)) is not None:
                del self._flying[token]
                outcomes.append(Outcome(token, verdict, "as the test says"))
                if verdict is Verdict.DELIVERED:
                    self.delivered.append(message)
        return outcomes

    def renew(self) -> None:
        """As in Client."""
        self._flying.clear()
        self.broken = ""
        self.renewed += 1

    def close(self) -> None:
        """As in Client."""
        self._flying.clear()

    def numbers(self, topic: str = CPU) -> list[int]:
        """Numbers of the messages of a topic that were delivered."""
        return [int(message.value.split()[0]) for message in self.delivered if message.topic == topic]


class Bench:
    """A delivery with all that it needs, and a clock that the test sets."""

    def __init__(self, directory: Path | None, limit: int = 16 * MB, memory: int = 4 * MB) -> None:
        self.now = 1000.0
        self.client = ScriptedClient()
        self.inbox = Inbox(memory)
        self.notices, self.vitals = Notices(), Vitals()
        self.ledger = Ledger(self.notices, self.vitals, lambda: self.now)
        self.trouble: Exception | None = None
        self.directory = directory
        self.limit = limit
        self.count = 0
        self.delivery = self.new()

    def new(self) -> Delivery:
        """A delivery, as after a start."""
        return Delivery(
            self.client,
            self.inbox,
            self.ledger,
            self.open if self.directory else None,
            clock=lambda: self.now,
            wall=lambda: int(self.now * 1e9),
        )

    def open(self) -> Spool:
        """The spool, unless the test has trouble with it."""
        if self.trouble is not None:
            raise self.trouble
        assert self.directory is not None
        return Spool(self.directory, self.limit, self.ledger.lose)

    def put(self, count: int = 1, topic: str = CPU, size: int = 0) -> None:
        """New messages, numbered on."""
        for _ in range(count):
            value = b"%d" % self.count + (b" " + os.urandom(size // 2).hex().encode() if size else b"")
            subsystem = topic.removeprefix("reveal.telemetry.")
            gone = self.inbox.put(Stored(topic, b"host", value, subsystem, 10, int(self.now * 1e9)))
            for message in gone:
                self.ledger.lose(message.subsystem, 1, message.samples, "no room in memory")
            self.count += 1

    def turns(self, count: int = 3, seconds: float = 0.0) -> None:
        """So many rounds, `seconds` before each."""
        for _ in range(count):
            self.now += seconds
            self.delivery.turn()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "TURN_S", 0.0)
    monkeypatch.setattr(delivery, "IDLE_S", 0.0)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """With a spool."""
    return Bench(tmp_path / "spool")


def on_disk(bench: Bench) -> list[str]:
    """Names of the segments."""
    assert bench.directory is not None
    return sorted(path.name for path in bench.directory.glob("*.spool"))


def nothing(message: Stored, batch: list[Stored]) -> Verdict | None:
    """What a broker says that does not answer."""
    return None


def all_well(message: Stored, batch: list[Stored]) -> Verdict | None:
    """What a broker says that takes everything."""
    return Verdict.DELIVERED


def test_all_well_touches_no_disk(bench: Bench) -> None:
    for _ in range(50):
        bench.put(5)
        bench.turns(2, 0.5)
        assert on_disk(bench) == []
    assert bench.client.numbers() == list(range(250))
    assert bench.ledger.counts.delivered == 250
    assert (bench.delivery.waiting(), bench.vitals.spooled) == (0, 0)


def test_no_acknowledgement_for_two_seconds(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bench.client.judge = nothing
    bench.put(5)
    bench.turns(1)
    bench.turns(1, DOUBT_S)
    assert on_disk(bench) == []
    bench.turns(2, 0.1)
    assert bench.delivery.on_disk() == 5
    assert bench.delivery.in_memory() == 0
    bench.put(5)
    bench.turns(2)
    assert bench.delivery.on_disk() == bench.vitals.spooled == 10
    bench.client.judge = all_well
    bench.turns(3)
    assert bench.client.numbers() == list(range(10))
    # What was out when the doubt began stayed out: nothing went twice.
    assert len(bench.client.sent) == 10
    assert on_disk(bench) == []
    assert bench.vitals.spooled == 0
    assert "messages go to the spool" in caplog.text
    assert "the spool is empty: 10 messages delivered" in caplog.text
    bench.put(1)
    bench.turns(2)
    assert on_disk(bench) == []


def test_no_broker_at_all(bench: Bench) -> None:
    bench.client.away, bench.client.judge = True, nothing
    bench.put(5)
    bench.turns(1)
    assert bench.delivery.on_disk() == 5


def test_killed_while_kafka_is_away(bench: Bench) -> None:
    bench.client.away, bench.client.judge = True, nothing
    bench.put(3000)
    bench.turns(2)
    assert bench.delivery.on_disk() == 3000
    # As after SIGKILL: nothing was closed.
    bench.client = ScriptedClient()
    bench.delivery = bench.new()
    bench.put(10)
    bench.turns(10)
    assert bench.client.numbers() == list(range(3010))
    assert on_disk(bench) == []


def test_few_are_out_at_a_time_whatever_is_on_disk(bench: Bench) -> None:
    bench.client.away, bench.client.judge = True, nothing
    bench.put(7000)
    bench.turns(5)
    assert bench.client.most == MOST_OUT
    bench.client.away, bench.client.judge = False, all_well
    while bench.delivery.waiting():
        # New ones come while the old ones go out.
        bench.put(3)
        bench.turns(1)
    bench.turns(1)
    assert bench.client.most == MOST_OUT
    assert bench.client.numbers() == list(range(bench.count))
    assert on_disk(bench) == []


def test_large_messages_are_counted_in_bytes(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "spool", limit=64 * MB, memory=64 * MB)
    bench.client.away, bench.client.judge = True, nothing
    bench.put(30, size=MB)
    bench.turns(3)
    assert bench.client.most == 4
    bench.client.away, bench.client.judge = False, all_well
    bench.turns(10)
    assert bench.client.numbers() == list(range(30))


def test_progress_is_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bench.client.away, bench.client.judge = True, nothing
    bench.put(4000)
    bench.turns(2)
    bench.now += 3600
    bench.client.away, bench.client.judge = False, all_well
    bench.turns(3, 6.0)
    assert "delivering from the spool: 4000 messages, the oldest 3606 s old" in caplog.text
    assert "2000 messages delivered, 167/s; 2000 left, the oldest 3618 s old" in caplog.text
    bench.turns(3, 1.0)
    assert "the spool is empty: 4000 messages delivered" in caplog.text


def test_client_that_broke_is_replaced_and_order_kept(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.client.judge = nothing
    bench.put(20)
    bench.turns(1)
    bench.client.broken = "out of order sequence number"
    bench.turns(1)
    assert bench.client.renewed == 1
    assert "out of order sequence number" in caplog.text
    bench.put(20)
    bench.client.judge = all_well
    bench.turns(4, 0.2)
    assert bench.client.numbers() == list(range(40))
    # One that breaks at once again is given more and more time.
    moments = []
    for _ in range(1200):
        bench.client.broken, before = "fenced", bench.client.renewed
        bench.turns(1, 0.1)
        if bench.client.renewed > before:
            moments.append(bench.now)
    assert 5 <= len(moments) <= 10
    bench.client.broken = ""
    bench.put(1)
    bench.turns(5, 0.2)
    assert bench.client.numbers() == list(range(41))


def test_missing_topic_holds_up_no_other(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.client.judge = lambda message, batch: Verdict.NOT_NOW if message.topic == EVENTS else Verdict.DELIVERED
    for _ in range(100):
        bench.put(1, EVENTS)
        bench.put(1, CPU)
        bench.turns(2, 0.5)
    assert len(bench.client.numbers(CPU)) == 100
    assert bench.delivery.on_disk() == 100
    assert caplog.text.count("reveal.events: as the test says; trying again for 600 s") == 1
    # Tried with growing pauses, by one message each time.
    assert 5 <= sum(message.topic == EVENTS for message in bench.client.sent) <= 20
    bench.client.judge = all_well
    bench.turns(100, 0.5)
    assert bench.client.numbers(EVENTS) == list(range(0, 200, 2))
    assert on_disk(bench) == []
    assert bench.ledger.counts.failed == 0


def test_missing_topic_is_given_up_after_a_while(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.client.judge = lambda message, batch: Verdict.NOT_NOW if message.topic == GPU else Verdict.DELIVERED
    bench.put(50, GPU)
    bench.turns(700, 1.0)
    assert bench.delivery.waiting() == 0
    assert bench.ledger.counts.failed == 50
    assert bench.ledger.lost("gpu") == 500
    assert "Kafka refuses a message for reveal.telemetry.gpu, set aside in" in caplog.text
    (notice, *_) = bench.notices.drain("host", "session", "")
    assert (notice.kind, notice.subsystem) == ("samples_lost", "gpu")
    bench.put(1, GPU)
    bench.turns(3, 1.0)
    assert bench.ledger.counts.failed == 51
    # It has been made at last.
    bench.client.judge = all_well
    bench.put(1, GPU)
    bench.turns(3, 1.0)
    assert bench.client.numbers(GPU) == [51]

    assert len(list((bench.directory or Path()).glob("refused/*.spool"))) == 1


def test_one_that_is_refused_costs_its_neighbours_nothing(bench: Bench) -> None:
    def judge(message: Stored, batch: list[Stored]) -> Verdict | None:
        guilty = any(int(each.value) in (7, 9) for each in batch)
        return Verdict.REFUSED if guilty else Verdict.DELIVERED

    bench.client.judge = judge
    bench.put(20)
    bench.turns(60, 0.2)
    assert sorted(bench.client.numbers()) == [each for each in range(20) if each not in (7, 9)]
    assert bench.ledger.counts.failed == 2
    assert bench.ledger.lost("cpu") == 20
    assert bench.delivery.waiting() == 0


def test_disk_that_fails_is_said_once_and_tried_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.trouble = SpoolError("No space left on device: /spool")
    bench.client.away, bench.client.judge = True, nothing
    for _ in range(20):
        bench.put(1)
        bench.turns(1, DISK_RETRY_S / 2)
    assert caplog.text.count("no spool, messages are kept in memory alone: No space left on device") == 1
    assert bench.delivery.in_memory() == 20
    bench.trouble = None
    bench.put(1)
    bench.turns(1, DISK_RETRY_S + 1)
    bench.turns(1)
    assert (bench.delivery.in_memory(), bench.delivery.on_disk()) == (0, 21)
    bench.client.away, bench.client.judge = False, all_well
    bench.turns(3)
    assert bench.client.numbers() == list(range(21))


def test_write_that_fails_keeps_the_order(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.client.away, bench.client.judge = True, nothing
    bench.put(MOST_OUT + 100)
    bench.turns(2)
    true = Spool.append

    def fails(spool: Spool, message: Stored, *, handed: bool = False) -> Segment:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Spool, "append", fails)
    bench.put(100)
    bench.turns(2)
    assert bench.delivery.in_memory() == 100
    monkeypatch.setattr(Spool, "append", true)
    bench.put(100)
    bench.turns(1)
    assert bench.delivery.in_memory() == 200
    bench.turns(1, DISK_RETRY_S)
    assert bench.delivery.in_memory() == 0
    bench.client.away, bench.client.judge = False, all_well
    bench.turns(5)
    assert bench.client.numbers() == list(range(MOST_OUT + 300))


def test_without_a_spool_the_oldest_in_memory_go(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(None, memory=500_000)
    bench.client.judge = nothing
    for _ in range(3000):
        bench.put(1)
        bench.turns(1, 0.01)
    lost = bench.ledger.counts.dropped
    assert 700 < lost < 900
    assert bench.ledger.lost("cpu") == 10 * lost
    bench.client.judge = all_well
    bench.turns(5)
    assert bench.client.numbers() == [*range(MOST_OUT), *range(MOST_OUT + lost, 3000)]
    # Said at once and then once a minute, however many are lost.
    assert caplog.text.count("of cpu lost: no room in memory") == 1
    assert len(bench.notices.drain("host", "session", "")) == 1


def test_full_spool_is_noticed(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "spool", limit=MB)
    bench.client.away, bench.client.judge = True, nothing
    for _ in range(30):
        bench.put(100, size=2000)
        bench.turns(1, 1.0)
    assert bench.ledger.lost("cpu") == 10 * bench.ledger.counts.dropped > 0
    (notice,) = bench.notices.drain("host", "session", "")
    assert notice.kind == "samples_lost"
    assert "of cpu lost: the spool is full" in notice.message


def test_stop_leaves_everything_on_disk(bench: Bench) -> None:
    bench.client.away, bench.client.judge = True, nothing
    bench.delivery.start()
    bench.put(30)
    bench.delivery.stop(5)
    assert (bench.delivery.on_disk(), bench.delivery.in_memory(), bench.vitals.spooled) == (30, 0, 30)
    bench.client = ScriptedClient()
    bench.delivery = bench.new()
    bench.turns(3)
    assert bench.client.numbers() == list(range(30))


def test_stop_waits_for_what_is_out(bench: Bench) -> None:
    bench.client.judge = nothing
    bench.delivery.start()
    bench.put(30)
    threading.Timer(0.2, lambda: setattr(bench.client, "judge", all_well)).start()
    bench.delivery.stop(5)
    assert bench.client.numbers() == list(range(30))
    assert on_disk(bench) == []


def test_disk_that_hangs_stops_nobody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, true = threading.Event(), Spool.append
    stuck = threading.Event()

    def append(spool: Spool, message: Stored, *, handed: bool = False) -> Segment:
        stuck.set()
        assert hangs.wait(60)
        return true(spool, message, handed=handed)

    monkeypatch.setattr(Spool, "append", append)
    bench.client.away, bench.client.judge = True, nothing
    bench.delivery.start()
    bench.put(1)
    assert stuck.wait(10)
    began = time.monotonic()
    bench.put(5000, size=2000)
    assert time.monotonic() - began < 2
    dropped = bench.ledger.counts.dropped
    assert 2500 < dropped < 4000
    hangs.set()
    bench.delivery.stop(10)
    assert bench.delivery.on_disk() == 5001 - dropped


def test_a_fault_of_ours_is_survived(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery, "STUMBLE_S", 0.01)
    true, calls = bench.client.poll, 0

    def poll(seconds: float) -> list[Outcome]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("a bug")
        return true(seconds)

    monkeypatch.setattr(bench.client, "poll", poll)
    bench.delivery.start()
    bench.put(5)
    deadline = time.monotonic() + 20
    while bench.ledger.counts.delivered < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert bench.client.numbers() == list(range(5))
    assert "delivery stumbled" in caplog.text
    bench.delivery.stop(5)
